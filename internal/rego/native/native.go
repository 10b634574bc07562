// Package native compiles Rego that was checked to Go closures, for the part
// of the language that controls are written in. OPA's own evaluator, topdown,
// is the fallback for the rest and the oracle that the results are held to.
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
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/open-policy-agent/opa/v1/ast"

	"github.com/gatehouse-dev/gatehouse/internal/rego/value"
)

// ErrUnsupported says that a module uses something that only topdown knows. It
// comes from Compile or, rarely, from an evaluation (a built-in's result that
// has no canonical form); the caller then asks topdown.
type ErrUnsupported struct{ What string }

func (e *ErrUnsupported) Error() string { return "not compiled: " + e.What }

// ErrLimit says that an evaluation ran out of steps, memory or time.
var ErrLimit = errors.New("evaluation limit reached")

// EvalError is an error that the control itself made, such as two values for
// one complete rule. Code is topdown's.
type EvalError struct {
	Code    string
	Message string
	Line    int
}

func (e *EvalError) Error() string { return fmt.Sprintf("%s: line %d: %s", e.Code, e.Line, e.Message) }

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
	// Done ends the evaluation when it is closed.
	Done <-chan struct{}
	// Steps bounds the work (10 million: some hundred milliseconds).
	Steps int
	// Bytes bounds what an evaluation allocates in all, roughly (32 MiB).
	Bytes int
	// Strict makes an error of a built-in an *ErrUnsupported, where it else is
	// undefined: topdown, in its strict mode, then says whether it counts.
	Strict bool
	// SkipReason leaves Result.Reason undefined, where no one reads it.
	SkipReason bool
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
type Program struct {
	rules   map[string]*group
	groups  []*group
	slots   int
	data    [][]string
	machine sync.Pool
}

// Compile compiles a module. mod is the module as parsed, compiler has compiled
// it (and no other module with the same package), pkg is its package, such as
// data.example. The compiler's other modules are libraries: what the module uses
// of them is compiled too. An *ErrUnsupported names what cannot be compiled.
func Compile(mod *ast.Module, compiler *ast.Compiler, pkg ast.Ref) (p *Program, err error) {
	compiled, err := compiledModule(mod, compiler, pkg)
	if err != nil {
		return nil, err
	}
	c := newBuilder(compiled, compiler, pkg)
	defer func() {
		if r := recover(); r != nil {
			u, ok := r.(*ErrUnsupported)
			if !ok {
				panic(r)
			}
			p, err = nil, u
		}
	}()
	c.module(compiled)
	c.prog.machine.New = func() any { return newMachine(c.prog) }
	return c.prog, nil
}

// newBuilder knows the rules of the compiler's other modules, the libraries.
func newBuilder(compiled *ast.Module, compiler *ast.Compiler, pkg ast.Ref) *builder {
	c := &builder{prog: &Program{rules: map[string]*group{}}, pkg: pkg, src: map[string][]*ast.Rule{}}
	for _, m := range compiler.Modules {
		if m != compiled {
			l := library{pkg: m.Package.Path, prefix: m.Package.Path.String() + "."}
			c.libs = append(c.libs, l)
			c.rules(m, l.prefix)
		}
	}
	return c
}

func compiledModule(mod *ast.Module, compiler *ast.Compiler, pkg ast.Ref) (*ast.Module, error) {
	var found *ast.Module
	for _, m := range compiler.Modules {
		if !m.Package.Path.Equal(pkg) {
			continue
		}
		if found != nil {
			return nil, &ErrUnsupported{"a package of several modules"}
		}
		found = m
	}
	if found == nil || mod != nil && !mod.Package.Path.Equal(pkg) {
		return nil, fmt.Errorf("package %v is not among the compiled modules", pkg)
	}
	return found, nil
}

// Eval evaluates the rules that decide: allow, deny, mask and reason. The error
// is ErrLimit, an *EvalError or an *ErrUnsupported.
func (p *Program) Eval(env *Env, input value.Value, data DataSource) (Result, error) {
	m := p.start(env, input, data)
	defer m.release()
	var r Result
	r.Allow = m.rule("allow")
	r.Deny = m.rule("deny")
	r.Mask = m.rule("mask")
	if !env.SkipReason {
		r.Reason = m.rule("reason")
	}
	if m.err != nil {
		return Result{}, m.err
	}
	return r, nil
}

// Rule evaluates one rule of the program by its name.
func (p *Program) Rule(name string, env *Env, input value.Value, data DataSource) (value.Value, error) {
	m := p.start(env, input, data)
	defer m.release()
	v := m.rule(name)
	if m.err != nil {
		return value.Value{}, m.err
	}
	return v, nil
}

// Rules are the names of the program's rules, sorted; neither functions nor the
// rules of libraries are among them.
func (p *Program) Rules() []string {
	var names []string
	for name, g := range p.rules {
		if g.kind != function && !strings.Contains(name, ".") {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}
