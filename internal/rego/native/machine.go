package native

import (
	"sync"

	"github.com/gatehouse-dev/gatehouse/internal/rego/builtin"
	"github.com/gatehouse-dev/gatehouse/internal/rego/eval"
	"github.com/gatehouse-dev/gatehouse/internal/rego/value"
)

// Step runs an expression and all that follow it, once for each solution. It returns true to stop,
// because there are enough solutions or because m.Err is set.
type Step func(m *Machine) bool

// Term returns the value of a term, or undefined.
type Term func(m *Machine) value.Value

// Machine is the state of one evaluation. The fields that each step touches come first, in as few
// lines of the processor's cache as possible.
type Machine struct {
	builtin.Memory

	// Slots are the variables.
	Slots []value.Value
	prog  *Program
	world
	pairs    []value.Pair
	data     DataSource
	outer    []world       // the worlds that surround the current one, outermost first
	spare    []caches      // of worlds that were left
	branches []*branchNode // objects under construction, innermost last

	// Attached is the state that package why keeps in the machine while it explores a rule.
	Attached any
}

// machines are idle machines, for the next evaluation of any program. Thousands of programs need
// only as many machines as there are concurrent evaluations.
var machines = sync.Pool{New: func() any { return new(Machine) }}

func (p *Program) newMachine(env *eval.Env, input value.Value, data DataSource) *Machine {
	m := machines.Get().(*Machine)
	m.Start(env)
	m.prog, m.input, m.data = p, input, data
	m.Slots = sized(m.Slots, p.slots)
	m.caches.resize(p)
	return m
}

// keepPairs is the largest capacity of the pairs that a machine keeps for its next use.
const keepPairs = 1024

func (m *Machine) release() {
	clear(m.Slots)
	m.caches.clear()
	m.world = world{caches: m.caches}
	if m.Err != nil || cap(m.pairs) > keepPairs {
		m.pairs = nil
	}
	if len(m.spare) > keepSpare {
		m.spare = nil
	}
	clear(m.outer[:cap(m.outer)])
	m.outer, m.branches = m.outer[:0], nil
	m.prog, m.data, m.Attached = nil, nil, nil
	m.Memory.Release()
	machines.Put(m)
}

// sized returns list with length n. Elements beyond those that were in use are zero.
func sized[T any](list []T, n int) []T {
	if cap(list) < n {
		return make([]T, n)
	}
	return list[:n]
}

// keepSpare limits the spare caches that a machine keeps for its next use.
const keepSpare = 4

// Rule returns the value of a rule, by name.
func (m *Machine) Rule(name string) value.Value {
	return m.result(m.prog.entry(name))
}

// result returns the value of an entry, limited to maxResult; undefined if entry is nil.
func (m *Machine) result(entry Term) (v value.Value) {
	if entry != nil && m.Err == nil {
		if v = entry(m); v.Size() > maxResult {
			m.Fail(eval.ErrLimit)
		}
	}
	return v
}

func (m *Machine) pushPair(k, v value.Value) bool {
	if m.Tick() || !m.Alloc(2*eval.ValueBytes) {
		return true
	}
	m.pairs = append(m.pairs, value.Pair{K: k, V: v})
	return false
}

// popObject returns the object of the pairs above base, and removes them. ok is false if two pairs
// conflict.
func (m *Machine) popObject(base int) (v value.Value, ok bool) {
	if m.Err != nil {
		m.pairs = m.pairs[:base]
		return value.Value{}, true
	}
	out := make([]value.Pair, len(m.pairs)-base)
	copy(out, m.pairs[base:])
	clear(m.pairs[base:])
	m.pairs = m.pairs[:base]
	if !m.PairWork(out) {
		return value.Value{}, true
	}
	v, err := value.ObjectOf(out)
	if err != nil {
		return value.Value{}, false
	}
	return m.CheckSize(v), true
}

// callMemo holds a function's last results. Functions are pure, and topdown remembers their results
// too. Without it, nested calls could double the work at each level.
type callMemo struct {
	args []value.Value // n values for each call, where n is the number of parameters
	outs []value.Value
	next int
}

const memoEntries = 8

func (c *callMemo) reset() {
	clear(c.args)
	clear(c.outs)
	c.args, c.outs, c.next = c.args[:0], c.outs[:0], 0
}

func (c *callMemo) find(args []value.Value) (value.Value, bool) {
	n := len(args)
search:
	for e := range c.outs {
		for i := range args {
			if !value.Same(c.args[e*n+i], args[i]) {
				continue search
			}
		}
		return c.outs[e], true
	}
	return value.Value{}, false
}

func (c *callMemo) put(args []value.Value, out value.Value) {
	if len(c.outs) < memoEntries {
		c.args, c.outs = append(c.args, args...), append(c.outs, out)
		return
	}
	copy(c.args[c.next*len(args):], args)
	c.outs[c.next] = out
	c.next = (c.next + 1) % memoEntries
}
