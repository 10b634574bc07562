// Package policy stores controls: Rego text with its test cases, bound to a resource and a bouncer,
// with all versions.
//
//	           create                    promote (same id)
//	author ──────────────► sandbox ───────────────────────► production
//	                          │  gates: compiles, stored tests pass, license,
//	 draft ─► active ◄─► inactive       four eyes, counterpart of the resource
//
// Every change runs in one transaction: checks under the lock "controls", the row, its version, the
// audit entry, the event, and Bump("env:<environment>"), which notifies the snapshots and the
// bridge.
package policy

import (
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/patch"
	"github.com/gatehouse-dev/gatehouse/internal/policy/actions"
	"github.com/gatehouse-dev/gatehouse/internal/rego/lang"
	"github.com/gatehouse-dev/gatehouse/internal/rego/suite"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

// The states of a control; only active ones decide.
const (
	Drafted  = "draft"
	Active   = "active"
	Inactive = "inactive"
)

// The kinds of a policy. A library is a module that controls import
// (lang.Library); it never decides.
const (
	KindControl = "control"
	KindLibrary = "library"
)

// TestCase is a stored or sent test: does this input get access?
type TestCase struct {
	Name     string         `json:"name" minLength:"1" maxLength:"200" doc:"Name of the case." example:"owner may read"`
	Input    map[string]any `json:"input" doc:"The input: user, resource, action, context and whatever else the control reads."`
	Expected bool           `json:"expected" doc:"Whether access should be granted (ALLOW or MASK)."`
	Data     *TestData      `json:"data,omitempty" doc:"What the control reads below data, in place of the environment's own. Absent: the same as in a decision."`
	// Source is FromDecision for a case that was made from a recorded decision.
	Source string `json:"source,omitempty" enum:"decision" doc:"decision: the case was created from a recorded decision. Only the service sets it."`
	// InputHidden is set if the caller may not see Input and Data. It is never stored.
	InputHidden bool `json:"input_hidden,omitempty" doc:"The input comes from a recorded decision and the caller lacks audit:read: input is empty and data absent. If the case is sent back, it keeps the stored input; a changed one is refused."`
}

// TestData replaces members of data for a test. Each is replaced completely, as `with
// data.resources as …` does in a Rego test.
type TestData struct {
	Resources map[string]any `json:"resources,omitzero" doc:"Replaces data.resources: resources, by their id as a string."`
	PIP       map[string]any `json:"pip,omitzero" doc:"Replaces data.pip: the data of data-source connections, by connection."`
}

// Content is the part of a control that a version stores: everything that an author sets.
type Content struct {
	Name        string           `json:"name" db:"name" doc:"Name; a search can match a part of it." example:"Payments: owners only"`
	Description string           `json:"description" db:"description" doc:"Description for people."`
	Status      string           `json:"status" db:"status" enum:"draft,active,inactive" doc:"Only active controls decide."`
	Environment scope.Env        `json:"environment" db:"environment" enum:"sandbox,production" doc:"Environment; only a promotion changes it."`
	RegoCode    string           `json:"rego_code" db:"rego_code" doc:"One Rego v1 module."`
	TestCases   []TestCase       `json:"test_cases" db:"test_cases" doc:"Stored test cases; all must pass before a promotion."`
	Actions     []actions.Action `json:"actions" db:"actions" doc:"Actions after a decision."`
	Version     int64            `json:"version" db:"version" doc:"Grows by one with each change; also the ETag."`
	ResourceID  *int64           `json:"resource_id" db:"resource_id" doc:"Linked resource; null: tenant-wide."`
	BouncerID   *int64           `json:"bouncer_id" db:"bouncer_id" doc:"Linked bouncer."`
	CreatedBy   string           `json:"created_by" db:"created_by" doc:"Who created it."`
	CreatedAt   time.Time        `json:"created_at" db:"created_at" doc:"When it was created."`
}

// Policy is one control.
type Policy struct {
	ID   int64  `json:"id" db:"id" doc:"Identifier, unique across both environments; a promotion does not change it." example:"12"`
	Kind string `json:"kind" db:"kind" enum:"control,library" doc:"A control decides; a library is a module, in a package under lib, that controls import. The kind never changes."`
	Content
	UpdatedAt  time.Time   `json:"updated_at" db:"updated_at" doc:"When it last changed."`
	PromotedAt *time.Time  `json:"promoted_at,omitempty" db:"promoted_at" doc:"When it was promoted; absent if it was not."`
	DeletedAt  *time.Time  `json:"deleted_at,omitempty" db:"deleted_at" doc:"When it was deleted; absent on live controls."`
	Metrics    Performance `json:"performance_metrics" db:"-" doc:"Taken from its evaluations."`
	SyncErrors []SyncError `json:"sync_errors" db:"-" doc:"Bouncers that refused a bundle because of this control."`
	// Affected is set in the answer to a change of a library.
	Affected []User `json:"affected_policies,omitempty" db:"-" doc:"In the answer to a change of a library: the policies that use it."`
	// Impact is set in the answer to a promotion whose impact was measured.
	Impact *Impact `json:"-" db:"-"`
	// Replaced is set in the answers to a promotion and to Reinstate. Warnings is set in those
	// and in the answer to a create.
	Replaced []Superseded `json:"-" db:"-"`
	Warnings []Warning    `json:"-" db:"-"`
	// SandboxCopyID is set in the answer to a promotion that left a copy in sandbox. It is 0 if
	// there is no copy.
	SandboxCopyID int64 `json:"-" db:"-"`
	Evaluations   int64 `json:"-" db:"evaluations"`
	CacheHits     int64 `json:"-" db:"cache_hits"`
	Nanoseconds   int64 `json:"-" db:"nanoseconds"`
}

// Performance contains figures about the control's evaluations for decisions, in the service and
// in bouncers.
type Performance struct {
	AvgEvaluationTimeMS float64 `json:"avg_evaluation_time_ms" doc:"Mean evaluation time in milliseconds."`
	TotalEvaluations    int64   `json:"total_evaluations" doc:"How often it was evaluated."`
	CacheHitRate        float64 `json:"cache_hit_rate" minimum:"0" maximum:"1" doc:"Share of decisions answered from the decision cache, 0 to 1."`
}

// SyncError is a bouncer's refusal of this control.
type SyncError struct {
	BouncerID int64  `json:"bouncer_id" doc:"The bouncer that refused the bundle."`
	Version   int64  `json:"version" doc:"The version that it refused."`
	Message   string `json:"message" doc:"The message of the error."`
	File      string `json:"file,omitempty" doc:"File in the bundle."`
	Line      int    `json:"line,omitempty" doc:"Line in the file."`
}

// Draft is the input of a create.
type Draft struct {
	Kind        string           `json:"kind,omitempty" enum:"control,library" doc:"control by default."`
	Name        string           `json:"name" minLength:"1" maxLength:"200" doc:"Name." example:"Payments: owners only"`
	Description string           `json:"description,omitempty" maxLength:"4000" doc:"Description for people."`
	RegoCode    string           `json:"rego_code" minLength:"1" doc:"One Rego v1 module." example:"package payments\n\nallow if input.user.id == input.resource.attributes.owner"`
	Environment scope.Env        `json:"environment,omitempty" enum:"sandbox,production" doc:"Environment; sandbox by default."`
	Status      string           `json:"status,omitempty" enum:"draft,active" doc:"draft by default."`
	ResourceID  *int64           `json:"resource_id,omitempty" nullable:"true" minimum:"1" doc:"Linked resource of the same environment; absent or null: tenant-wide."`
	BouncerID   *int64           `json:"bouncer_id,omitempty" nullable:"true" minimum:"1" doc:"Linked bouncer of the same environment."`
	TestCases   []TestCase       `json:"test_cases,omitempty" maxItems:"1000" doc:"Test cases."`
	Actions     []actions.Action `json:"actions,omitempty" maxItems:"50" doc:"Actions after a decision."`
}

// Change is the input of an update: the members sent change, the others stay.
type Change struct {
	Name        *string                       `json:"name,omitempty" minLength:"1" maxLength:"200" doc:"Name."`
	Description patch.Field[string]           `json:"description,omitzero" maxLength:"4000" doc:"Description for people."`
	RegoCode    *string                       `json:"rego_code,omitempty" minLength:"1" doc:"One Rego v1 module."`
	Environment *scope.Env                    `json:"environment,omitempty" enum:"sandbox,production" doc:"Must be the control's own environment: only a promotion changes it."`
	Status      *string                       `json:"status,omitempty" enum:"draft,active,inactive" doc:"From draft to active, from active to inactive, and back to active."`
	ResourceID  patch.Field[int64]            `json:"resource_id,omitzero" minimum:"1" doc:"Linked resource; null makes the control tenant-wide."`
	BouncerID   patch.Field[int64]            `json:"bouncer_id,omitzero" minimum:"1" doc:"Linked bouncer; null removes the link."`
	TestCases   patch.Field[[]TestCase]       `json:"test_cases,omitzero" maxItems:"1000" doc:"Test cases; replaces all of them. Without audit:read, the cases made from recorded decisions stay, and a changed one is refused."`
	Actions     patch.Field[[]actions.Action] `json:"actions,omitzero" maxItems:"50" doc:"Actions after a decision; replaces all of them."`
	// KeepRecorded keeps stored cases of recorded decisions that TestCases does not contain, also
	// if the caller may see them. It is set for changes from files that omit these cases, because
	// whoever exported them may not read the audit.
	KeepRecorded bool `json:"-"`
	// AddRecorded has new cases that the service made from recorded decisions.
	AddRecorded []TestCase `json:"-"`
}

// Filter selects policies. The environment comes from the scope.
type Filter struct {
	// Kind is control or library, or empty for both.
	Kind string
	// Status is one of the three states, or empty.
	Status string
	// Name is a part of the name, in any case; % and _ are literal.
	Name string
	// Deleted selects soft-deleted policies instead of the others.
	Deleted     bool
	Skip, Limit int64
}

// Page is one page of a list, by id.
type Page struct {
	Policies []Policy `json:"policies" doc:"The page, sorted by id."`
	Total    int64    `json:"total" doc:"Number that match the filters."`
	Page     int64    `json:"page" doc:"Page number, from 1: skip/limit+1."`
	PageSize int64    `json:"page_size" doc:"The limit of the page."`
}

// Validation is the answer to POST /policies/validate, with the status 200 in both cases. For a
// source that compiles it has a list of warnings, for any other a list of errors.
type Validation struct {
	Valid    bool         `json:"valid" doc:"Whether the source compiles."`
	Message  string       `json:"message,omitempty" doc:"Says that the source compiles; absent if it does not."`
	Errors   []lang.Issue `json:"errors,omitzero" doc:"Errors that stop it, with line and column."`
	Warnings []lang.Issue `json:"warnings,omitzero" doc:"The linter's warnings; they stop nothing."`
}

// TestReport is the answer to POST /policies/{policy_id}/test.
type TestReport struct {
	Results []suite.TestResult `json:"results" doc:"One result for each case, in order."`
	Summary Summary            `json:"summary" doc:"Figures."`
}

// Summary counts test results; PassRate is 0 to 1, and 0 without cases.
type Summary struct {
	Total    int     `json:"total" doc:"Number of cases run."`
	Passed   int     `json:"passed" doc:"Number of passed cases."`
	Failed   int     `json:"failed" doc:"Number of failed cases."`
	PassRate float64 `json:"pass_rate" doc:"Share of passed cases, 0 to 1; 0 without cases."`
}

// Control is an active control with the members that snapshots and bundles need.
type Control struct {
	ID         int64            `db:"id"`
	Name       string           `db:"name"`
	Version    int64            `db:"version"`
	ResourceID int64            `db:"resource_id"` // 0: tenant-wide
	BouncerID  int64            `db:"bouncer_id"`  // 0: none
	Source     string           `db:"rego_code"`
	Actions    []actions.Action `db:"actions"`
	UpdatedAt  time.Time        `db:"updated_at"`
}

func (p *Policy) fillMetrics() {
	p.Metrics = Performance{TotalEvaluations: p.Evaluations}
	if p.Evaluations > 0 {
		p.Metrics.AvgEvaluationTimeMS = float64(p.Nanoseconds) / float64(p.Evaluations) / 1e6
		p.Metrics.CacheHitRate = min(1, float64(p.CacheHits)/float64(p.Evaluations))
	}
	if p.SyncErrors == nil {
		p.SyncErrors = []SyncError{}
	}
}

func summarise(results []suite.TestResult) TestReport {
	r := TestReport{Results: results, Summary: Summary{Total: len(results)}}
	for _, t := range results {
		if t.Passed {
			r.Summary.Passed++
		}
	}
	r.Summary.Failed = r.Summary.Total - r.Summary.Passed
	if r.Summary.Total > 0 {
		r.Summary.PassRate = float64(r.Summary.Passed) / float64(r.Summary.Total)
	}
	return r
}
