// Package replay shows authors what controls would do to real requests. It decides recorded
// decisions again from their inputs, with the present controls and with changed ones.
//
//	Request ─► plan: which controls, resources, bouncers' views, which part of the log
//	             │
//	decision log ──pages──► worker.Replay (a killable child, package rerun) ──parts──► Impact
//	             │
//	Preview (30 s, answers at once) · runs (a job; progress, cancel) · Gate (on promote)
//
// It also makes test cases from recorded decisions, and lists the controls and rules that
// no decision used.
package replay

import (
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/replay/compare"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

// The defaults and limits of a request. Windows are in hours.
const (
	DefaultWindow  = 24
	MaxWindow      = 8760
	DefaultSamples = 20
)

// The controls and data that a candidate is compared with.
const (
	Then = "then" // those at the time of each decision
	Now  = "now"  // those that are active now
)

// Request says which decisions are replayed, with which controls.
type Request struct {
	Environment       scope.Env   `json:"environment,omitempty" enum:"sandbox,production" doc:"Environment of the controls; absent: the credential's environment, else production."`
	SourceEnvironment scope.Env   `json:"source_environment,omitempty" enum:"sandbox,production" doc:"Environment whose recorded decisions, active controls and resources are used; absent: same as environment. With environment sandbox and this production, sandbox controls are tried on production's traffic, as a promotion would do."`
	ControlIDs        []int64     `json:"control_ids,omitempty" maxItems:"200" doc:"Stored controls to activate in addition to the active ones. Absent or empty: only the active ones, which shows what enforcing them would block." example:"[12]"`
	Candidates        []Candidate `json:"candidates,omitempty" maxItems:"20" doc:"Edited source that is not stored."`
	WithoutIDs        []int64     `json:"without_control_ids,omitempty" maxItems:"200" doc:"Active controls of the source environment that would not be active."`
	WindowHours       int         `json:"window_hours,omitempty" minimum:"1" maximum:"8760" doc:"How far back decisions are replayed; 24 by default." example:"24"`
	Baseline          string      `json:"baseline,omitempty" enum:"then,now" doc:"What the candidate is compared with: for each decision, the controls and libraries that decided it (default), or those that are active now."`
	Data              string      `json:"data,omitempty" enum:"then,now" doc:"The resources that both sides use: as they were at the time of each decision (default), or as they are now."`
	MaxDecisions      int64       `json:"max_decisions,omitempty" minimum:"1" maximum:"100000000" doc:"Replay only this many decisions, the newest."`
	Samples           *int        `json:"samples,omitempty" minimum:"0" maximum:"100" doc:"Largest number of single flips in the answer; 20 by default."`
}

// Candidate is a control that its author has edited.
type Candidate struct {
	PolicyID   int64  `json:"policy_id,omitempty" minimum:"1" doc:"The stored control that it would replace; absent: a new one."`
	RegoCode   string `json:"rego_code,omitempty" maxLength:"1000000" doc:"Its source; absent: the stored one." example:"package payments\n\nallow if input.user.role == \"clerk\""`
	ResourceID int64  `json:"resource_id,omitempty" minimum:"1" doc:"For a new control: the resource that it would be linked to; absent: tenant-wide."`
	Name       string `json:"name,omitempty" maxLength:"200" doc:"For a new control: its name in the answer."`
}

// Impact is the result of a replay.
type Impact struct {
	Environment       scope.Env `json:"environment" enum:"sandbox,production" doc:"Environment of the controls."`
	SourceEnvironment scope.Env `json:"source_environment" enum:"sandbox,production" doc:"Environment whose decisions were replayed."`
	WindowHours       int       `json:"window_hours" doc:"How far back."`
	From              time.Time `json:"from" doc:"Start of the period."`
	To                time.Time `json:"to" doc:"Its end."`
	Revision          int64     `json:"revision" doc:"The newest revision of controls and data used in the replay."`
	Baseline          string    `json:"baseline" enum:"then,now" doc:"What the candidate was compared with."`
	Data              string    `json:"data" enum:"then,now" doc:"Which resources both sides used."`
	Controls          []Subject `json:"controls" doc:"The candidate: controls to activate or deactivate, compared with the baseline."`

	Recorded     int64 `json:"recorded" doc:"Decisions in the period."`
	WithoutInput int64 `json:"without_input" doc:"Among these: decisions without a stored input (see the tenant's setting replay). They cannot be replayed."`
	Evaluated    int64 `json:"evaluated" doc:"Number that were replayed: would_block, would_allow and would_mask together."`
	WouldBlock   int64 `json:"would_block" doc:"Number that the candidate blocks."`
	WouldAllow   int64 `json:"would_allow" doc:"Number that it allows."`
	WouldMask    int64 `json:"would_mask" doc:"Number that it allows with parts masked."`
	WouldNoMatch int64 `json:"would_no_match" doc:"Among would_block: decisions that no control matches."`
	Changed      int64 `json:"changed" doc:"Number that it flips: the baseline decides differently, or masks other parts."`
	NewlyBlocked int64 `json:"newly_blocked" doc:"Number that it blocks and the baseline allows."`
	NewlyAllowed int64 `json:"newly_allowed" doc:"Number that it allows and the baseline blocks."`

	WouldBlockPercent   float64 `json:"would_block_percent" doc:"would_block as a percentage of evaluated."`
	ChangedPercent      float64 `json:"changed_percent" doc:"changed as a percentage of evaluated."`
	NewlyBlockedPercent float64 `json:"newly_blocked_percent" doc:"newly_blocked as a percentage of evaluated."`

	Drifted       Drift         `json:"drifted" doc:"Decisions for which the baseline, too, differs from what was recorded. The cause is not the candidate: the baseline is not what decided at the time."`
	NotReplayable NotReplayable `json:"not_replayable" doc:"Decisions with a stored input that could not be repeated as they were."`

	ByControl  []ByControl      `json:"by_control" doc:"By the control that decides, or that no longer decides what flips; most flips first."`
	ByResource []ByResource     `json:"by_resource" doc:"By the resource that matches; most flips first."`
	BySubject  []BySubject      `json:"by_subject" doc:"The subjects whose decisions flip; most flips first, at most 100."`
	ByRule     []ByRule         `json:"by_rule" doc:"The rules behind the flips; most flips first."`
	Samples    []compare.Sample `json:"samples" doc:"Single flips, newest first."`

	Truncated          bool    `json:"truncated" doc:"Whether some decisions with a stored input were not replayed, because time ran out or max_decisions is lower. The newest were replayed."`
	DurationMS         float64 `json:"duration_ms" doc:"How long it took."`
	DecisionsPerSecond float64 `json:"decisions_per_second" doc:"Speed."`
	Note               string  `json:"note,omitempty" doc:"Limits of these figures."`
}

// recordedInputs is the permission to see the inputs and the subjects of recorded requests.
const recordedInputs scope.Permission = "audit:read"

// figuresNote is the note of an Impact without the parts that need that permission.
const figuresNote = "samples and subjects are shown with the permission audit:read"

// shownTo returns the impact as a caller may see it: without samples and subjects if the caller may
// not read the audit log.
func (i Impact) shownTo(sc scope.Scope) Impact {
	if sc.Require(recordedInputs) == nil {
		return i
	}
	if i.Samples, i.BySubject = []compare.Sample{}, []BySubject{}; i.Note != "" {
		i.Note += "; "
	}
	i.Note += figuresNote
	return i
}

// Subject is a control of the candidate.
type Subject struct {
	PolicyID int64  `json:"policy_id,omitempty" doc:"The control; absent for a new one."`
	Name     string `json:"name" doc:"Its name."`
	Version  int64  `json:"version,omitempty" doc:"Its version; absent for source that is not stored."`
	Edited   bool   `json:"edited" doc:"Whether its source was sent with the request and is not stored."`
	Removed  bool   `json:"removed" doc:"Whether the control would be inactive."`
}

// Drift counts the decisions for which the baseline differs from the recorded decision, by cause.
type Drift struct {
	Total    int64 `json:"total" doc:"Number of decisions that drifted. When the baseline and data are those of the time, this is 0, apart from what is no longer known."`
	Controls int64 `json:"controls" doc:"Among these: decisions made by a control, or by a version of one, that the baseline does not have."`
	Unknown  int64 `json:"unknown" doc:"Among the others: decisions for which it is no longer known what decided. They are older than the history or beyond its limits, or what decided was permanently deleted."`
	Data     int64 `json:"data" doc:"The rest: the baseline has the control that decided, so its libraries or the resources have changed, or a control was added."`
}

// NotReplayable counts the decisions that cannot be replayed, by reason.
type NotReplayable struct {
	Total      int64 `json:"total" doc:"How many."`
	NoInput    int64 `json:"no_input" doc:"The input was too large to store, or was not sent."`
	Redacted   int64 `json:"redacted" doc:"A control reads a value that was redacted in the log."`
	Incomplete int64 `json:"incomplete" doc:"The candidate reads a part of the request that the bouncer did not read at the time."`
	Unreadable int64 `json:"unreadable" doc:"The input is not a decision request."`
}

// Figures are the sums for one control, resource or subject.
type Figures struct {
	Evaluated    int64 `json:"evaluated" doc:"Decisions."`
	WouldBlock   int64 `json:"would_block" doc:"Blocked by the candidate."`
	WouldAllow   int64 `json:"would_allow" doc:"Allowed."`
	WouldMask    int64 `json:"would_mask" doc:"Allowed with parts masked."`
	Changed      int64 `json:"changed" doc:"Flipped decisions."`
	NewlyBlocked int64 `json:"newly_blocked" doc:"Blocked, and the baseline allows it."`
	NewlyAllowed int64 `json:"newly_allowed" doc:"Allowed, and the baseline blocks it."`
}

// ByControl has the figures of one control.
type ByControl struct {
	PolicyID   int64  `json:"policy_id,omitempty" doc:"The control; absent for one that is not stored."`
	PolicyName string `json:"policy_name" doc:"Its name."`
	Figures
}

// ByResource has the figures of one resource.
type ByResource struct {
	ResourceID int64  `json:"resource_id" doc:"The resource."`
	Name       string `json:"name" doc:"Its name."`
	Figures
}

// BySubject has the figures of one subject.
type BySubject struct {
	UserID string `json:"user_id" doc:"The subject."`
	Figures
}

// ByRule counts the flips that one rule causes.
type ByRule struct {
	PolicyID   int64  `json:"policy_id,omitempty" doc:"The control; absent for one that is not stored."`
	PolicyName string `json:"policy_name" doc:"Its name."`
	Rule       string `json:"rule" doc:"The rule."`
	Line       int    `json:"line" doc:"Line on which it begins, from 1."`
	Changed    int64  `json:"changed" doc:"Number of flips."`
}
