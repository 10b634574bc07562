package native

import (
	"math"

	"github.com/gatehouse-dev/gatehouse/internal/rego/value"
)

// How a condition came out at the best leaf.
const (
	held uint8 = iota
	failed
	unreached
)

// seeker is the state of one exploration: a search through the solutions of a
// body for the one with the fewest conditions that fail.
type seeker struct {
	now    []uint8 // by condition
	passed []bool  // by segment
	n      int     // conditions that fail on this path
	left   int     // how often the search may still go on behind a failure
	accept func(m *machine) bool
	best   reading
}

// reading is what an exploration found.
type reading struct {
	clause *whyClause
	args   []value.Value // of a function
	paths  []string      // where those came from
	out    []uint8       // by condition
	n      int           // how many do not hold; 0: the rule holds
	slots  []value.Value // the variables there
	value  value.Value   // what the head gives there
	seen   bool          // a leaf was found at all
}

func (r *reading) holds() bool { return r.seen && r.n == 0 }

// maxTries bounds how many rounds of a loop are compared by how near they came.
const maxTries = 256

// explore looks for the leaf of a rule that is nearest to holding and that
// accept, if there is one, takes.
func (q *Inquiry) explore(cl *whyClause, args []value.Value, accept func(m *machine) bool) reading {
	m := q.m
	if m.work(32 + len(cl.segs) + (cl.hi - cl.lo)) { // an answer asks many rules: it has a bound as well
		return reading{clause: cl, args: args, n: math.MaxInt}
	}
	for i, p := range cl.of.params {
		m.slots[p] = args[i]
	}
	clear(m.slots[cl.lo:cl.hi])
	sk := &seeker{now: make([]uint8, len(cl.conds)), passed: make([]bool, len(cl.segs)), left: maxTries, accept: accept}
	sk.best = reading{clause: cl, args: args, n: math.MaxInt}
	outer := m.seek
	m.seek = sk
	if m.err == nil {
		cl.run(m)
	}
	m.seek = outer
	return sk.best
}

// chain makes the step of segment i and all that follow.
func (cl *whyClause) chain(i int) step {
	if i == len(cl.segs) {
		return cl.leaf
	}
	seg := cl.segs[i]
	next := cl.chain(i + 1)
	hit := seg.expr(func(m *machine) bool {
		m.seek.passed[i] = true
		return next(m)
	})
	return func(m *machine) bool {
		sk := m.seek
		if sk.now[seg.cond] != held {
			return next(m) // a part of this condition has failed
		}
		for _, at := range seg.needs {
			if !m.slots[at].Defined() {
				return sk.without(m, seg, unreached, next)
			}
		}
		before := sk.passed[i]
		sk.passed[i] = false
		stop := hit(m)
		passed := sk.passed[i]
		sk.passed[i] = before
		if m.err != nil && !isLimit(m.err) && sk.n > 0 && !passed {
			m.err = nil // the rule itself would not have come here
		} else if stop || passed || m.err != nil {
			return stop || m.err != nil
		}
		return sk.without(m, seg, failed, next)
	}
}

// without goes on with a condition failed.
func (sk *seeker) without(m *machine, seg whySeg, how uint8, next step) bool {
	if sk.n+1 >= sk.best.n || m.tick() {
		return m.err != nil
	}
	if sk.left--; sk.left < 0 && sk.best.seen {
		return false // long loops: from here on only a rule that holds is looked for
	}
	for _, at := range seg.binds {
		m.slots[at] = value.Value{}
	}
	sk.now[seg.cond] = how
	sk.n++
	stop := next(m)
	sk.n--
	sk.now[seg.cond] = held
	return stop
}

// leaf is the end of a body: is this the best path so far?
func (cl *whyClause) leaf(m *machine) bool {
	sk := m.seek
	if sk.n >= sk.best.n {
		return false
	}
	// The head's value before all else: accept may move the state.
	v := cl.value(m)
	if m.err != nil {
		return true
	}
	saved := append([]value.Value(nil), m.slots[cl.lo:cl.hi]...)
	if sk.accept != nil {
		m.seek = nil
		ok := v.Defined() && sk.accept(m)
		m.seek = sk
		copy(m.slots[cl.lo:cl.hi], saved)
		if !ok {
			return m.err != nil
		}
	}
	b := &sk.best
	b.out, b.n, b.slots, b.value, b.seen = append(b.out[:0], sk.now...), sk.n, saved, v, true
	return b.n == 0
}

// restore brings the machine back to where a reading was taken.
func (q *Inquiry) restore(r *reading) {
	copy(q.m.slots[r.clause.lo:r.clause.hi], r.slots)
	for i, p := range r.clause.of.params {
		q.m.slots[p] = r.args[i]
		q.origin[p] = ""
		if i < len(r.paths) {
			q.origin[p] = r.paths[i]
		}
	}
}

// readings explores the rules of a name. In a chain of else branches those
// after the one that holds are not asked.
func (q *Inquiry) readings(g *whyGroup, args []value.Value, paths []string) []reading {
	if g.kind != function {
		if rs, ok := q.state[g]; ok {
			return rs
		}
	}
	rs := []reading{}
	for _, chain := range g.chains {
		for _, cl := range chain {
			r := q.explore(cl, args, nil)
			r.paths = paths
			if !r.seen {
				break // out of steps, or an error
			}
			rs = append(rs, r)
			if r.holds() {
				break
			}
		}
	}
	if g.kind != function {
		q.state[g] = rs
	}
	return rs
}
