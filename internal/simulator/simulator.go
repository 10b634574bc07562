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

	"github.com/danielgtaylor/huma/v2"

	"github.com/gatehouse-dev/gatehouse/internal/patch"
	"github.com/gatehouse-dev/gatehouse/internal/rego/reason"
	"github.com/gatehouse-dev/gatehouse/internal/rego/value"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

// Object is a JSON object with any members. Numbers keep their spelling.
type Object struct{ value.Value }

// Schema returns the schema of an open object, for the API's document.
func (Object) Schema(huma.Registry) *huma.Schema {
	return &huma.Schema{Type: huma.TypeObject, AdditionalProperties: true}
}

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
	Input Object
	// TestType is manual, scenario or regression. Empty means scenario if there is one, else manual.
	TestType string
	// Scenario is the id of the scenario to run; nil means none.
	Scenario *int64
}

// Actor is the person or client that ran a simulation.
type Actor struct {
	Kind scope.ActorKind `json:"kind" enum:"user,api_key,system" doc:"Person or API key."`
	ID   string          `json:"id" doc:"Id of the user or the key."`
	Name string          `json:"name" doc:"Name of the user or the key."`
}

// Subject is the control that was simulated, as it was at that time.
type Subject struct {
	ID      int64  `json:"id" doc:"Id of the control."`
	Name    string `json:"name" doc:"Its name at the time."`
	Version int64  `json:"version" doc:"Its version at the time."`
	Status  string `json:"status" enum:"enabled,inactive,draft" doc:"Its state at the time; only enabled ones decide live requests."`
}

// Named is the id and name of an object.
type Named struct {
	ID   int64  `json:"id" doc:"Its id."`
	Name string `json:"name" doc:"Its name at the time."`
}

// SourceLine is one line of the control that matters for the decision.
type SourceLine struct {
	Line int    `json:"line" doc:"Line in the source, from 1."`
	Text string `json:"text" doc:"The line."`
	// Outcome is empty for lines that are shown only as context.
	Outcome string `json:"outcome,omitempty" enum:"held,failed,decided" doc:"Result of the condition on this line; decided: the line of the rule itself. Absent for lines that are shown as context."`
}

// Record is what is stored of a run, and what an export shows. It has no secrets and no
// owner_email.
type Record struct {
	Decision        string             `json:"decision" enum:"ALLOW,DENY,MASK,NO_MATCH" doc:"ALLOW; DENY; MASK: granted, with data masked; NO_MATCH: the control does not apply, and the default action is used."`
	Reason          string             `json:"reason" doc:"The reason in words; the control's own reason if it gives one."`
	Trace           []reason.Step      `json:"trace" doc:"The steps of the evaluation; at most 1000."`
	Input           Object             `json:"input_json" doc:"The input as sent."`
	Output          Object             `json:"output_json" doc:"What a PEP would receive: the value of data.gatehouse.decision."`
	ExecutionTimeMS float64            `json:"execution_time_ms" doc:"Evaluation time in milliseconds, without the trace."`
	Timestamp       time.Time          `json:"timestamp" doc:"When it ran, UTC."`
	Explanation     reason.Explanation `json:"explanation" doc:"The rule and line that decided, and the values that it read; for a denial, the nearest rule that would have granted access."`
	// Notes say how a live decision would differ.
	Notes          []string     `json:"notes" doc:"How a live decision would differ, in words; empty if it would not."`
	EvaluatedInput Object       `json:"evaluated_input" doc:"The input as the control read it: completed from the resource and the stored user, as for a live decision."`
	SourceLines    []SourceLine `json:"source_lines" doc:"The lines of the control that took part in the decision."`
	Policy         Subject      `json:"policy" doc:"The control."`
	Resource       *Named       `json:"resource,omitempty" doc:"The resource whose fields completed the input; absent without one."`
	Environment    scope.Env    `json:"environment" enum:"sandbox,production" doc:"The environment."`
	TestType       string       `json:"test_type" enum:"manual,scenario,regression" doc:"The kind of run."`
	Scenario       *Named       `json:"scenario,omitempty" doc:"The scenario that was run; absent when there is none."`
	User           Actor        `json:"user" doc:"Who ran it."`
	// Error is set if the control could not be evaluated, or ran into a limit.
	Error string `json:"error,omitempty" doc:"Why the control could not be evaluated; absent if it could."`
}

// Result is the answer to a simulation.
type Result struct {
	SimulationID *int64 `json:"simulation_id" nullable:"true" doc:"Identifies this run in the history and in the audit."`
	// Checksum is that of the stored record, not of this answer.
	Checksum string `json:"checksum" doc:"sha256: and the digest of the stored record of this run, as exports and the audit entry contain it."`
	Record
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
