package why

import (
	"slices"

	"github.com/gatehouse-dev/gatehouse/internal/rego/native"
	"github.com/gatehouse-dev/gatehouse/internal/rego/value"
)

// maxDescent limits how deep an explanation follows rules that use other rules; maxFacts limits
// the number of its facts.
const (
	maxDescent = 8
	maxFacts   = 64
)

// rules returns the rules of a name; nil if there are none, or if it is a function.
func (w *Module) rules(name string) *group {
	if g := w.groups[name]; g != nil && g.Kind() != native.Function {
		return g
	}
	return nil
}

// Holding returns the rules of a name that hold with a value that want accepts.
func (q *Inquiry) Holding(rule string, want func(value.Value) bool) []Branch {
	g := q.why.rules(rule)
	if g == nil {
		return nil
	}
	var out []Branch
	for _, r := range slices.Clone(q.readings(g, nil, nil)) {
		if r.holds() && want(r.value) {
			out = append(out, q.branch(&r, maxDescent))
		}
	}
	return out
}

// Nearest returns the rule of a name that needs the fewest changed conditions to hold with a value
// that want accepts.
func (q *Inquiry) Nearest(rule string, want func(value.Value) bool) (Branch, bool) {
	g := q.why.rules(rule)
	if g == nil {
		return Branch{}, false
	}
	var best Branch
	found := false
	all := slices.Clone(q.readings(g, nil, nil))
	for i, r := range all {
		if r.holds() && (r.clause.fixed || want(r.value)) || found && r.n >= len(best.Missing) {
			continue
		}
		if !r.holds() && r.value.Defined() && r.clause.fixed && !want(r.value) {
			continue
		}
		b := q.branch(&r, maxDescent)
		if r.value.Defined() && !want(r.value) {
			b.Missing = append(b.Missing, q.head(&r))
		}
		b.Missing = append(q.blockers(g, all, i, r.value, b.Missing), b.Missing...)
		if len(b.Missing) > 0 && (!found || len(b.Missing) < len(best.Missing)) {
			best, found = b, true
		}
	}
	return best, found
}

// Without runs fn as if no rule of a name held. It evaluates the rules that use the name again.
func (q *Inquiry) Without(rule string, fn func()) {
	g := q.why.rules(rule)
	if g == nil {
		fn()
		return
	}
	state := q.state
	q.state, q.assumedGone = map[*group][]reading{}, g
	q.m.Without(g.Group, fn)
	q.state, q.assumedGone = state, nil
}

// Readings returns the rules of a name that were evaluated, in source order: those that hold and
// those that do not. In a chain of else branches, the last one is the one that holds.
func (q *Inquiry) Readings(rule string) []Branch {
	g := q.why.rules(rule)
	if g == nil {
		return nil
	}
	var out []Branch
	for _, r := range slices.Clone(q.readings(g, nil, nil)) {
		out = append(out, q.branch(&r, maxDescent))
	}
	return out
}

// blockers returns the facts that keep rule i of a group from deciding even if its missing
// conditions held: an earlier rule of its else chain, or one that holds with another value. One
// condition of each such rule has to fail; nearestFact picks the one that shares the most values with
// the missing conditions.
func (q *Inquiry) blockers(g *group, all []reading, i int, v value.Value, missing []Fact) []Fact {
	if g.Kind() >= native.PartialSet {
		return nil
	}
	var out []Fact
	for j := range all {
		r := &all[j]
		if j == i || !r.holds() {
			continue
		}
		if r.value.Defined() && v.Defined() && value.Equal(r.value, v) {
			continue
		}
		out = addFacts(out, nearestFact(q.branch(r, maxDescent-1).Held, missing))
	}
	return out
}

// nearestFact returns the fact of a list that has the most paths in common with others.
func nearestFact(list, others []Fact) []Fact {
	best, most := -1, -1
	for i := range list {
		n := 0
		for _, s := range list[i].Seen {
			for _, o := range others {
				if slices.ContainsFunc(o.Seen, func(x Seen) bool { return x.Path == s.Path }) {
					n++
				}
			}
		}
		if n > most {
			best, most = i, n
		}
	}
	if best < 0 {
		return nil
	}
	if f := list[best]; len(f.Because) > 0 {
		return f.Because
	}
	return list[best : best+1]
}

// branch describes a reading, with the rules that its conditions use.
func (q *Inquiry) branch(r *reading, depth int) Branch {
	b := Branch{Rule: r.clause.of.Name(), Line: r.clause.line, Value: r.value}
	for i, how := range r.out {
		if how == held && r.clause.conds[i].End == -1 && len(r.out) > 1 && r.clause.headIsElement() {
			continue // the text of a reason does not explain anything
		}
		facts, reached := q.facts(r, i, depth)
		if len(b.Missing) == 0 && how != unreached {
			b.Reached = addFacts(b.Reached, reached)
		}
		if how == held {
			b.Held = addFacts(b.Held, facts)
		} else {
			b.Missing = addFacts(b.Missing, facts)
		}
	}
	return b
}

// head returns the head of a rule as a fact, for a rule whose value is not the one that is wanted.
func (q *Inquiry) head(r *reading) Fact {
	q.restore(r)
	f := Fact{Rule: r.clause.of.Name(), Line: r.clause.line, Source: r.clause.head}
	for _, c := range r.clause.conds {
		if c.End == -1 {
			f.Seen = q.seen(c)
		}
	}
	return f
}

// headIsElement reports whether the value of the head does not decide: an element of a set, or a member
// of an object.
func (cl *clause) headIsElement() bool {
	return cl.of.Kind() >= native.PartialSet
}

// addFacts appends facts that are not in the list yet.
func addFacts(to, facts []Fact) []Fact {
next:
	for _, f := range facts {
		for _, had := range to {
			if had.Line == f.Line && had.Source == f.Source && had.Holds == f.Holds && slices.EqualFunc(had.Seen, f.Seen, sameSeen) {
				continue next
			}
		}
		if len(to) < maxFacts {
			to = append(to, f)
		}
	}
	return to
}

func sameSeen(a, b Seen) bool {
	return a.Path == b.Path && a.Variable == b.Variable && value.Same(a.Value, b.Value)
}

// facts explains one condition of a reading. A condition that uses another rule is explained by the
// conditions of that rule. If it holds, they become its Because; if it does not, the conditions that
// have to change replace it. reached lists all conditions that were evaluated, with the facts of a
// used rule before the condition that uses it.
func (q *Inquiry) facts(r *reading, i, depth int) (facts, reached []Fact) {
	c := r.clause.conds[i]
	q.restore(r)
	q.m.Work(16)
	holds := r.out[i] == held
	own := Fact{
		Rule: r.clause.of.Name(), Line: c.Line, Source: c.Source,
		Holds: holds, Unreached: r.out[i] == unreached, Seen: q.seen(c),
	}
	if depth == 0 || q.stopped() || own.Unreached {
		return []Fact{own}, []Fact{own}
	}
	var inner explanation
	for _, u := range c.uses {
		inner.keepShorter(q.explainUse(r, c, u, holds, depth-1))
		if holds && inner.facts != nil {
			break // one reason is enough if the condition already has the right outcome
		}
	}
	reached = append(inner.reached, own)
	switch {
	case inner.facts == nil:
		return []Fact{own}, reached
	case holds:
		own.Because = inner.facts
		return []Fact{own}, reached
	}
	return inner.facts, reached
}

// explanation is the explanation of a condition by the rules that it uses: the shortest one, and what
// was evaluated for it.
type explanation struct{ facts, reached []Fact }

// keepShorter replaces b with o if o has facts, and fewer than b.
func (b *explanation) keepShorter(o explanation) {
	if len(o.facts) > 0 && (b.facts == nil || len(o.facts) < len(b.facts)) {
		*b = o
	}
}

// unknownValue stands for an unknown value. No author writes it.
var unknownValue = value.String("\x00something")

// explainUse explains a condition by a rule that it uses: what would have to change in that rule to
// change the outcome of the condition? It tries the values that the rule could have instead, and
// takes the shortest explanation.
func (q *Inquiry) explainUse(r *reading, c *condition, u use, holds bool, depth int) (best explanation) {
	args, paths := make([]value.Value, len(u.args)), make([]string, len(u.args))
	for i, a := range u.args {
		if args[i] = a(q.m); !args[i].Defined() {
			return best
		}
		if sh := u.from[i]; sh != nil {
			paths[i] = q.read(sh).Path
		}
	}
	g := u.group
	if g.Kind() >= native.PartialObject || g == q.assumedGone {
		return best
	}
	turns := func(v value.Value) bool {
		q.restore(r)
		return q.m.Suppose(g.Group, args, v, c.probe) != holds
	}
	if g.Kind() == native.PartialSet {
		return q.explainSetUse(r, c, g, holds, depth, turns)
	}
	all := slices.Clone(q.readings(g, args, paths))
	if turns(q.fallback(g, args, all)) {
		var found explanation
		for i := range all {
			if all[i].holds() {
				b := q.branch(&all[i], depth)
				found.facts, found.reached = addFacts(found.facts, b.Held), addFacts(found.reached, b.Reached)
			}
		}
		// If these rules fail, another rule of the name may hold instead.
		if then := q.wouldHold(all, found.facts, depth); !then.Defined() || turns(then) {
			best.keepShorter(found)
		}
	}
	for i := range all {
		other := &all[i]
		v := other.value
		if !v.Defined() {
			v = unknownValue // its value depends on what is missing, but would exist
		}
		if other.holds() || best.facts != nil && other.n >= len(best.facts) || !turns(v) {
			continue
		}
		b := q.branch(other, depth)
		best.keepShorter(explanation{addFacts(q.blockers(g, all, i, other.value, b.Missing), b.Missing), b.Reached})
	}
	return best
}

// wouldHold returns the value of a rule that would hold if the given facts changed, and that misses
// nothing else.
func (q *Inquiry) wouldHold(all []reading, facts []Fact, depth int) value.Value {
	for i := range all {
		r := &all[i]
		if r.holds() || !r.value.Defined() || len(facts) == 0 {
			continue
		}
		turned := func(f Fact) bool {
			return slices.ContainsFunc(facts, func(o Fact) bool {
				return o.Holds == f.Holds && o.Source == f.Source && slices.EqualFunc(o.Seen, f.Seen, sameSeen)
			})
		}
		missing := q.branch(r, depth).Missing
		if !slices.ContainsFunc(missing, func(f Fact) bool { return !turned(f) }) {
			return r.value
		}
	}
	return value.Value{}
}

// fallback returns the value that rules would have if those that hold did not: that of a later else
// branch, or the default.
func (q *Inquiry) fallback(g *group, args []value.Value, all []reading) value.Value {
	for i := range all {
		if !all[i].holds() {
			continue
		}
		for _, chain := range g.chains {
			at := slices.Index(chain, all[i].clause)
			if at < 0 {
				continue
			}
			for _, cl := range chain[at+1:] {
				if r := q.explore(cl, args, nil); r.holds() {
					return r.value
				}
			}
		}
	}
	q.m.SetParams(g.Group, args)
	return g.Default(q.m)
}

// explainSetUse is explainUse for a partial set: it looks for the rule that added the element, or
// that would add it.
func (q *Inquiry) explainSetUse(r *reading, c *condition, g *group, holds bool, depth int, turns func(value.Value) bool) (best explanation) {
	present := g.Value(q.m)
	alone := func(clause *clause) func(m *native.Machine) bool {
		// Accept only the element that matters: a condition that holds still holds with this
		// element alone in the set, and a condition that does not hold would hold if it were added.
		return func(m *native.Machine) bool {
			v := clause.value(m)
			q.restore(r)
			with := append(slices.Clone(present.Elems()), v)
			if present.Has(v) {
				with = []value.Value{v}
			}
			return q.m.Suppose(g.Group, nil, value.SetOf(with), c.probe) == (holds == present.Has(v))
		}
	}
	gone := turns(value.SetOf(nil))
	for _, chain := range g.chains {
		for _, cl := range chain {
			x := q.explore(cl, nil, alone(cl))
			switch {
			case !x.seen:
			case x.holds() && gone:
				b := q.branch(&x, depth)
				best.keepShorter(explanation{b.Held, b.Reached})
			case !x.holds() && !gone:
				b := q.branch(&x, depth)
				best.keepShorter(explanation{b.Missing, b.Reached})
			}
		}
	}
	return best
}
