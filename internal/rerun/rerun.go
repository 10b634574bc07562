// Package rerun decides recorded decisions again: by the controls as they are
// (the baseline) and by the controls as they would be (the candidate), over the
// same input, the same data and the time of the decision. It is pure and runs
// in the killable worker, for the candidate is an author's Rego.
//
//	record (one line of the decision log)
//	   │  input, who decided, when
//	   ├──► baseline set ──► before ─┐
//	   │                             ├─ differ: the candidate flips it (changed)
//	   ├──► candidate set ─► after ──┘
//	   └──  what was recorded ─ differs from before: something else moved since
//	        (drifted): a control's version, or the data
//
// Three kinds of records replay: the service's own, those of our bouncers, which
// see only the resources in front of which they stand and may let pass what no
// control covers, and those of a stock OPA, whose input is whatever its client
// sent. What cannot be decided again as it was is counted apart (NotReplayable).
package rerun

import (
	"encoding/json"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/rego"
)

// Spec is all that a replay is decided by.
type Spec struct {
	Env      string `json:"env"`
	Revision int64  `json:"revision"`
	// Controls are the texts that the epochs name by index.
	Controls []Control `json:"controls"`
	// Libraries are those that the controls of the baseline may reach, Changed
	// those that the candidate's may where it changes one (Control.Changed).
	Libraries []rego.Library `json:"libraries,omitempty"`
	Changed   []rego.Library `json:"changed,omitempty"`
	// Epochs are the stretches of time with the same controls, newest first; the
	// last reaches back as far as there are decisions. One at least.
	Epochs []Epoch `json:"epochs"`
	// Views are what single bouncers see; a bouncer without one sees everything.
	Views []View `json:"views,omitempty"`
	// Resources are registered; Added come with the candidate only.
	Resources []rego.Resource `json:"resources,omitempty"`
	Added     []rego.Resource `json:"added,omitempty"`
	// PIP is the object under data.pip.
	PIP json.RawMessage `json:"pip,omitempty"`
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
	// Changed: compiled with Spec.Changed instead of Spec.Libraries.
	Changed bool `json:"changed,omitempty"`
}

// Epoch is which controls were, and would have been, active from a time on.
type Epoch struct {
	From time.Time `json:"from"`
	// Baseline and Candidate are indices into Spec.Controls.
	Baseline  []int `json:"baseline"`
	Candidate []int `json:"candidate"`
}

// View is one bouncer's part of the environment.
type View struct {
	BouncerID int64 `json:"bouncer_id"`
	// Resources are those that it stands before.
	Resources []int64 `json:"resources"`
	// Deny: it refuses what no control covers (configuration.default_action).
	Deny bool `json:"deny,omitempty"`
}

// Refused is a control that does not compile.
type Refused struct {
	Control int          `json:"control"` // index into Spec.Controls
	Issues  []rego.Issue `json:"issues"`
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
	// them were decided by another version of a control than the baseline has.
	Drifted      int64 `json:"drifted"`
	ControlDrift int64 `json:"control_drift"`
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
	DecisionID string    `json:"decision_id" doc:"The decision, as the audit knows it."`
	Timestamp  time.Time `json:"timestamp" doc:"When it was decided."`
	UserID     string    `json:"user_id" doc:"Whose request it was."`
	Action     string    `json:"action" doc:"What was asked for."`
	ResourceID int64     `json:"resource_id,omitempty" doc:"The resource that matches; absent where none does."`
	Path       string    `json:"path,omitempty" doc:"The path that was asked for."`
	BouncerID  int64     `json:"bouncer_id,omitempty" doc:"The bouncer that decided; absent where this service did."`
	Change     string    `json:"change" enum:"newly_blocked,newly_allowed,mask_changed" doc:"How the candidate flips it."`
	Recorded   Recorded  `json:"recorded" doc:"What was decided then."`
	Before     Verdict   `json:"before" doc:"What the controls without the candidate decide today over the recorded input."`
	After      Verdict   `json:"after" doc:"What they decide with the candidate."`
}

// Recorded is what the log says of a decision.
type Recorded struct {
	Decision      string `json:"decision" enum:"PERMIT,DENY" doc:"The decision that was answered."`
	Effect        string `json:"effect" enum:"ALLOW,DENY,MASK,NO_MATCH,SHADOW_WOULD_DENY,SHADOW_WOULD_MASK" doc:"What the controls said then."`
	PolicyID      int64  `json:"policy_id,omitempty" doc:"The control that decided; absent where none matched."`
	PolicyVersion int64  `json:"policy_version,omitempty" doc:"Its version then."`
	Revision      int64  `json:"revision,omitempty" doc:"The revision of controls and data that decided."`
}

// Verdict is what a set of controls decides, and by which rule.
type Verdict struct {
	Effect        string          `json:"effect" enum:"ALLOW,DENY,MASK,NO_MATCH" doc:"What the controls say."`
	Blocked       bool            `json:"blocked" doc:"Whether the request would be stopped."`
	PolicyID      int64           `json:"policy_id,omitempty" doc:"The control that decides; absent where none matches, and for a candidate that is not stored."`
	PolicyName    string          `json:"policy_name,omitempty" doc:"Its name."`
	PolicyVersion int64           `json:"policy_version,omitempty" doc:"Its version."`
	Reason        string          `json:"reason" doc:"Why, in words."`
	Rule          string          `json:"rule,omitempty" doc:"The rule that decides; where only a default does, or none, the nearest that would have granted access."`
	Line          int             `json:"line,omitempty" doc:"The line that the rule begins in, 1-based."`
	Explanation   string          `json:"explanation,omitempty" doc:"The conditions that held, or those that were missing for access."`
	Mask          []rego.MaskRule `json:"mask,omitempty" doc:"With MASK: what is hidden."`
}
