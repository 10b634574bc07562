package why

import (
	"math"
	"slices"

	"github.com/gatehouse-dev/gatehouse/internal/rego/native"
	"github.com/gatehouse-dev/gatehouse/internal/rego/value"
)

// The outcomes of a condition at the best leaf.
const (
	held uint8 = iota
	failed
	unreached
)

// exploration is the state of one exploration: a search through the solutions of a body for the one with
// the fewest failed conditions.
type exploration struct {
	now    []uint8 // by condition
	passed []bool  // by segment
	n      int     // failed conditions on this path
	left   int     // how often the search may still continue after a failure
	accept func(m *native.Machine) bool
	best   reading
}

// explorationOf returns the exploration that a machine is in.
func explorationOf(m *native.Machine) *exploration { return m.Attached.(*exploration) }

// reading is the result of an exploration.
type reading struct {
	clause *clause
	args   []value.Value // arguments of a function
	paths  []string      // where the arguments came from
	out    []uint8       // by condition
	n      int           // how many do not hold; 0: the rule holds
	slots  []value.Value // the variables at the leaf
	value  value.Value   // the value of the head at the leaf
	seen   bool          // whether any leaf was found
}

func (r *reading) holds() bool { return r.seen && r.n == 0 }

// maxTries limits how many failed iterations of a loop are compared.
const maxTries = 256

// explore looks for the leaf of a rule that is nearest to holding, and that accept accepts if it is
// not nil.
func (q *Inquiry) explore(cl *clause, args []value.Value, accept func(m *native.Machine) bool) reading {
	m := q.m
	if m.Work(32 + len(cl.segs) + (cl.hi - cl.lo)) { // an explanation may ask many rules, so its work is limited too
		return reading{clause: cl, args: args, n: math.MaxInt}
	}
	m.SetParams(cl.of.Group, args)
	clear(m.Slots[cl.lo:cl.hi])
	x := &exploration{now: make([]uint8, len(cl.conds)), passed: make([]bool, len(cl.segs)), left: maxTries, accept: accept}
	x.best = reading{clause: cl, args: args, n: math.MaxInt}
	outer := m.Attached
	m.Attached = x
	if m.Err == nil {
		cl.run(m)
	}
	m.Attached = outer
	return x.best
}

// chain makes the step of segment i and of all that follow.
func (cl *clause) chain(i int) native.Step {
	if i == len(cl.segs) {
		return cl.leaf
	}
	seg := cl.segs[i]
	next := cl.chain(i + 1)
	hit := seg.expr(func(m *native.Machine) bool {
		explorationOf(m).passed[i] = true
		return next(m)
	})
	return func(m *native.Machine) bool {
		x := explorationOf(m)
		if x.now[seg.cond] != held {
			return next(m) // a part of this condition has failed
		}
		for _, at := range seg.needs {
			if !m.Slots[at].Defined() {
				return x.continueFailed(m, seg, unreached, next)
			}
		}
		before := x.passed[i]
		x.passed[i] = false
		stop := hit(m)
		passed := x.passed[i]
		x.passed[i] = before
		if m.Err != nil && !isLimit(m.Err) && x.n > 0 && !passed {
			m.Err = nil // an evaluation would have stopped before this error
		} else if stop || passed || m.Err != nil {
			return stop || m.Err != nil
		}
		return x.continueFailed(m, seg, failed, next)
	}
}

// continueFailed continues with a failed condition.
func (x *exploration) continueFailed(m *native.Machine, seg segment, how uint8, next native.Step) bool {
	if x.n+1 >= x.best.n || m.Tick() {
		return m.Err != nil
	}
	if x.left--; x.left < 0 && x.best.seen {
		return false // a long loop: from now on, look only for a leaf without a failed condition
	}
	for _, at := range seg.binds {
		m.Slots[at] = value.Value{}
	}
	x.now[seg.cond] = how
	x.n++
	stop := next(m)
	x.n--
	x.now[seg.cond] = held
	return stop
}

// leaf is the end of a body. It records the path if it is the best so far.
func (cl *clause) leaf(m *native.Machine) bool {
	x := explorationOf(m)
	if x.n >= x.best.n {
		return false
	}
	// Compute the value of the head first: accept may change the state.
	v := cl.value(m)
	if m.Err != nil {
		return true
	}
	saved := slices.Clone(m.Slots[cl.lo:cl.hi])
	if x.accept != nil {
		m.Attached = nil
		ok := v.Defined() && x.accept(m)
		m.Attached = x
		copy(m.Slots[cl.lo:cl.hi], saved)
		if !ok {
			return m.Err != nil
		}
	}
	b := &x.best
	b.out, b.n, b.slots, b.value, b.seen = append(b.out[:0], x.now...), x.n, saved, v, true
	return b.n == 0
}

// restore sets the variables of the machine to those of a reading.
func (q *Inquiry) restore(r *reading) {
	copy(q.m.Slots[r.clause.lo:r.clause.hi], r.slots)
	q.m.SetParams(r.clause.of.Group, r.args)
	for i, p := range r.clause.of.Params() {
		q.origin[p] = ""
		if i < len(r.paths) {
			q.origin[p] = r.paths[i]
		}
	}
}

// readings explores the rules of a name. In a chain of else branches, it stops at the one that
// holds.
func (q *Inquiry) readings(g *group, args []value.Value, paths []string) []reading {
	if g.Kind() != native.Function {
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
	if g.Kind() != native.Function {
		q.state[g] = rs
	}
	return rs
}
