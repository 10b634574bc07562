// Package native compiles checked Rego to Go closures and evaluates it within bounds. It is the
// only evaluator of decisions: it refuses what it cannot compile. Its tests compare it with
// topdown, OPA's own evaluator.
//
// It starts from the output of OPA's compiler: names are resolved, nested calls are flattened, and
// each expression follows those that bind its variables. So the compiler knows which occurrence of
// a variable binds it and which ones compare. Rego has no recursion, so each variable of a program
// has one fixed slot, and evaluation needs no stack frames.
package native

import (
	"maps"
	"runtime/debug"
	"slices"
	"strings"
	"sync"

	"github.com/open-policy-agent/opa/v1/ast"

	"github.com/gatehouse-dev/gatehouse/internal/rego/eval"
	"github.com/gatehouse-dev/gatehouse/internal/rego/value"
)

// ErrUnsupported says why a module cannot be compiled, and where.
type ErrUnsupported struct {
	What string
	// Location is nil if the reason concerns the whole module.
	Location *ast.Location
}

func (e *ErrUnsupported) Error() string { return "not supported: " + e.What }

// DataSource returns documents under data by path, such as ["resources", "42"]. The value is
// undefined if there is no such document.
type DataSource interface {
	Data(path []string) value.Value
}

// maxResult limits the size of the value of a rule that is returned.
const maxResult = 1 << 20

// Result holds the values of the rules that decide. A value is undefined if its rule is undefined
// or missing.
type Result struct{ Allow, Deny, Mask, Reason value.Value }

// Program is a compiled module. It is safe for concurrent use. A process may hold thousands of
// them, so a program keeps only what evaluations need. Programs that differ only in their constants
// share their code.
type Program struct {
	*code
	constants []value.Value
}

// code is a program without its constants.
type code struct {
	entries []entry // the values that callers can ask for, sorted by name
	// deciding holds the entries deny, mask, allow and reason; nil for those that the module does
	// not have.
	deciding struct{ deny, mask, allow, reason Term }
	groups   []*Group
	slots    int
	data     [][]string

	// texts are the strings among the constants of the first program that used this code.
	texts     map[string]string
	textsOnce sync.Once
	extra     any
	extraOnce sync.Once
}

// maxTexts limits the strings that a code keeps.
const maxTexts = 100

// packLikeSiblings stores the constants side by side. It reuses the strings of the first program
// that has the same code, because siblings mostly differ in few strings.
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

// PerCode returns the result of create. It calls create once for all programs that share the code,
// so the result must not depend on the constants of one program.
func (p *Program) PerCode(create func() any) any {
	p.extraOnce.Do(func() { p.extra = create() })
	return p.extra
}

func (p *Program) text(at int) string {
	s, _ := p.constants[at].Str()
	return s
}

type entry struct {
	name  string
	value Term
}

func (p *Program) entry(name string) Term {
	at, found := slices.BinarySearchFunc(p.entries, name, func(e entry, name string) int { return strings.Compare(e.name, name) })
	if !found {
		return nil
	}
	return p.entries[at].value
}

// Compile compiles the module of package pkg, such as data.example. compiler has already compiled
// it. The compiler's other modules are libraries; the parts of them that the module uses are
// compiled too. The error is an *ErrUnsupported that names what cannot be compiled.
func Compile(compiler *ast.Compiler, pkg ast.Ref) (p *Program, err error) {
	err = recoverUnsupported(func(c *Builder) error {
		c.load(compiler, pkg)
		c.module()
		p = c.program()
		if shape, ok := c.shape(); ok {
			p.code = shared.of(shape, p.code)
			p.packLikeSiblings()
		} else {
			p.constants = value.Pack(p.constants, nil)
		}
		c.dropSyntax()
		return nil
	})
	if err != nil {
		return nil, err
	}
	return p, nil
}

// dropSyntax drops the syntax trees. Compiled closures may refer to the builder, and there may be
// thousands of programs.
func (c *Builder) dropSyntax() {
	for _, g := range c.groups {
		g.src = nil
	}
	for _, p := range c.packages {
		p.root.dropSyntax()
		p.path = nil
	}
	c.pkg, c.functions, c.at, c.groups, c.rules, c.places = nil, nil, nil, nil, nil, nil
}

func (n *node) dropSyntax() {
	n.rules = nil
	for _, kid := range n.kids {
		kid.dropSyntax()
	}
}

// recoverUnsupported runs a compilation, and turns the panic of fail into its error.
func recoverUnsupported(fn func(c *Builder) error) (err error) {
	c := newBuilder()
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
	return fn(c)
}

func (c *Builder) load(compiler *ast.Compiler, pkg ast.Ref) {
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
		p.root.groupDynamic()
	}
	for _, name := range names {
		c.collectReplaced(compiler.Modules[name])
	}
}

func (c *Builder) program() *Program {
	p := c.prog
	p.groups = slices.Clone(c.groups)
	slices.SortFunc(p.entries, func(a, b entry) int { return strings.Compare(a.name, b.name) })
	p.entries = slices.Clip(p.entries)
	d := &p.deciding
	d.deny, d.mask, d.allow, d.reason = p.entry("deny"), p.entry("mask"), p.entry("allow"), p.entry("reason")
	return p
}

// Eval evaluates deny first, then mask, allow and reason. The error is eval.ErrLimit, an *eval.Error
// or an *eval.PanicError.
func (p *Program) Eval(env *eval.Env, input value.Value, data DataSource) (Result, error) {
	return p.EvalReason(env, input, data, func(r Result) bool {
		return !env.SkipReason && (env.DenyDecides == nil || !env.DenyDecides(r.Deny))
	})
}

// EvalReason is like Eval, but evaluates reason only if wanted returns true for the other values.
// The evaluation of reason is then cheap: the rules that it shares with the others already have
// their values.
func (p *Program) EvalReason(env *eval.Env, input value.Value, data DataSource, wanted func(r Result) bool) (r Result, err error) {
	err = p.Run(env, input, data, func(m *Machine) {
		if r.Deny = m.result(p.deciding.deny); env.DenyDecides == nil || m.Err != nil || !env.DenyDecides(r.Deny) {
			r.Mask = m.result(p.deciding.mask)
			r.Allow = m.result(p.deciding.allow)
		}
		if m.Err == nil && wanted(r) {
			r.Reason = m.result(p.deciding.reason)
		}
	})
	if err != nil {
		return Result{}, err
	}
	return r, nil
}

// Rule evaluates one rule of the program, by name.
func (p *Program) Rule(name string, env *eval.Env, input value.Value, data DataSource) (v value.Value, err error) {
	err = p.Run(env, input, data, func(m *Machine) { v = m.Rule(name) })
	if err != nil {
		return value.Value{}, err
	}
	return v, nil
}

// Run calls fn with a machine, and returns the error with which the evaluation ended. fn must not
// keep the machine. A machine whose run panicked is not reused.
func (p *Program) Run(env *eval.Env, input value.Value, data DataSource, fn func(m *Machine)) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = &eval.PanicError{Value: r, Stack: debug.Stack()}
		}
	}()
	m := p.newMachine(env, input, data)
	fn(m)
	err = m.Err
	m.release()
	return err
}
