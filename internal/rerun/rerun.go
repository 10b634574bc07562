// Package rerun decides recorded decisions again: by the baseline, which is what
// decided then or what is active now, and by the candidate, what would be active.
// Both see the same input, the same data and the time of the decision. It is pure
// and runs in the killable worker, for the candidate is an author's Rego.
//
//	record (one line of the decision log)
//	   │  input, who decided, when, by which revision
//	   ├──► epoch: the controls, libraries and resources of that revision
//	   ├──► baseline set ──► before ─┐
//	   │                             ├─ differ: the candidate flips it (changed)
//	   ├──► candidate set ─► after ──┘
//	   └──  what was recorded ─ differs from before (drifted): the baseline is not
//	        what decided, because it was not asked for, or is not known any more
//
// Three kinds of records replay: the service's own, whose revision is the
// environment's; those of our bouncers and of stock OPAs, whose revision is their
// bundle's, which may have lagged behind. Our bouncers see only the resources in
// front of which they stand and may let pass what no control covers. What cannot
// be decided again as it was is counted apart (NotReplayable).
package rerun

import (
	"encoding/json"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/rego"
	"github.com/gatehouse-dev/gatehouse/internal/rego/lang"
)

// Spec is all that a replay is decided by.
type Spec struct {
	// Caught is told of each fault of the evaluator that was recovered.
	Caught   func(*rego.Panic) `json:"-"`
	Env      string            `json:"env"`
	Revision int64             `json:"revision"`
	// Controls are the texts that the mixes name by index, Libraries those that
	// the controls name.
	Controls  []Control      `json:"controls"`
	Libraries []lang.Library `json:"libraries,omitempty"`
	Mixes     []Mix          `json:"mixes"`
	// Epochs are the stretches of time with the same controls and resources, newest
	// first; the last reaches back as far as there are decisions. One at least.
	Epochs []Epoch `json:"epochs"`
	// Views are what single bouncers see; a bouncer without one sees everything.
	// With ViewsThen it is what its bundle held then, as far as that is known.
	Views     []View `json:"views,omitempty"`
	ViewsThen bool   `json:"views_then,omitempty"`
	// Resources are those of the newest epoch, Past is what they were before; Added
	// come with the candidate only.
	Resources []rego.Resource `json:"resources,omitempty"`
	Past      []Past          `json:"past,omitempty"`
	Added     []rego.Resource `json:"added,omitempty"`
	// PIP is the object under data.pip.
	PIP json.RawMessage `json:"pip,omitempty"`
	// Grants is the object under data.grants.
	Grants json.RawMessage `json:"grants,omitempty"`
	// Deadline bounds one decision, as it does when it is live; 0 is rego's default.
	Deadline time.Duration `json:"deadline"`
	// Samples is how many flips are told one by one.
	Samples int `json:"samples"`
}

// Control is one control's text.
type Control struct {
	rego.Meta
	Source string `json:"source"`
	// New says that it is not stored: answers name it without an id.
	New bool `json:"new,omitempty"`
	// Libraries are those that it reaches, indices into Spec.Libraries.
	Libraries []int `json:"libraries,omitempty"`
	// Old is a text that is not in force any more. Where it does not compile, for
	// what it used is gone, the control at Instead (an index and one) stands in for
	// it, or none (0), and nothing is refused.
	Old     bool `json:"old,omitempty"`
	Instead int  `json:"instead,omitempty"`
}

// Mix is which controls are active together: indices into Spec.Controls.
type Mix struct {
	Baseline  []int `json:"baseline"`
	Candidate []int `json:"candidate"`
}

// Epoch is which controls and resources decided from a revision, and a time, on.
type Epoch struct {
	// Revision is the environment's first of the epoch; 0 where the epoch is known by
	// its time alone. These are the oldest.
	Revision int64     `json:"revision,omitempty"`
	From     time.Time `json:"from"`
	// Mix is an index into Spec.Mixes.
	Mix int `json:"mix"`
	// Unknown: what decided is not known, this is what comes closest.
	Unknown bool `json:"unknown,omitempty"`
}

// Past is a resource as it was in an epoch, up to the change that began the next.
type Past struct {
	// Epoch is an index into Spec.Epochs. Those of an epoch stand together, newer
	// epochs first.
	Epoch int   `json:"epoch"`
	ID    int64 `json:"id"`
	// Doc is nil where the resource was not there.
	Doc *rego.Resource `json:"doc,omitempty"`
}

// View is one bouncer's part of the environment.
type View struct {
	BouncerID int64 `json:"bouncer_id"`
	// Resources are those that it stands before, Added those that it would besides,
	// with the candidate.
	Resources []int64 `json:"resources"`
	Added     []int64 `json:"added,omitempty"`
	// Deny: it refuses what no control covers (configuration.default_action).
	Deny bool `json:"deny,omitempty"`
	// Bundles are the revisions of its bundle, newest first, as far as known.
	Bundles []Bundle `json:"bundles,omitempty"`
}

// Bundle is what one revision of a bouncer's bundle was made of.
type Bundle struct {
	Revision int64 `json:"revision"`
	// EnvRevision is the environment's. Up to that of the next bundle, what the
	// bouncer sees stayed the same.
	EnvRevision int64   `json:"env_revision"`
	Resources   []int64 `json:"resources"`
	Deny        bool    `json:"deny,omitempty"`
}

// Refused is a control that does not compile.
type Refused struct {
	Control int          `json:"control"` // index into Spec.Controls
	Issues  []lang.Issue `json:"issues"`
}

// Part is what came out of some records; parts add up.
type Part struct {
	// Lines is how many records it is of.
	Lines int `json:"lines"`
	// Evaluated are the records that could be decided again: the sum of the next
	// three. NoMatch are those of WouldBlock that no control matched.
	Evaluated  int64 `json:"evaluated"`
	WouldBlock int64 `json:"would_block"`
	WouldAllow int64 `json:"would_allow"`
	WouldMask  int64 `json:"would_mask"`
	NoMatch    int64 `json:"no_match"`
	// Changed: the candidate decides otherwise than the baseline. Newly blocked and
	// newly allowed are among them; the rest differ in what is masked.
	Changed      int64 `json:"changed"`
	NewlyBlocked int64 `json:"newly_blocked"`
	NewlyAllowed int64 `json:"newly_allowed"`
	// Drifted: the baseline decides otherwise than was recorded. ControlDrift of
	// them were decided by a control, or a version of one, that the baseline has
	// not; of UnknownDrift of the others it is not known what decided.
	Drifted      int64 `json:"drifted"`
	ControlDrift int64 `json:"control_drift"`
	UnknownDrift int64 `json:"unknown_drift"`
	// NotReplayable counts records by why they cannot be decided again.
	NotReplayable map[string]int64 `json:"not_replayable,omitempty"`

	ByControl  map[int64]*Tally  `json:"by_control,omitempty"`
	ByResource map[int64]*Tally  `json:"by_resource,omitempty"`
	BySubject  map[string]*Tally `json:"by_subject,omitempty"`
	// ByRule counts flips by the rule that decides now.
	ByRule  map[Rule]int64 `json:"-"`
	Rules   []RuleCount    `json:"rules,omitempty"`
	Samples []Sample       `json:"samples,omitempty"`
}

// Tally is what became of the records of one control, resource or subject.
type Tally struct {
	Name         string `json:"name,omitempty"`
	Evaluated    int64  `json:"evaluated"`
	WouldBlock   int64  `json:"would_block"`
	WouldAllow   int64  `json:"would_allow"`
	WouldMask    int64  `json:"would_mask"`
	Changed      int64  `json:"changed"`
	NewlyBlocked int64  `json:"newly_blocked"`
	NewlyAllowed int64  `json:"newly_allowed"`
}

// Rule is a rule of a control, by the line that it begins in.
type Rule struct {
	PolicyID   int64  `json:"policy_id"`
	PolicyName string `json:"policy_name"`
	Rule       string `json:"rule"`
	Line       int    `json:"line"`
}

// RuleCount is how many flips a rule is behind.
type RuleCount struct {
	Rule
	Changed int64 `json:"changed"`
}

// Why a record cannot be decided again.
const (
	NoInput    = "no_input"   // none was kept, or it was too large to keep
	Redacted   = "redacted"   // a control reads what was redacted
	Incomplete = "incomplete" // a control reads a part that the bouncer did not look at then
	Unreadable = "unreadable" // the input is no decision request
)

// How a sample flips.
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

// Recorded is what the log says of a decision.
type Recorded struct {
	Decision      string `json:"decision" enum:"PERMIT,DENY" doc:"The decision in the answer."`
	Effect        string `json:"effect" enum:"ALLOW,DENY,MASK,NO_MATCH,SHADOW_WOULD_DENY,SHADOW_WOULD_MASK" doc:"The effect that the controls returned at the time."`
	PolicyID      int64  `json:"policy_id,omitempty" doc:"The control that decided; absent where none matched."`
	PolicyVersion int64  `json:"policy_version,omitempty" doc:"Its version at the time."`
	Revision      int64  `json:"revision,omitempty" doc:"The revision of controls and data that decided."`
}

// Verdict is what a set of controls decides, and by which rule.
type Verdict struct {
	Effect        string          `json:"effect" enum:"ALLOW,DENY,MASK,NO_MATCH" doc:"The effect that the controls return."`
	Blocked       bool            `json:"blocked" doc:"Whether the request would be blocked."`
	PolicyID      int64           `json:"policy_id,omitempty" doc:"The control that decides; absent where none matches, and for a candidate that is not stored."`
	PolicyName    string          `json:"policy_name,omitempty" doc:"Its name."`
	PolicyVersion int64           `json:"policy_version,omitempty" doc:"Its version."`
	Reason        string          `json:"reason" doc:"Why, in words."`
	Rule          string          `json:"rule,omitempty" doc:"The rule that decides. Where only a default decides, or nothing does: the nearest rule that would have granted access."`
	Line          int             `json:"line,omitempty" doc:"Line on which the rule begins, from 1."`
	Explanation   string          `json:"explanation,omitempty" doc:"The conditions that held, or those that were missing for access."`
	Mask          []rego.MaskRule `json:"mask,omitempty" doc:"For MASK: the masked parts."`
}
