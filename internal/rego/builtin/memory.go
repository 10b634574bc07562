// Package builtin has the built-in functions of Rego for package value. The most common ones are
// implemented here, for operands of the usual types; for all others it calls OPA's. All of them
// count their work in the budget of the evaluation. A built-in that is not listed here cannot be
// called.
package builtin

import (
	"github.com/open-policy-agent/opa/v1/topdown"

	"github.com/gatehouse-dev/gatehouse/internal/rego/eval"
	"github.com/gatehouse-dev/gatehouse/internal/rego/value"
)

// Memory is the state of the built-ins of one evaluation: its budget, and the values that they keep.
// A machine embeds one.
type Memory struct {
	eval.Budget

	stack    []value.Value          // elements that comprehensions and built-ins have collected
	drawn    map[string]value.Value // results of rand.intn and uuid.rfc4122, by their arguments
	patterns map[string]*Pattern    // regular expressions compiled in this evaluation, by their text

	bctx *topdown.BuiltinContext // the context of OPA's built-ins; nil before the first call
}

// Start makes the memory ready for an evaluation.
func (m *Memory) Start(env *eval.Env) { m.Budget = eval.New(env) }

// Release drops everything that belongs to the evaluation, and keeps capacity for the next one.
func (m *Memory) Release() {
	if m.Err != nil || cap(m.stack) > keepStack {
		m.stack = nil
	}
	m.drawn, m.patterns, m.bctx, m.Budget = nil, nil, nil, eval.Budget{}
}

// keepStack is the largest capacity of a stack that is kept for the next evaluation.
const keepStack = 1024

// Now returns the time of the evaluation, in nanoseconds since 1970.
func (m *Memory) Now() int64 { return m.Env.Now.UnixNano() }

// Depth returns the number of elements on the stack.
func (m *Memory) Depth() int { return len(m.stack) }

// Push adds an element to the stack of collected elements; true means stop.
func (m *Memory) Push(v value.Value) bool {
	if m.Tick() || !m.Alloc(eval.ValueBytes) {
		return true
	}
	m.stack = append(m.stack, v)
	return false
}

// Pop returns a copy of the elements above base, and removes them from the stack.
func (m *Memory) Pop(base int) []value.Value {
	if m.Err != nil || len(m.stack) == base {
		m.stack = m.stack[:base]
		return nil
	}
	out := make([]value.Value, len(m.stack)-base)
	copy(out, m.stack[base:])
	clear(m.stack[base:]) // the machine is reused, so it must not keep values alive
	m.stack = m.stack[:base]
	return out
}

// PopSet returns the set of the elements above base, and removes them from the stack.
func (m *Memory) PopSet(base int) value.Value {
	out := m.Pop(base)
	if !m.SortWork(out) {
		return value.Value{}
	}
	return m.CheckSize(value.SetOf(out))
}
