package suite

import (
	"strings"
	"sync"

	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/topdown"

	"github.com/gatehouse-dev/gatehouse/internal/rego/lang"
)

// Built-ins run to their end whatever the deadline: topdown asks for
// cancellation between expressions, not within a built-in. So those whose work
// or result can outgrow their arguments run behind a bound on the arguments
// (without it, graph.reachable_paths ran 200 s, bits.lsh 42 s, json.marshal
// took 3 GB).
//
// topdown looks OPA's own names up in a process-wide table, and a query's own
// functions only for other names. So that neither the process-wide table nor
// the linter, which runs on the same topdown, is touched, the *compiled* rules
// of each control are pointed at functions of other names: `split` becomes
// `gatehouse.split`, in calls and in `with` alike. The control's text, its
// types and the compiler's messages keep the true names.

// boundedPrefix makes the names of the bounded built-ins.
const boundedPrefix = "gatehouse."

// bound judges the arguments: it returns the cost in bytes of the call, or a
// negative number when the call is refused.
type bound func(b *allowance, args []*ast.Term) int64

// refused is the cost of a call that no budget covers.
const refused int64 = -1

// boundedBuiltins is the table of topdown for the bounded names.
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

// guard puts a bound before a built-in and charges the budget for the call.
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

// pointAtBounded renames the bounded built-ins in compiled modules.
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

// pointExpr renames the operator of a call and what its `with`s name.
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
