// Package replay tells authors what controls would do to requests that were
// really made: it takes recorded decisions whose input was kept and decides
// them again, by the controls as they are and as they would be.
//
//	Request ─► plan: which controls, resources, bouncers' views, which stretch of the log
//	             │
//	decision log ──pages──► worker.Replay (a killable child, package rerun) ──parts──► Impact
//	             │
//	Preview (30 s, answers at once) · runs (a job; progress, cancel) · Gate (on promote)
//
// It also makes test cases of recorded decisions, and lists the controls and
// rules that no decision touched.
package replay

import (
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/rerun"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

// The defaults and bounds of a request.
const (
	DefaultWindow  = 24
	MaxWindow      = 8760
	DefaultSamples = 20
)

// Which controls a candidate is compared with, and over which data.
const (
	Then = "then" // those of each decision's revision
	Now  = "now"  // the active ones, today's
)

// Request says what is replayed, and by what.
type Request struct {
	Environment       scope.Env   `json:"environment,omitempty" enum:"sandbox,production" doc:"Where the controls are; absent: the credential's environment, else production."`
	SourceEnvironment scope.Env   `json:"source_environment,omitempty" enum:"sandbox,production" doc:"Whose recorded decisions, active controls and resources are taken; absent: environment. With environment sandbox and this production, sandbox controls meet production's traffic, as a promotion would have them."`
	ControlIDs        []int64     `json:"control_ids,omitempty" maxItems:"200" doc:"Stored controls that would be active, besides the active ones; absent or empty: the active ones alone, which tells what enforcing them would block." example:"[12]"`
	Candidates        []Candidate `json:"candidates,omitempty" maxItems:"20" doc:"Edits: source that is not stored."`
	WithoutIDs        []int64     `json:"without_control_ids,omitempty" maxItems:"200" doc:"Active controls of the source environment that would not be."`
	WindowHours       int         `json:"window_hours,omitempty" minimum:"1" maximum:"8760" doc:"How far back decisions are replayed; 24 when absent." example:"24"`
	Baseline          string      `json:"baseline,omitempty" enum:"then,now" doc:"What the candidate is compared with: for each decision the controls and libraries that decided then (default), or those active now."`
	Data              string      `json:"data,omitempty" enum:"then,now" doc:"The resources by which both decide: as they were when each decision was made (default), or as they are now."`
	MaxDecisions      int64       `json:"max_decisions,omitempty" minimum:"1" maximum:"100000000" doc:"Replay the newest so many only."`
	Samples           *int        `json:"samples,omitempty" minimum:"0" maximum:"100" doc:"How many flips are told one by one; 20 when absent."`
}

// Candidate is a control as its author edits it.
type Candidate struct {
	PolicyID   int64  `json:"policy_id,omitempty" minimum:"1" doc:"The stored control that it would replace; absent: a new one."`
	RegoCode   string `json:"rego_code,omitempty" maxLength:"1000000" doc:"Its source; absent: the stored one." example:"package payments\n\nallow if input.user.role == \"clerk\""`
	ResourceID int64  `json:"resource_id,omitempty" minimum:"1" doc:"For a new control: the resource that it would be linked to; absent: tenant-wide."`
	Name       string `json:"name,omitempty" maxLength:"200" doc:"For a new control: what answers call it."`
}

// Impact is what a replay found.
type Impact struct {
	Environment       scope.Env `json:"environment" enum:"sandbox,production" doc:"Where the controls are."`
	SourceEnvironment scope.Env `json:"source_environment" enum:"sandbox,production" doc:"Whose decisions were replayed."`
	WindowHours       int       `json:"window_hours" doc:"How far back."`
	From              time.Time `json:"from" doc:"The begin of the window."`
	To                time.Time `json:"to" doc:"Its end."`
	Revision          int64     `json:"revision" doc:"The newest revision of controls and data that decided again."`
	Baseline          string    `json:"baseline" enum:"then,now" doc:"What the candidate was compared with."`
	Data              string    `json:"data" enum:"then,now" doc:"By which resources both decided."`
	Controls          []Subject `json:"controls" doc:"The candidate: what would be active, or not, besides the baseline."`

	Recorded     int64 `json:"recorded" doc:"Decisions in the window."`
	WithoutInput int64 `json:"without_input" doc:"Of these, the ones of which no input was kept (see the tenant's setting replay), so that they cannot be replayed."`
	Evaluated    int64 `json:"evaluated" doc:"How many were decided again: would_block, would_allow and would_mask together."`
	WouldBlock   int64 `json:"would_block" doc:"How many the candidate stops."`
	WouldAllow   int64 `json:"would_allow" doc:"How many it lets pass."`
	WouldMask    int64 `json:"would_mask" doc:"How many it lets pass with parts hidden."`
	WouldNoMatch int64 `json:"would_no_match" doc:"Of would_block, those that no control matches."`
	Changed      int64 `json:"changed" doc:"How many it flips: the baseline decides otherwise, or hides other parts."`
	NewlyBlocked int64 `json:"newly_blocked" doc:"How many it stops that the baseline lets pass."`
	NewlyAllowed int64 `json:"newly_allowed" doc:"How many it lets pass that the baseline stops."`

	WouldBlockPercent   float64 `json:"would_block_percent" doc:"would_block of evaluated, 0 to 100."`
	ChangedPercent      float64 `json:"changed_percent" doc:"changed of evaluated, 0 to 100."`
	NewlyBlockedPercent float64 `json:"newly_blocked_percent" doc:"newly_blocked of evaluated, 0 to 100."`

	Drifted       Drift         `json:"drifted" doc:"Decisions that the baseline, too, decides otherwise than was recorded: not because of the candidate, but because the baseline is not what decided then."`
	NotReplayable NotReplayable `json:"not_replayable" doc:"Decisions with an input that could not be decided again as they were."`

	ByControl  []ByControl    `json:"by_control" doc:"By the control that decides, or that is missed by what it flips; most flips first."`
	ByResource []ByResource   `json:"by_resource" doc:"By the resource that matches; most flips first."`
	BySubject  []BySubject    `json:"by_subject" doc:"The subjects whose decisions flip; most flips first, 100 at most."`
	ByRule     []ByRule       `json:"by_rule" doc:"The rules behind the flips; most flips first."`
	Samples    []rerun.Sample `json:"samples" doc:"Flips one by one, newest first."`

	Truncated          bool    `json:"truncated" doc:"Whether not all that kept their input were replayed, because time ran out or max_decisions is less; the newest were."`
	DurationMS         float64 `json:"duration_ms" doc:"How long it took."`
	DecisionsPerSecond float64 `json:"decisions_per_second" doc:"How fast."`
	Note               string  `json:"note,omitempty" doc:"What these figures do not say."`
}

// recordedInputs is the permission to see what requests held, and whose they were.
const recordedInputs scope.Permission = "audit:read"

// figuresNote is the note of an Impact without what needs that permission.
const figuresNote = "samples and subjects are shown with the permission audit:read"

// shownTo is the impact as a caller may see it: figures alone to whoever may not
// read the audit.
func (i Impact) shownTo(sc scope.Scope) Impact {
	if sc.Require(recordedInputs) == nil {
		return i
	}
	if i.Samples, i.BySubject = []rerun.Sample{}, []BySubject{}; i.Note != "" {
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
	Edited   bool   `json:"edited" doc:"Whether its source was sent, not stored."`
	Removed  bool   `json:"removed" doc:"Whether it would not be active."`
}

// Drift is where the baseline is not what decided then.
type Drift struct {
	Total    int64 `json:"total" doc:"How many drifted. With the baseline and data of then: none, but for what is not known any more."`
	Controls int64 `json:"controls" doc:"Of these, decided by a control, or a version of one, that the baseline has not."`
	Unknown  int64 `json:"unknown" doc:"Of the others, those of which it is not known any more what decided: made before its history began or beyond its bounds, or by what was deleted for good."`
	Data     int64 `json:"data" doc:"The rest: the baseline has what decided, so its libraries or the resources moved, or another control came."`
}

// NotReplayable counts decisions by why they cannot be decided again.
type NotReplayable struct {
	Total      int64 `json:"total" doc:"How many."`
	NoInput    int64 `json:"no_input" doc:"The input was too large to keep, or was not sent."`
	Redacted   int64 `json:"redacted" doc:"A control reads a value that the log redacted."`
	Incomplete int64 `json:"incomplete" doc:"The candidate reads a part of the request that the bouncer did not look at then."`
	Unreadable int64 `json:"unreadable" doc:"The input is no decision request."`
}

// Figures are the sums of one control, resource or subject.
type Figures struct {
	Evaluated    int64 `json:"evaluated" doc:"Decisions."`
	WouldBlock   int64 `json:"would_block" doc:"Stopped by the candidate."`
	WouldAllow   int64 `json:"would_allow" doc:"Let pass."`
	WouldMask    int64 `json:"would_mask" doc:"Let pass with parts hidden."`
	Changed      int64 `json:"changed" doc:"Flipped."`
	NewlyBlocked int64 `json:"newly_blocked" doc:"Stopped, where the baseline lets pass."`
	NewlyAllowed int64 `json:"newly_allowed" doc:"Let pass, where the baseline stops."`
}

// ByControl is the part of one control.
type ByControl struct {
	PolicyID   int64  `json:"policy_id,omitempty" doc:"The control; absent for one that is not stored."`
	PolicyName string `json:"policy_name" doc:"Its name."`
	Figures
}

// ByResource is the part of one resource.
type ByResource struct {
	ResourceID int64  `json:"resource_id" doc:"The resource."`
	Name       string `json:"name" doc:"Its name."`
	Figures
}

// BySubject is the part of one subject: its flips only.
type BySubject struct {
	UserID string `json:"user_id" doc:"The subject."`
	Figures
}

// ByRule is how many flips one rule is behind.
type ByRule struct {
	PolicyID   int64  `json:"policy_id,omitempty" doc:"The control; absent for one that is not stored."`
	PolicyName string `json:"policy_name" doc:"Its name."`
	Rule       string `json:"rule" doc:"The rule."`
	Line       int    `json:"line" doc:"The line that it begins in, 1-based."`
	Changed    int64  `json:"changed" doc:"How many flips."`
}
