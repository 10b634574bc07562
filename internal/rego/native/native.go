// Package native compiles Rego that was checked to Go closures and evaluates
// it within bounds. It is the one evaluator of decisions: what it cannot compile
// is refused. OPA's own evaluator, topdown, is the oracle of its tests.
//
// It works from what OPA's compiler leaves of a module: names are resolved,
// nested calls are flattened, expressions stand in an order in which every
// variable is bound before it is read. So which occurrence of a variable binds
// and which compares is known beforehand; and as Rego has no recursion, each
// variable of a program has one fixed slot and evaluation needs no frames.
package native

import (
	"errors"
	"fmt"
	"maps"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/open-policy-agent/opa/v1/ast"

	"github.com/gatehouse-dev/gatehouse/internal/rego/value"
)

// ErrUnsupported says what keeps a module from being compiled, and where.
type ErrUnsupported struct {
	What string
	// Location is nil where it is about the module as a whole.
	Location *ast.Location
}

func (e *ErrUnsupported) Error() string { return "not supported: " + e.What }

// ErrLimit says that an evaluation ran out of steps, memory or time, or met a
// number outside of the range of numbers.
var ErrLimit = errors.New("evaluation limit reached")

// EvalError is an error that the control itself made, such as two values for
// one complete rule. Code and Message are topdown's.
type EvalError struct {
	Code    string
	Message string
	// File is the module's name as it was compiled, Line is in it; both are
	// empty where the error has no place.
	File string
	Line int
}

func (e *EvalError) Error() string { return fmt.Sprintf("%s: line %d: %s", e.Code, e.Line, e.Message) }

// PanicError is a fault of the evaluator that was recovered.
type PanicError struct {
	// Value is what was thrown, Stack where. Neither is for callers.
	Value any
	Stack []byte
}

// Error leaves out what was thrown: it may hold the caller's data.
func (*PanicError) Error() string { return "the evaluator failed" }

// DataSource gives the documents under data by path, such as resources, 42.
// Undefined where there is none.
type DataSource interface {
	Data(path []string) value.Value
}

// Env is what an evaluation takes from outside, and its bounds. Zero bounds
// stand for the defaults.
type Env struct {
	// Now is the time that time.now_ns gives.
	Now time.Time
	// Deadline and Clock bound the time: an evaluation looks at Clock every
	// some thousand steps. Without a Clock there is no deadline.
	Deadline time.Time
	Clock    func() time.Time
	// Done ends the evaluation when it is closed, as does Expired.
	Done, Expired <-chan struct{}
	// Pause is called every some thousand steps and may block; false ends the
	// evaluation. Nil is never asked.
	Pause func() bool
	// Steps bounds the work (10 million: some hundred milliseconds).
	Steps int
	// Bytes bounds what an evaluation allocates in all, roughly (32 MiB).
	Bytes int
	// Strict makes an error of a built-in one of the evaluation, where it else
	// is undefined.
	Strict bool
	// SkipReason leaves Result.Reason undefined, where no one reads it.
	SkipReason bool
	// Settles tells whether the value of deny decides. The other rules are then
	// left undefined. nil: it never does.
	Settles func(deny value.Value) bool
}

const (
	defaultSteps = 10_000_000
	defaultBytes = 32 << 20
	// maxValue bounds the size of one value (value.Value.Size) that an
	// evaluation makes, so that no comparison and no conversion runs away.
	maxValue = 16 << 20
	// maxResult bounds what an evaluation answers.
	maxResult = 1 << 20
)

// Result holds the values of the rules that decide. Undefined where a rule is
// undefined or is not there.
type Result struct{ Allow, Deny, Mask, Reason value.Value }

// Program is a compiled module. It is safe for concurrent use.
// There may be thousands: it holds no more than evaluations need. Programs that
// differ in their constants only have one code.
type Program struct {
	*code
	constants []value.Value
}

// code is a program without its constants.
type code struct {
	entries []entry // the values that can be asked for, by name
	// deciding are those of the entries deny, mask, allow and reason, nil where there is none.
	deciding struct{ deny, mask, allow, reason term }
	groups   []*group
	slots    int
	data     [][]string

	// texts are strings in the constants of the first program.
	texts     map[string]string
	textsOnce sync.Once
	extra     any
	extraOnce sync.Once
}

// maxTexts is how many strings a code keeps at most.
const maxTexts = 100

// packLikeSiblings lays the constants side by side. Strings that the first program of
// the code has too are taken from there: siblings mostly differ in few of them.
func (p *Program) packLikeSiblings() {
	first := false
	p.textsOnce.Do(func() {
		first = true
		p.constants = value.Pack(p.constants, nil)
		p.texts = map[string]string{}
		for _, c := range p.constants {
			c.Strings(func(s string) {
				if len(p.texts) < maxTexts {
					p.texts[s] = s
				}
			})
		}
	})
	if !first {
		p.constants = value.Pack(p.constants, p.texts)
	}
}

// PerCode is what create gives, made once for all programs that share the code. It must
// not depend on the constants of one of them.
func (p *Program) PerCode(create func() any) any {
	p.extraOnce.Do(func() { p.extra = create() })
	return p.extra
}

// text is the string that a constant is.
func (p *Program) text(at int) string {
	s, _ := p.constants[at].Str()
	return s
}

// entry is the value of all rules of one name.
type entry struct {
	name  string
	value term
}

// entry is the value that a name stands for; nil for none.
func (p *Program) entry(name string) term {
	at, found := slices.BinarySearchFunc(p.entries, name, func(e entry, name string) int { return strings.Compare(e.name, name) })
	if !found {
		return nil
	}
	return p.entries[at].value
}

// Compile compiles a module. compiler has compiled it, pkg is its package, such
// as data.example. The compiler's other modules are libraries: what the module
// uses of them is compiled too. An *ErrUnsupported names what cannot be compiled.
func Compile(compiler *ast.Compiler, pkg ast.Ref) (p *Program, err error) {
	err = guarded(nil, func(c *builder) {
		c.load(compiler, pkg)
		c.module()
		p = c.finish()
		if shape, ok := c.shape(); ok {
			p.code = shared.of(shape, p.code)
			p.packLikeSiblings()
		} else {
			p.constants = value.Pack(p.constants, nil)
		}
		c.forget()
	})
	if err != nil {
		return nil, err
	}
	return p, nil
}

// forget drops the syntax trees: what was compiled may hold on to the builder, and
// there may be thousands of programs.
func (c *builder) forget() {
	for _, g := range c.groups {
		g.src = nil
	}
	for _, p := range c.packages {
		p.root.forget()
		p.path = nil
	}
	c.pkg, c.functions, c.at, c.groups, c.rules, c.places = nil, nil, nil, nil, nil, nil
}

func (n *node) forget() {
	n.rules = nil
	for _, kid := range n.kids {
		kid.forget()
	}
}

// guarded runs a compilation, which ends in a panic where it meets something
// that is not supported.
func guarded(c *builder, fn func(c *builder)) (err error) {
	if c == nil {
		c = newBuilder()
	}
	defer func() {
		if r := recover(); r != nil {
			u, ok := r.(*ErrUnsupported)
			if !ok {
				panic(r)
			}
			if u.Location == nil {
				u.Location = c.at
			}
			err = u
		}
	}()
	fn(c)
	return nil
}

// load reads the rules of all modules.
func (c *builder) load(compiler *ast.Compiler, pkg ast.Ref) {
	c.pkg = pkg
	names := slices.Sorted(maps.Keys(compiler.Modules))
	own := false
	for _, name := range names {
		mod := compiler.Modules[name]
		mine := mod.Package.Path.Equal(pkg)
		own = own || mine
		c.addPackage(mod, mine)
	}
	if !own {
		fail("package %v is not among the compiled modules", pkg)
	}
	for _, p := range c.packages {
		p.root.gather()
	}
	for _, name := range names {
		c.collectTargets(compiler.Modules[name])
	}
}

// finish is the program.
func (c *builder) finish() *Program {
	p := c.prog
	p.groups = slices.Clone(c.groups)
	slices.SortFunc(p.entries, func(a, b entry) int { return strings.Compare(a.name, b.name) })
	p.entries = slices.Clip(p.entries)
	d := &p.deciding
	d.deny, d.mask, d.allow, d.reason = p.entry("deny"), p.entry("mask"), p.entry("allow"), p.entry("reason")
	return p
}

// Eval evaluates the rules that decide, deny first, then mask, allow and reason.
// The error is ErrLimit, an *EvalError or a *PanicError.
func (p *Program) Eval(env *Env, input value.Value, data DataSource) (Result, error) {
	return p.EvalReason(env, input, data, func(r Result) bool {
		return !env.SkipReason && (env.Settles == nil || !env.Settles(r.Deny))
	})
}

// EvalReason is Eval, but asks wanted with the other values whether reason is to be
// evaluated too. It then costs little: the rules that it shares with the others
// have their values.
func (p *Program) EvalReason(env *Env, input value.Value, data DataSource, wanted func(r Result) bool) (r Result, err error) {
	err = p.run(env, input, data, func(m *machine) {
		if r.Deny = m.result(p.deciding.deny); env.Settles == nil || m.err != nil || !env.Settles(r.Deny) {
			r.Mask = m.result(p.deciding.mask)
			r.Allow = m.result(p.deciding.allow)
		}
		if m.err == nil && wanted(r) {
			r.Reason = m.result(p.deciding.reason)
		}
	})
	if err != nil {
		return Result{}, err
	}
	return r, nil
}

// Rule evaluates one rule of the program by its name.
func (p *Program) Rule(name string, env *Env, input value.Value, data DataSource) (v value.Value, err error) {
	err = p.run(env, input, data, func(m *machine) { v = m.rule(name) })
	if err != nil {
		return value.Value{}, err
	}
	return v, nil
}

// run gives fn a machine. A machine whose run panicked is not used again.
func (p *Program) run(env *Env, input value.Value, data DataSource, fn func(m *machine)) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = &PanicError{Value: r, Stack: debug.Stack()}
		}
	}()
	m := p.start(env, input, data)
	fn(m)
	err = m.err
	m.release()
	return err
}

// Rules are the names of the program's rules, sorted; neither functions nor the
// rules of libraries are among them.
func (p *Program) Rules() []string {
	out := make([]string, len(p.entries))
	for i, e := range p.entries {
		out[i] = e.name
	}
	return out
}
