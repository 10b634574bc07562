// Package compare replays recorded decisions: it decides each of them again with two sets of
// controls. The baseline is the set that decided at the time, or the set that is active now. The
// candidate is the set that would be active after a change. Both get the same input, the same data
// and the time of the decision. The package is pure. It runs in the killable worker, because a
// candidate is Rego of an author.
//
//	record (one line of the decision log)
//	   │  input, who decided, when, by which revision
//	   ├──► epoch: the controls, libraries and resources of that revision
//	   ├──► baseline set ──► before ─┐
//	   │                             ├─ differ: the candidate flips it (changed)
//	   ├──► candidate set ─► after ──┘
//	   └──  recorded decision ─ differs from before (drifted): the baseline is not the set
//	        that decided, because the caller wants another one, or it is not known any more
//
// There are three kinds of records. Those of the service have the revision of the environment.
// Those of gatehouse's bouncers and of stock OPAs have the revision of their bundle, which may have
// been out of date. A gatehouse bouncer sees only the resources that it protects, and may pass
// requests that no control covers. Records that cannot be replayed faithfully are counted
// separately (NotReplayable).
package compare

import (
	"encoding/json"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/rego"
	"github.com/gatehouse-dev/gatehouse/internal/rego/lang"
	"github.com/gatehouse-dev/gatehouse/internal/rego/masking"
	"github.com/gatehouse-dev/gatehouse/internal/rego/target"
)

// Spec contains everything that a replay needs besides the records.
type Spec struct {
	// Caught is called with each recovered panic of the evaluator.
	Caught   func(*rego.Panic) `json:"-"`
	Env      string            `json:"env"`
	Revision int64             `json:"revision"`
	// Controls are the controls that the mixes name by index. Libraries are the libraries that
	// the controls name by index.
	Controls  []Control      `json:"controls"`
	Libraries []lang.Library `json:"libraries,omitempty"`
	Mixes     []ControlLists `json:"mixes"`
	// Epochs are the periods with the same controls and resources, newest first. The last one has
	// no start. There is at least one.
	Epochs []Epoch `json:"epochs"`
	// Views say which resources each bouncer sees. A bouncer without a view sees all. If
	// ViewsThen is set, a bouncer sees what its bundle contained at the time, if that is known.
	Views     []View `json:"views,omitempty"`
	ViewsThen bool   `json:"views_then,omitempty"`
	// Resources are those of the newest epoch. Past are earlier states of resources.
	// Only the candidate has the resources in Added.
	Resources []target.Resource `json:"resources,omitempty"`
	Past      []Past            `json:"past,omitempty"`
	Added     []target.Resource `json:"added,omitempty"`
	// PIP is the object under data.pip.
	PIP json.RawMessage `json:"pip,omitempty"`
	// Grants is the object under data.grants.
	Grants json.RawMessage `json:"grants,omitempty"`
	// Deadline is the time limit of one decision, as for live decisions; 0 is rego's default.
	Deadline time.Duration `json:"deadline"`
	// Samples is the maximum number of flips in Part.Samples.
	Samples int `json:"samples"`
}

// Control is a control with its source.
type Control struct {
	rego.Meta
	Source string `json:"source"`
	// New means that it is not stored. Answers name it without an id.
	New bool `json:"new,omitempty"`
	// Libraries are the libraries that it imports, also indirectly: indices into Spec.Libraries.
	Libraries []int `json:"libraries,omitempty"`
	// Old means that this version is not active any more. If it does not compile, because what it
	// used is gone, it is not refused. The control with the index Instead - 1 replaces it; if
	// Instead is 0, none does.
	Old     bool `json:"old,omitempty"`
	Instead int  `json:"instead,omitempty"`
}

// ControlLists has the controls that are active together on each side, as indices into Spec.Controls.
type ControlLists struct {
	Baseline  []int `json:"baseline"`
	Candidate []int `json:"candidate"`
}

// Epoch is a period in which the same controls and resources decided.
type Epoch struct {
	// Revision is the first revision of the environment in the epoch. It is 0 if only the time is
	// known, as for the oldest epochs.
	Revision int64     `json:"revision,omitempty"`
	From     time.Time `json:"from"`
	// Mix is an index into Spec.Mixes.
	Mix int `json:"mix"`
	// Unknown means that it is not known what decided. The epoch has the closest known state.
	Unknown bool `json:"unknown,omitempty"`
}

// Past is the state of a resource in an epoch, before the change that began the next newer epoch.
type Past struct {
	// Epoch is an index into Spec.Epochs. Spec.Past is sorted by it, newest epoch first.
	Epoch int   `json:"epoch"`
	ID    int64 `json:"id"`
	// Doc is nil if the resource did not exist.
	Doc *target.Resource `json:"doc,omitempty"`
}

// View is the part of the environment that one bouncer sees.
type View struct {
	BouncerID int64 `json:"bouncer_id"`
	// Resources are the resources that it protects. Added are those that it would protect in
	// addition with the candidate.
	Resources []int64 `json:"resources"`
	Added     []int64 `json:"added,omitempty"`
	// Deny means that it denies requests that no control covers (configuration.default_action).
	Deny bool `json:"deny,omitempty"`
	// Bundles are the known revisions of its bundle, newest first.
	Bundles []Bundle `json:"bundles,omitempty"`
}

// Bundle is the content of one revision of a bouncer's bundle.
type Bundle struct {
	Revision int64 `json:"revision"`
	// EnvRevision is the first revision of the environment with this content. It did not change
	// before the EnvRevision of the next bundle.
	EnvRevision int64   `json:"env_revision"`
	Resources   []int64 `json:"resources"`
	Deny        bool    `json:"deny,omitempty"`
}

// Refused is a control that does not compile.
type Refused struct {
	Control int          `json:"control"` // index into Spec.Controls
	Issues  []lang.Issue `json:"issues"`
}

// Part is the result for some records. Parts can be added.
type Part struct {
	// Lines is the number of records.
	Lines int `json:"lines"`
	Counts
	// NoMatch is the number of those in WouldBlock that no control matched.
	NoMatch int64 `json:"no_match"`
	// Drifted counts the records that the baseline decides differently from the recorded
	// decision. ControlDrift of them were decided by a control, or a version of one, that the
	// baseline does not have. For UnknownDrift of the others, it is not known what decided.
	Drifted      int64 `json:"drifted"`
	ControlDrift int64 `json:"control_drift"`
	UnknownDrift int64 `json:"unknown_drift"`
	// NotReplayable counts the records that cannot be replayed, by reason.
	NotReplayable map[string]int64 `json:"not_replayable,omitempty"`

	ByControl  map[int64]*Tally  `json:"by_control,omitempty"`
	ByResource map[int64]*Tally  `json:"by_resource,omitempty"`
	BySubject  map[string]*Tally `json:"by_subject,omitempty"`
	// ByRule counts flips by the rule that caused them.
	ByRule  map[Rule]int64 `json:"-"`
	Rules   []RuleCount    `json:"rules,omitempty"`
	Samples []Sample       `json:"samples,omitempty"`
}

// Tally has the sums for one control, resource or subject.
type Tally struct {
	Name string `json:"name,omitempty"`
	Counts
}

// Counts are the numbers of records by their outcome.
type Counts struct {
	// Evaluated is the number of records that could be replayed: the sum of the next three.
	Evaluated  int64 `json:"evaluated"`
	WouldBlock int64 `json:"would_block"`
	WouldAllow int64 `json:"would_allow"`
	WouldMask  int64 `json:"would_mask"`
	// Changed counts the records that the candidate decides differently from the baseline. It
	// includes NewlyBlocked and NewlyAllowed; the rest differ in what is masked.
	Changed      int64 `json:"changed"`
	NewlyBlocked int64 `json:"newly_blocked"`
	NewlyAllowed int64 `json:"newly_allowed"`
}

// Rule is a rule of a control, identified by the line on which it begins.
type Rule struct {
	PolicyID   int64  `json:"policy_id"`
	PolicyName string `json:"policy_name"`
	Rule       string `json:"rule"`
	Line       int    `json:"line"`
}

// RuleCount is the number of flips that a rule caused.
type RuleCount struct {
	Rule
	Changed int64 `json:"changed"`
}

// The reasons why a record cannot be replayed.
const (
	NoInput    = "no_input"   // the input was not stored, or was too large to store
	Redacted   = "redacted"   // a control reads a redacted value
	Incomplete = "incomplete" // a control reads a part that the bouncer did not read at the time
	Unreadable = "unreadable" // the input is not a decision request
)

// The kinds of flips.
const (
	NewlyBlocked = "newly_blocked"
	NewlyAllowed = "newly_allowed"
	MaskChanged  = "mask_changed"
)

// Sample is one decision that the candidate flips.
type Sample struct {
	DecisionID string    `json:"decision_id" doc:"The decision_id in the audit."`
	Timestamp  time.Time `json:"timestamp" doc:"When it was decided."`
	UserID     string    `json:"user_id" doc:"The subject of the request."`
	Action     string    `json:"action" doc:"The request."`
	ResourceID int64     `json:"resource_id,omitempty" doc:"The resource that matches; absent where none does."`
	Path       string    `json:"path,omitempty" doc:"The requested path."`
	BouncerID  int64     `json:"bouncer_id,omitempty" doc:"The bouncer that decided; absent when this service decided."`
	Change     string    `json:"change" enum:"newly_blocked,newly_allowed,mask_changed" doc:"How the candidate flips the decision."`
	Recorded   Recorded  `json:"recorded" doc:"The decision at the time."`
	Before     Verdict   `json:"before" doc:"The decision of the baseline on the recorded input."`
	After      Verdict   `json:"after" doc:"The decision with the candidate."`
}

// Recorded is a decision as the log has it.
type Recorded struct {
	Decision      string `json:"decision" enum:"PERMIT,DENY" doc:"The decision in the answer."`
	Effect        string `json:"effect" enum:"ALLOW,DENY,MASK,NO_MATCH,SHADOW_WOULD_DENY,SHADOW_WOULD_MASK" doc:"The effect that the controls returned at the time."`
	PolicyID      int64  `json:"policy_id,omitempty" doc:"The control that decided; absent where none matched."`
	PolicyVersion int64  `json:"policy_version,omitempty" doc:"Its version at the time."`
	Revision      int64  `json:"revision,omitempty" doc:"The revision of controls and data that decided."`
}

// Verdict is the decision of a set of controls, with the rule that made it.
type Verdict struct {
	Effect        string             `json:"effect" enum:"ALLOW,DENY,MASK,NO_MATCH" doc:"The effect that the controls return."`
	Blocked       bool               `json:"blocked" doc:"Whether the request would be blocked."`
	PolicyID      int64              `json:"policy_id,omitempty" doc:"The control that decides; absent where none matches, and for a candidate that is not stored."`
	PolicyName    string             `json:"policy_name,omitempty" doc:"Its name."`
	PolicyVersion int64              `json:"policy_version,omitempty" doc:"Its version."`
	Reason        string             `json:"reason" doc:"Why, in words."`
	Rule          string             `json:"rule,omitempty" doc:"The rule that decides. Where only a default decides, or nothing does: the nearest rule that would have granted access."`
	Line          int                `json:"line,omitempty" doc:"Line on which the rule begins, from 1."`
	Explanation   string             `json:"explanation,omitempty" doc:"The conditions that held, or those that were missing for access."`
	Mask          []masking.MaskRule `json:"mask,omitempty" doc:"For MASK: the masked parts."`
}
