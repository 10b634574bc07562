package native

import (
	"slices"

	"github.com/gatehouse-dev/gatehouse/internal/rego/value"
)

// maxDescent is how many rules deep an answer goes, maxFacts how long it gets.
const (
	maxDescent = 8
	maxFacts   = 64
)

// Holding are the rules of a name that hold with a value that want takes.
func (q *Inquiry) Holding(rule string, want func(value.Value) bool) []Branch {
	g := q.why.groups[rule]
	if g == nil || g.kind == function {
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

// Nearest is the rule of a name that would hold, with a value that want takes,
// if the fewest conditions were different.
func (q *Inquiry) Nearest(rule string, want func(value.Value) bool) (Branch, bool) {
	g := q.why.groups[rule]
	if g == nil || g.kind == function {
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
		b.Missing = append(q.inTheWay(g, all, i, r.value, b.Missing), b.Missing...)
		if len(b.Missing) > 0 && (!found || len(b.Missing) < len(best.Missing)) {
			best, found = b, true
		}
	}
	return best, found
}

// Without runs fn as if no rule of a name held, and the rules that ask it were
// evaluated anew.
func (q *Inquiry) Without(rule string, fn func()) {
	g := q.why.groups[rule]
	if g == nil || g.kind == function {
		fn()
		return
	}
	m := q.m
	known, done, state := slices.Clone(m.known), slices.Clone(m.done), q.state
	clear(m.done)
	q.state = map[*whyGroup][]reading{}
	for i := range m.calls {
		m.calls[i].reset()
	}
	m.known[g.id], m.done[g.id] = value.Value{}, true
	if g.kind == partialSet {
		m.known[g.id] = value.SetOf(nil)
	}
	q.gone = g
	fn()
	q.gone = nil
	copy(m.known, known)
	copy(m.done, done)
	q.state = state
	for i := range m.calls {
		m.calls[i].reset()
	}
}

// Readings are the rules of a name that were asked, in the order of the text:
// those that hold and those that do not. In a chain of else branches the last
// one asked is the one that holds.
func (q *Inquiry) Readings(rule string) []Branch {
	g := q.why.groups[rule]
	if g == nil || g.kind == function {
		return nil
	}
	var out []Branch
	for _, r := range slices.Clone(q.readings(g, nil, nil)) {
		out = append(out, q.branch(&r, maxDescent))
	}
	return out
}

// inTheWay are the facts that keep rule i of a group from counting even if its
// own conditions, of which those in missing do not hold, did: an earlier rule of
// its else chain, or one that holds with another value. One condition of each
// has to fail; it is the one that looks at what the missing ones look at.
func (q *Inquiry) inTheWay(g *whyGroup, all []reading, i int, v value.Value, missing []Fact) []Fact {
	if g.kind >= partialSet {
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

// nearestFact is the fact of a list that has the most places in common with others.
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

// branch tells a reading, with the rules that its conditions ask.
func (q *Inquiry) branch(r *reading, depth int) Branch {
	b := Branch{Rule: r.clause.of.name, Line: r.clause.line, Value: r.value}
	for i, how := range r.out {
		if how == held && r.clause.conds[i].End == -1 && len(r.out) > 1 && r.clause.plainHead() {
			continue // the text of a reason says nothing of why
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

// head is the head of a rule whose value is not the one that is wanted.
func (q *Inquiry) head(r *reading) Fact {
	q.restore(r)
	f := Fact{Rule: r.clause.of.name, Line: r.clause.line, Source: r.clause.head}
	for _, c := range r.clause.conds {
		if c.End == -1 {
			f.Seen = q.seen(c)
		}
	}
	return f
}

// plainHead tells that what the head gives does not decide: an element of a set,
// or a member of an object.
func (cl *whyClause) plainHead() bool {
	return cl.of.kind >= partialSet
}

// addFacts appends facts that are not there yet.
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

// facts is one condition of a reading. A condition that asks another rule is
// told by the conditions of that rule: one that holds has them as its reasons,
// in the place of one that does not stand those that have to change.
// reached is all that was looked at: what is asked before what asks.
func (q *Inquiry) facts(r *reading, i, depth int) (facts, reached []Fact) {
	c := r.clause.conds[i]
	q.restore(r)
	q.m.work(16)
	holds := r.out[i] == held
	own := Fact{
		Rule: r.clause.of.name, Line: c.Line, Source: c.Source,
		Holds: holds, Unreached: r.out[i] == unreached, Seen: q.seen(c),
	}
	if depth == 0 || q.stopped() || own.Unreached {
		return []Fact{own}, []Fact{own}
	}
	var inner behind
	for _, u := range c.uses {
		inner.take(q.through(r, c, u, holds, depth-1))
		if holds && inner.facts != nil {
			break // one reason is enough for what is as it has to be
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

// behind is what was found behind a condition: the shortest answer, and what
// was looked at for it.
type behind struct{ facts, reached []Fact }

func (b *behind) take(o behind) {
	if len(o.facts) > 0 && (b.facts == nil || len(o.facts) < len(b.facts)) {
		*b = o
	}
}

// something stands for a value that is not known. It is no author's.
var something = value.String("\x00something")

// through looks behind a condition into a rule that it asks: what would have to
// be different there for the condition to come out the other way? It tries what
// the rule could give instead, and takes the shortest answer.
func (q *Inquiry) through(r *reading, c *whyCond, u use, holds bool, depth int) (best behind) {
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
	if g.kind >= partialObject || g == q.gone {
		return best
	}
	turns := func(v value.Value) bool {
		q.restore(r)
		return q.suppose(g, args, v, c.probe) != holds
	}
	if g.kind == partialSet {
		return q.throughSet(r, c, g, holds, depth, turns)
	}
	all := slices.Clone(q.readings(g, args, paths))
	if turns(q.instead(g, args, all)) {
		var found behind
		for i := range all {
			if all[i].holds() {
				b := q.branch(&all[i], depth)
				found.facts, found.reached = addFacts(found.facts, b.Held), addFacts(found.reached, b.Reached)
			}
		}
		// Another rule may hold just because these do not.
		if then := q.follows(all, found.facts, depth); !then.Defined() || turns(then) {
			best.take(found)
		}
	}
	for i := range all {
		other := &all[i]
		v := other.value
		if !v.Defined() {
			v = something // what it would be hangs on what is missing; it would be there
		}
		if other.holds() || best.facts != nil && other.n >= len(best.facts) || !turns(v) {
			continue
		}
		b := q.branch(other, depth)
		best.take(behind{addFacts(q.inTheWay(g, all, i, other.value, b.Missing), b.Missing), b.Reached})
	}
	return best
}

// follows is the value of a rule that comes to hold when facts are turned: one
// that misses nothing else.
func (q *Inquiry) follows(all []reading, facts []Fact, depth int) value.Value {
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

// instead is the value that rules would have if those that hold did not: that
// of an else branch behind them, or the default.
func (q *Inquiry) instead(g *whyGroup, args []value.Value, all []reading) value.Value {
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
	if g.dflt == nil {
		return value.Value{}
	}
	for i, p := range g.params {
		q.m.slots[p] = args[i]
	}
	return g.dflt(q.m)
}

// throughSet is through for a partial set: the rule that put the element there,
// or the one that would.
func (q *Inquiry) throughSet(r *reading, c *whyCond, g *whyGroup, holds bool, depth int, turns func(value.Value) bool) (best behind) {
	present := q.why.rules[g.name].value(q.m)
	alone := func(clause *whyClause) func(m *machine) bool {
		// The element that matters: with it alone the condition is as it is (a
		// rule that holds), or as it would be (one that does not).
		return func(m *machine) bool {
			v := clause.value(m)
			q.restore(r)
			with := append(slices.Clone(present.Elems()), v)
			if present.Has(v) {
				with = []value.Value{v}
			}
			return q.suppose(g, nil, value.SetOf(with), c.probe) == (holds == present.Has(v))
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
				best.take(behind{b.Held, b.Reached})
			case !x.holds() && !gone:
				b := q.branch(&x, depth)
				best.take(behind{b.Missing, b.Reached})
			}
		}
	}
	return best
}

// suppose asks a condition as if a rule had another value.
func (q *Inquiry) suppose(g *whyGroup, args []value.Value, v value.Value, probe step) bool {
	m := q.m
	if m.err != nil || m.work(8+len(m.known)) {
		return false
	}
	known, done := slices.Clone(m.known), slices.Clone(m.done)
	for i := range m.calls {
		m.calls[i].reset()
	}
	if g.kind == function {
		m.calls[g.id].put(args, v)
	} else {
		m.known[g.id], m.done[g.id] = v, true
	}
	ok := probe(m)
	copy(m.known, known)
	copy(m.done, done)
	for i := range m.calls {
		m.calls[i].reset()
	}
	if m.err != nil && !isLimit(m.err) {
		m.err = nil // an error of a state that is not
		return false
	}
	return ok && m.err == nil
}
