package replay

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/replay/compare"
)

// maxListed limits each list of an Impact.
const (
	maxListed   = 1000
	maxSubjects = 100
)

// impact returns the result so far. late means that the time ran out.
func (p *plan) impact(part *compare.Part, late bool, took time.Duration) Impact {
	r := p.request
	out := Impact{
		Environment: r.Environment, SourceEnvironment: r.SourceEnvironment, WindowHours: r.WindowHours, Baseline: r.Baseline, Data: r.Data,
		From: p.recording.From, To: p.recording.To, Revision: p.spec.Revision, Controls: p.subjects,
		Recorded: p.recorded, WithoutInput: p.recorded - p.total - p.left,
		Evaluated: part.Evaluated, WouldBlock: part.WouldBlock, WouldAllow: part.WouldAllow, WouldMask: part.WouldMask, WouldNoMatch: part.NoMatch,
		Changed: part.Changed, NewlyBlocked: part.NewlyBlocked, NewlyAllowed: part.NewlyAllowed,
		WouldBlockPercent: percent(part.WouldBlock, part.Evaluated), ChangedPercent: percent(part.Changed, part.Evaluated),
		NewlyBlockedPercent: percent(part.NewlyBlocked, part.Evaluated),
		Drifted: Drift{
			Total: part.Drifted, Controls: part.ControlDrift, Unknown: part.UnknownDrift, Data: part.Drifted - part.ControlDrift - part.UnknownDrift,
		},
		NotReplayable: NotReplayable{
			Total: part.Seen() - part.Evaluated, NoInput: part.NotReplayable[compare.NoInput], Redacted: part.NotReplayable[compare.Redacted],
			Incomplete: part.NotReplayable[compare.Incomplete], Unreadable: part.NotReplayable[compare.Unreadable],
		},
		ByControl: []ByControl{}, ByResource: []ByResource{}, BySubject: []BySubject{}, ByRule: []ByRule{}, Samples: part.Samples,
		Truncated: late || p.left > 0, DurationMS: float64(took.Microseconds()) / 1000,
	}
	if took > 0 {
		out.DecisionsPerSecond = float64(int64(float64(part.Seen()) / took.Seconds()))
	}
	for id, t := range part.ByControl {
		out.ByControl = append(out.ByControl, ByControl{id, t.Name, Figures(t.Counts)})
	}
	for id, t := range part.ByResource {
		out.ByResource = append(out.ByResource, ByResource{id, t.Name, Figures(t.Counts)})
	}
	for id, t := range part.BySubject {
		out.BySubject = append(out.BySubject, BySubject{id, Figures(t.Counts)})
	}
	slices.SortFunc(out.ByControl, func(a, b ByControl) int {
		return cmp.Or(a.Figures.compare(b.Figures), cmp.Compare(a.PolicyID, b.PolicyID))
	})
	slices.SortFunc(out.ByResource, func(a, b ByResource) int {
		return cmp.Or(a.Figures.compare(b.Figures), cmp.Compare(a.ResourceID, b.ResourceID))
	})
	slices.SortFunc(out.BySubject, func(a, b BySubject) int {
		return cmp.Or(a.Figures.compare(b.Figures), strings.Compare(a.UserID, b.UserID))
	})
	var rules []compare.RuleCount
	for r, n := range part.ByRule {
		rules = append(rules, compare.RuleCount{Rule: r, Changed: n})
	}
	compare.SortRules(rules)
	for _, r := range rules {
		out.ByRule = append(out.ByRule, ByRule{r.PolicyID, r.PolicyName, r.Rule.Rule, r.Line, r.Changed})
	}
	out.ByControl, out.ByResource = out.ByControl[:min(len(out.ByControl), maxListed)], out.ByResource[:min(len(out.ByResource), maxListed)]
	out.BySubject = out.BySubject[:min(len(out.BySubject), maxSubjects)]
	if out.Samples == nil {
		out.Samples = []compare.Sample{}
	}
	out.Note = p.note(&out, late)
	return out
}

// note returns a text about what the figures leave out.
func (p *plan) note(i *Impact, late bool) string {
	notes := slices.Clone(p.notes)
	switch {
	case i.Recorded == 0:
		notes = append(notes, "no decision was recorded in the window")
	case i.Recorded == i.WithoutInput:
		notes = append(notes, "no decision in the window has a stored input: the tenant's setting replay says how long inputs are stored")
	case i.WithoutInput > 0:
		notes = append(notes, strconv.FormatInt(i.WithoutInput, 10)+" decisions have no stored input and are not part of these figures")
	}
	if i.Drifted.Unknown > 0 {
		notes = append(notes, "of "+strconv.FormatInt(i.Drifted.Unknown, 10)+" decisions it is no longer known what decided them; the closest known state was used")
	}
	if late {
		notes = append(notes, "time ran out; the newest decisions were replayed")
	}
	return strings.Join(notes, "; ")
}

// compare orders by flips, then by decisions, greatest first.
func (f Figures) compare(o Figures) int {
	return cmp.Or(cmp.Compare(o.Changed, f.Changed), cmp.Compare(o.Evaluated, f.Evaluated))
}

// percent returns n as a percentage of all, rounded to two decimals.
func percent(n, all int64) float64 {
	if all == 0 {
		return 0
	}
	return float64(int64(float64(n)*10000/float64(all)+0.5)) / 100
}
