// Package simulator evaluates a stored control on an input that a person made up, and shows what it
// would decide, and why.
//
//	input_json ─► fill: linked resource, stored person   as a live decision would
//	           ─► worker: evaluate with its trace        killable, 30 s
//	           ─► redact ─► one transaction: log row, audit entry, scenario's last_used
//	           ─► answer: decision, trace, explanation
//
// It never touches live counters, the decision log and the decision cache. A run is stored as one
// redacted JSON record. The digest of the record is in the hash-chained audit, so that an export of
// the record can be verified.
package simulator

import (
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/patch"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
	"github.com/gatehouse-dev/gatehouse/internal/simulator/record"
)

// Loadable is a control that can be simulated.
type Loadable struct {
	ID           int64     `json:"id" db:"id" doc:"Id of the control."`
	Name         string    `json:"name" db:"name" doc:"Its name."`
	Description  string    `json:"description" db:"description" doc:"Its description."`
	Status       string    `json:"status" db:"status" enum:"enabled,inactive,draft" doc:"enabled means active: it decides live requests."`
	Environment  scope.Env `json:"environment" db:"environment" enum:"sandbox,production" doc:"Its environment."`
	ResourceName *string   `json:"resource_name" db:"resource_name" nullable:"true" doc:"Name of the linked resource; null for a tenant-wide control."`
	BouncerName  *string   `json:"bouncer_name" db:"bouncer_name" nullable:"true" doc:"Name of the linked bouncer; null where there is none."`
	TargetAction []string  `json:"target_action" db:"-" doc:"The actions that the control mentions: those that its Rego compares input.action with, else the methods of its resource."`
	Methods      []string  `json:"-" db:"methods"`
	Source       string    `json:"-" db:"rego_code"`
}

// The kinds of run.
const (
	Manual     = "manual"
	OfScenario = "scenario"
	Regression = "regression"
)

// Request describes a simulation. If Input is undefined, the scenario's input is used.
type Request struct {
	Input record.Object
	// TestType is manual, scenario or regression. Empty means scenario if there is one, else manual.
	TestType string
	// Scenario is the id of the scenario to run; nil means none.
	Scenario *int64
}

// Result is the answer to a simulation.
type Result struct {
	SimulationID *int64 `json:"simulation_id" nullable:"true" doc:"Identifies this run in the history and in the audit."`
	// Checksum is that of the stored record, not of this answer.
	Checksum string `json:"checksum" doc:"sha256: and the digest of the stored record of this run, as exports and the audit entry contain it."`
	record.Record
}

// Entry is one run in a history.
type Entry struct {
	ID              int64           `json:"id" db:"id" doc:"The run's simulation_id."`
	PolicyID        int64           `json:"policy_id" db:"policy_id" doc:"The control."`
	PolicyName      string          `json:"policy_name" db:"policy_name" doc:"Its name at the time."`
	User            string          `json:"user" db:"actor_name" doc:"Who ran it: a username, or a key's name."`
	Decision        string          `json:"decision" db:"decision" enum:"ALLOW,DENY,MASK,NO_MATCH" doc:"Result."`
	ExecutionTimeMS float64         `json:"execution_time_ms" db:"-" doc:"Evaluation time in milliseconds."`
	Timestamp       time.Time       `json:"timestamp" db:"created_at" doc:"When it ran, UTC."`
	InputSummary    string          `json:"input_summary" db:"summary" doc:"The input in one line, without secrets. For the runs of others, it is empty without audit:read." example:"user.id=ada user.role=intern action.method=GET"`
	CanExport       bool            `json:"can_export" db:"-" doc:"Whether the caller may export it: your own runs, and those of others with audit:read."`
	Environment     scope.Env       `json:"environment" db:"environment" enum:"sandbox,production" doc:"The environment."`
	Nanoseconds     int64           `json:"-" db:"nanoseconds"`
	ActorKind       scope.ActorKind `json:"-" db:"actor_kind"`
	ActorID         string          `json:"-" db:"actor_id"`
}

// History is one page of runs, newest first.
type History struct {
	Entries []Entry `json:"entries" doc:"The runs, newest first."`
	Total   int64   `json:"total" doc:"Number of runs in the period."`
	Limit   int64   `json:"limit" doc:"The limit of the page."`
	Offset  int64   `json:"offset" doc:"The offset of the page."`
	HasMore bool    `json:"has_more" doc:"Whether there are older runs."`
}

// Filter restricts a history. Start and End are inclusive; zero means no restriction. Decision is
// ALLOW, DENY, MASK or NO_MATCH; empty means any.
type Filter struct {
	Start, End    time.Time
	Decision      string
	Limit, Offset int64
}

// Scenario is an input that is stored for a control.
type Scenario struct {
	ID          int64          `json:"id" db:"id" doc:"Identifier."`
	Name        string         `json:"name" db:"name" doc:"Name." example:"intern on a Sunday"`
	Description string         `json:"description" db:"description" doc:"Description for people."`
	PolicyID    int64          `json:"policy_id" db:"policy_id" doc:"The control that it belongs to."`
	PolicyName  string         `json:"policy_name" db:"policy_name" doc:"Its name."`
	Attributes  map[string]any `json:"attributes" db:"attributes" doc:"Attribute keys, such as user.role, and their values."`
	CreatedAt   time.Time      `json:"created_at" db:"created_at" doc:"When it was created."`
	LastUsed    *time.Time     `json:"last_used" db:"last_used" nullable:"true" doc:"When a simulation last ran it; null when none did."`
	CreatedBy   string         `json:"created_by" db:"created_by" doc:"Who created it."`
}

// ScenarioDraft has the members of a new scenario.
type ScenarioDraft struct {
	PolicyID    int64          `json:"policy_id" minimum:"1" doc:"The control that it belongs to."`
	Name        string         `json:"name" minLength:"1" maxLength:"200" doc:"Name." example:"intern on a Sunday"`
	Description string         `json:"description,omitempty" maxLength:"4000" doc:"Description for people."`
	Attributes  map[string]any `json:"attributes,omitempty" doc:"Attribute keys, such as user.role, and their values." example:"{\"user.role\":\"intern\",\"action.method\":\"GET\"}"`
}

// ScenarioChange is a change of a scenario. Members that are not sent stay as they are.
type ScenarioChange struct {
	PolicyID    *int64                      `json:"policy_id,omitempty" minimum:"1" doc:"The control that it belongs to."`
	Name        *string                     `json:"name,omitempty" minLength:"1" maxLength:"200" doc:"Name."`
	Description patch.Field[string]         `json:"description,omitzero" maxLength:"4000" doc:"Description for people."`
	Attributes  patch.Field[map[string]any] `json:"attributes,omitzero" doc:"Attribute keys and their values; replaces all of them."`
}
