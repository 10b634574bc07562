package suite

import (
	"strings"
	"sync"

	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/topdown"

	"github.com/gatehouse-dev/gatehouse/internal/rego/lang"
)

// A running built-in ignores the deadline: topdown checks for cancellation between expressions, not
// within a built-in. So there are bounds on the arguments of built-ins whose work or result can
// exceed the size of their arguments. Without these bounds, graph.reachable_paths ran 200 s,
// bits.lsh ran 42 s, and json.marshal took 3 GB.
//
// topdown looks up OPA's own names in a process-wide table, and uses the functions of a query only
// for other names. The linter runs on the same topdown, so that table must not change. Instead, the
// calls in the *compiled* rules of each control are renamed: `split` becomes `gatehouse.split`, in
// calls and in `with`. The control's source, its types and the compiler's messages keep the original
// names.

// boundedPrefix is the prefix of the names of bounded built-ins.
const boundedPrefix = "gatehouse."

// bound checks the arguments of a call. It returns the cost of the call in bytes, or a negative
// number to refuse the call.
type bound func(b *allowance, args []*ast.Term) int64

// refused is the cost of a call that is always refused.
const refused int64 = -1

// boundedBuiltins returns topdown's entries for the bounded built-ins, by name.
var boundedBuiltins = sync.OnceValue(func() map[string]*topdown.Builtin {
	out := map[string]*topdown.Builtin{}
	for name, limit := range bounds() {
		decl, run := ast.BuiltinMap[name], topdown.GetBuiltin(name)
		if decl == nil || run == nil {
			continue
		}
		cpy := *decl
		cpy.Name = boundedPrefix + name
		cpy.CanSkipBctx = false // the budget is in the context
		out[cpy.Name] = &topdown.Builtin{Decl: &cpy, Func: guard(run, limit, decl.Relation)}
	}
	return out
})

// guard returns a built-in that checks a bound and charges the allowance before each call.
func guard(run topdown.BuiltinFunc, limit bound, relation bool) topdown.BuiltinFunc {
	return func(bctx topdown.BuiltinContext, args []*ast.Term, iter func(*ast.Term) error) error {
		b, ok := bctx.Cancel.(*allowance)
		if !ok || relation {
			return run(bctx, args, iter)
		}
		if cost := limit(b, args); cost < 0 || !b.spend(cost) {
			b.Cancel()
			return topdown.Halt{Err: errAllowance}
		}
		return run(bctx, args, iter)
	}
}

// pointAtBounded replaces built-ins with their bounded versions in compiled modules.
func pointAtBounded(mods map[string]*ast.Module) {
	table := boundedBuiltins()
	for _, mod := range mods {
		for _, r := range mod.Rules {
			ast.NewGenericVisitor(func(x any) bool {
				if e, ok := x.(*ast.Expr); ok {
					pointExpr(table, e)
				}
				return false
			}).Walk(r)
		}
	}
}

// pointExpr replaces the operator of a call, and the built-ins in its `with`s.
func pointExpr(table map[string]*topdown.Builtin, e *ast.Expr) {
	if terms, ok := e.Terms.([]*ast.Term); ok && len(terms) > 0 {
		terms[0] = boundedTerm(table, terms[0])
	}
	for _, w := range e.With {
		w.Target = boundedTerm(table, w.Target)
		w.Value = boundedTerm(table, w.Value)
	}
}

func boundedTerm(table map[string]*topdown.Builtin, t *ast.Term) *ast.Term {
	ref, ok := t.Value.(ast.Ref)
	if !ok || len(ref) == 0 || ref.HasPrefix(ast.DefaultRootRef) || ref.HasPrefix(ast.InputRootRef) {
		return t
	}
	name := lang.BuiltinName(t)
	if name == "" {
		return t
	}
	if _, ok := table[boundedPrefix+name]; !ok {
		return t
	}
	parts := strings.Split(boundedPrefix+name, ".")
	to := make(ast.Ref, len(parts))
	to[0] = ast.VarTerm(parts[0])
	for i, p := range parts[1:] {
		to[i+1] = ast.StringTerm(p)
	}
	return &ast.Term{Value: to, Location: t.Location}
}
