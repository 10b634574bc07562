package compare

import (
	"cmp"
	"slices"
)

// maxSubjects is how many subjects, controls or resources one replay counts separately.
const maxSubjects = 20_000

// Add adds the results for further records. It keeps no more samples than most.
func (p *Part) Add(o *Part, most int) {
	p.Lines += o.Lines
	p.Counts.add(o.Counts)
	p.NoMatch += o.NoMatch
	p.Drifted += o.Drifted
	p.UnknownDrift += o.UnknownDrift
	p.ControlDrift += o.ControlDrift
	for why, n := range o.NotReplayable {
		p.countSkipped(why, n)
	}
	p.ByControl = addTallies(p.ByControl, o.ByControl)
	p.ByResource = addTallies(p.ByResource, o.ByResource)
	p.BySubject = addTallies(p.BySubject, o.BySubject)
	if p.ByRule == nil {
		p.ByRule = map[Rule]int64{}
	}
	for _, r := range o.Rules {
		p.ByRule[r.Rule] += r.Changed
	}
	for r, n := range o.ByRule {
		p.ByRule[r] += n
	}
	p.Samples = append(p.Samples, o.Samples[:min(len(o.Samples), max(0, most-len(p.Samples)))]...)
}

// Seen returns the number of records in the part.
func (p *Part) Seen() int64 { return int64(p.Lines) }

func (p *Part) countSkipped(why string, n int64) {
	if p.NotReplayable == nil {
		p.NotReplayable = map[string]int64{}
	}
	p.NotReplayable[why] += n
}

// list converts ByRule to the form that is sent, most flips first.
func (p *Part) list() {
	p.Rules = p.Rules[:0]
	for r, n := range p.ByRule {
		p.Rules = append(p.Rules, RuleCount{r, n})
	}
	SortRules(p.Rules)
}

// SortRules sorts the rules behind flips, most flips first.
func SortRules(list []RuleCount) {
	slices.SortFunc(list, func(a, b RuleCount) int {
		return cmp.Or(cmp.Compare(b.Changed, a.Changed), cmp.Compare(a.PolicyID, b.PolicyID), cmp.Compare(a.Line, b.Line), cmp.Compare(a.Rule.Rule, b.Rule.Rule))
	})
}

func addTallies[K cmp.Ordered](to, from map[K]*Tally) map[K]*Tally {
	if to == nil {
		to = map[K]*Tally{}
	}
	for k, t := range from {
		if len(to) >= maxSubjects && to[k] == nil {
			continue
		}
		tally(to, k, t.Name).add(t.Counts)
	}
	return to
}

func tally[K cmp.Ordered](m map[K]*Tally, k K, name string) *Tally {
	t := m[k]
	if t == nil {
		t = &Tally{Name: name}
		m[k] = t
	}
	return t
}

func (c *Counts) add(o Counts) {
	c.Evaluated += o.Evaluated
	c.WouldBlock += o.WouldBlock
	c.WouldAllow += o.WouldAllow
	c.WouldMask += o.WouldMask
	c.Changed += o.Changed
	c.NewlyBlocked += o.NewlyBlocked
	c.NewlyAllowed += o.NewlyAllowed
}

// count adds one decided record.
func (c *Counts) count(o outcome) {
	c.Evaluated++
	switch {
	case o.afterBlocked:
		c.WouldBlock++
	case o.afterMasked:
		c.WouldMask++
	default:
		c.WouldAllow++
	}
	switch o.change {
	case NewlyBlocked:
		c.NewlyBlocked++
	case NewlyAllowed:
		c.NewlyAllowed++
	}
	if o.change != "" {
		c.Changed++
	}
}
