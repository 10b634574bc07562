package native

import (
	"sync"

	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/topdown"

	"github.com/gatehouse-dev/gatehouse/internal/rego/value"
)

// step runs an expression and all that follow it, once for each solution. It
// answers true to stop: enough was found, or m.err is set.
type step func(m *machine) bool

// term gives the value of a term; undefined where it has none.
type term func(m *machine) value.Value

// machine is the state of one evaluation.
type machine struct {
	prog *Program
	env  *Env
	data DataSource
	err  error

	world
	outer []world // those that `with`s left
	spare []caches

	slots []value.Value // the variables

	stack []value.Value // what comprehensions gather
	pairs []value.Pair
	limbs []*limb // objects that are being put together

	fuel  int // steps until the next look at clock and Done
	steps int // steps that are left after those
	bytes int // bytes that may still be allocated

	seek *seeker // of a Why

	drawn    map[string]value.Value // by rand.intn and uuid.rfc4122
	patterns map[string]*pattern    // compiled by the evaluation

	bctx topdown.BuiltinContext
}

// fuelLoad is how many steps pass between two looks at the clock: some 50 us.
const fuelLoad = 2048

// machines are empty ones, for the next evaluation of any program: thousands of
// programs need no more machines than there are evaluations at once.
var machines = sync.Pool{New: func() any { return new(machine) }}

func (p *Program) start(env *Env, input value.Value, data DataSource) *machine {
	m := machines.Get().(*machine)
	m.prog, m.env, m.input, m.data = p, env, input, data
	m.slots = sized(m.slots, p.slots)
	m.caches.resize(p)
	m.steps, m.bytes = env.Steps, env.Bytes
	if m.steps == 0 {
		m.steps = defaultSteps
	}
	if m.bytes == 0 {
		m.bytes = defaultBytes
	}
	m.fuel = min(fuelLoad, m.steps)
	m.steps -= m.fuel
	return m
}

// keepStack is the room on the stacks that a machine keeps for its next use.
const keepStack = 1024

func (m *machine) release() {
	clear(m.slots)
	m.caches.clear()
	m.world = world{caches: m.caches}
	if m.err != nil || cap(m.stack) > keepStack || cap(m.pairs) > keepStack {
		m.stack, m.pairs = nil, nil
	}
	if len(m.spare) > keepSpare {
		m.spare = nil
	}
	clear(m.outer[:cap(m.outer)])
	m.outer, m.limbs, m.drawn, m.patterns = m.outer[:0], nil, nil, nil
	m.prog, m.env, m.data, m.err, m.seek, m.bctx = nil, nil, nil, nil, nil, topdown.BuiltinContext{}
	machines.Put(m)
}

// sized is list with n elements. What is beyond those that were in use is zero.
func sized[T any](list []T, n int) []T {
	if cap(list) < n {
		return make([]T, n)
	}
	return list[:n]
}

// keepSpare is how many contexts' caches a machine keeps for its next use.
const keepSpare = 4

// tick counts one step; true means stop.
func (m *machine) tick() bool {
	m.fuel--
	return m.fuel < 0 && m.refuel()
}

// work counts n steps at once.
func (m *machine) work(n int) bool {
	m.fuel -= n
	return m.fuel < 0 && m.refuel()
}

func (m *machine) refuel() bool {
	m.steps += m.fuel // what was used beyond the load
	if m.steps <= 0 {
		return m.fail(ErrLimit)
	}
	m.fuel = min(fuelLoad, m.steps)
	m.steps -= m.fuel
	return m.checkLimits()
}

// checkLimits asks for the time and the caller; true means stop.
func (m *machine) checkLimits() bool {
	select {
	case <-m.env.Done:
		return m.fail(ErrLimit)
	case <-m.env.Expired:
		return m.fail(ErrLimit)
	default:
	}
	if m.env.Pause != nil && !m.env.Pause() {
		return m.fail(ErrLimit)
	}
	if m.env.Clock != nil && !m.env.Deadline.IsZero() && !m.env.Clock().Before(m.env.Deadline) {
		return m.fail(ErrLimit)
	}
	return false
}

// alloc counts n bytes; false means that there are no more.
func (m *machine) alloc(n int) bool {
	if m.bytes -= n; m.bytes < 0 {
		m.fail(ErrLimit)
		return false
	}
	return true
}

// made passes on a value that the evaluation made, if it is not too big.
func (m *machine) made(v value.Value) value.Value {
	if v.Size() > maxValue {
		m.fail(ErrLimit)
		return value.Value{}
	}
	return v
}

// fail ends the evaluation. The first error stays.
func (m *machine) fail(err error) bool {
	if m.err == nil {
		m.err = err
	}
	return true
}

func (m *machine) conflict(message string, loc *ast.Location) bool {
	return m.fail(errorAt(topdown.ConflictErr, message, loc))
}

func errorAt(code, message string, loc *ast.Location) *EvalError {
	e := &EvalError{Code: code, Message: message}
	if loc != nil {
		e.File, e.Line = loc.File, loc.Row
	}
	return e
}

// equal compares, and counts the work where that is not one step.
func (m *machine) equal(a, b value.Value) bool {
	if a.Kind() >= value.StringKind && a.Kind() == b.Kind() {
		if n := min(a.Size(), b.Size()); n > 64 && m.work(int(n>>5)) {
			return false
		}
	}
	return value.Equal(a, b)
}

// rule is the value of a rule by name, bounded as a result.
func (m *machine) rule(name string) value.Value {
	return m.result(m.prog.entry(name))
}

// result is the value of a rule, bounded as a result; nil is no rule.
func (m *machine) result(entry term) value.Value {
	if entry == nil || m.err != nil {
		return value.Value{}
	}
	v := entry(m)
	if v.Size() > maxResult {
		m.fail(ErrLimit)
	}
	return v
}

// push puts an element on the stack of what is being gathered.
func (m *machine) push(v value.Value) bool {
	if m.tick() || !m.alloc(valueBytes) {
		return true
	}
	m.stack = append(m.stack, v)
	return false
}

const valueBytes = 24

// pop takes what was gathered since the stack was base high.
func (m *machine) pop(base int) []value.Value {
	if m.err != nil || len(m.stack) == base {
		m.stack = m.stack[:base]
		return nil
	}
	out := make([]value.Value, len(m.stack)-base)
	copy(out, m.stack[base:])
	clear(m.stack[base:]) // the machine is kept: let it hold nothing
	m.stack = m.stack[:base]
	return out
}

// popSet is pop as a set.
func (m *machine) popSet(base int) value.Value {
	out := m.pop(base)
	if !m.sortWork(out) {
		return value.Value{}
	}
	return m.made(value.SetOf(out))
}

// sortWork counts what sorting values costs beyond the step that each took already.
func (m *machine) sortWork(vs []value.Value) bool {
	n := len(vs) >> 2
	for i := range vs {
		if vs[i].Kind() >= value.StringKind {
			n += int(vs[i].Size() >> 5)
		}
	}
	return !m.work(n * log2(len(vs)))
}

func log2(n int) int {
	l := 1
	for ; n > 2; n >>= 1 {
		l++
	}
	return l
}

func (m *machine) pushPair(k, v value.Value) bool {
	if m.tick() || !m.alloc(2*valueBytes) {
		return true
	}
	m.pairs = append(m.pairs, value.Pair{K: k, V: v})
	return false
}

// popObject is the object of the pairs gathered since base; ok is false on a conflict.
func (m *machine) popObject(base int) (v value.Value, ok bool) {
	if m.err != nil {
		m.pairs = m.pairs[:base]
		return value.Value{}, true
	}
	out := make([]value.Pair, len(m.pairs)-base)
	copy(out, m.pairs[base:])
	clear(m.pairs[base:])
	m.pairs = m.pairs[:base]
	n := len(out) >> 2
	for i := range out {
		if out[i].V.Kind() >= value.ArrayKind {
			n += int(out[i].V.Size() >> 4)
		}
		if out[i].K.Kind() >= value.StringKind {
			n += int(out[i].K.Size()>>5) * log2(len(out))
		}
	}
	if m.work(n) {
		return value.Value{}, true
	}
	v, err := value.ObjectOf(out)
	if err != nil {
		return value.Value{}, false
	}
	return m.made(v), true
}

// callMemo holds a function's last results. Rego's functions are pure: topdown
// remembers their results too, and without it calls of calls could double.
type callMemo struct {
	args []value.Value // arity values an entry
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

func (m *machine) now() int64 { return m.env.Now.UnixNano() }
