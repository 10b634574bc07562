package native

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/storage"
	"github.com/open-policy-agent/opa/v1/storage/inmem"
	"github.com/open-policy-agent/opa/v1/topdown"

	"github.com/gatehouse-dev/gatehouse/internal/rego/eval"
	"github.com/gatehouse-dev/gatehouse/internal/rego/value"
)

var testNow = time.Date(2026, 3, 4, 10, 11, 12, 13, time.UTC) // a Wednesday

// tree is a DataSource over one document.
type tree struct{ doc value.Value }

func (s tree) Data(path []string) value.Value { return s.doc.At(path...) }

// subject is a module, ready to run in both evaluators.
type subject struct {
	compiler *ast.Compiler
	mod      *ast.Module
	mods     map[string]*ast.Module // mod and its libraries, as parsed
	prog     *Program
	err      error // from Compile
	names    []string
	strict   bool // errors of built-ins stop an evaluation, as in decisions
}

func load(src string) (*subject, error) {
	mod, err := ast.ParseModuleWithOpts("control.rego", src, ast.ParserOptions{RegoVersion: ast.RegoV1})
	if err != nil {
		return nil, err
	}
	return loadModules(mod, map[string]*ast.Module{"control.rego": mod})
}

func loadModules(own *ast.Module, mods map[string]*ast.Module) (*subject, error) {
	// OPA's index of comprehensions runs a body with a variable of the outer query unbound. It may
	// meet errors that the body itself would not.
	c := ast.NewCompiler().WithSkipStages(ast.StageBuildComprehensionIndices)
	c.Compile(mods)
	if c.Failed() {
		return nil, c.Errors
	}
	s := &subject{compiler: c, mod: own, mods: mods}
	s.prog, s.err = Compile(c, own.Package.Path)
	seen := map[string]bool{}
	for _, mod := range c.Modules {
		for _, r := range mod.Rules {
			name := string(r.Head.Ref()[0].Value.(ast.Var))
			if mod.Package.Path.Equal(own.Package.Path) && !seen[name] && len(r.Head.Args) == 0 {
				s.names = append(s.names, name)
			}
			seen[name] = true
		}
	}
	slices.Sort(s.names)
	return s, nil
}

// topdown evaluates data.<package>.<name>. whole turns off what lets OPA skip parts: the index of
// rules, and stopping at the first solution.
func (s *subject) topdown(name string, input, data value.Value, whole bool) (v value.Value, met *seen, err error) {
	met = &seen{}
	defer func() {
		watched.Store(nil)
		if r := recover(); r != nil {
			err = &topdown.Error{Code: topdown.InternalErr, Message: fmt.Sprint(r)}
		}
	}()
	ctx := context.Background()
	doc, _ := data.Any().(map[string]any)
	store := inmem.NewFromObject(doc)
	txn := storage.NewTransactionOrDie(ctx, store)
	defer store.Abort(ctx, txn)
	x := ast.VarTerm("result")
	ref := append(s.mod.Package.Path.Copy(), ast.StringTerm(name))
	body, err := s.compiler.QueryCompiler().Compile(ast.NewBody(ast.Equality.Expr(ast.NewTerm(ref), x)))
	if err != nil {
		return value.Value{}, met, err
	}
	stop := topdown.NewCancel()
	defer time.AfterFunc(10*time.Second, stop.Cancel).Stop()
	q := topdown.NewQuery(body).WithCompiler(s.compiler).WithStore(store).WithTransaction(txn).WithTime(testNow).WithCancel(stop).
		WithStrictBuiltinErrors(s.strict).WithIndexing(!whole).WithEarlyExit(!whole)
	if whole {
		q = q.WithQueryTracer(met)
	}
	if input.Defined() {
		q = q.WithInput(input.Term())
	}
	watched.Store(met)
	rs, err := q.Run(ctx)
	if err != nil || len(rs) == 0 {
		return value.Value{}, met, err
	}
	for k, t := range rs[0] {
		if k.Equal(x.Value) || len(rs[0]) == 1 {
			v, err = value.FromAST(t.Value)
			return v, met, err
		}
	}
	return value.Value{}, met, fmt.Errorf("no binding in %v", rs[0])
}

// thorough evaluates every rule as a whole, as the native evaluator does, and records what topdown
// meets. A rule that fails in two ways stops at one of them; which one comes first may change when
// nothing is skipped.
func (s *subject) thorough(input, data value.Value) *seen {
	all := &seen{}
	for _, name := range s.names {
		_, met, err := s.topdown(name, input, data, true)
		all.add(met, err)
		_, _, err = s.topdown(name, input, data, false)
		all.add(&seen{}, err)
	}
	return all
}

// agree compares both evaluators on one rule. Native may differ in these ways:
//   - It stops at a limit, if what topdown met exceeds a documented one.
//   - It fails, if topdown fails too once nothing is skipped: topdown's index skips rules, and
//     topdown asks a rule with variables in its name for one member only.
//   - It finds a value before an error, or an error before a value, if a search ends early.
//     Native tries rules of one constant value in source order, topdown in the order of its
//     index. Native iterates over members in the order of their values, topdown over those of
//     a set or object literal with variables in the order of the variables. Topdown must then
//     have native's value once both use the same order (see ordered).
//   - It writes a number as JSON does, where OPA's to_number leaves +1 unchanged.
//   - It rounds numbers in exponent notation that need more than 64 digits.
func (s *subject) agree(t reporter, name string, input, data value.Value) (value.Value, error) {
	t.Helper()
	got, gotErr := s.prog.Rule(name, &eval.Env{Now: testNow, Strict: s.strict}, input, tree{data})
	want, met, wantErr := s.topdown(name, input, data, false)
	report := func(what string) {
		t.Errorf("%s: %s\nnative %s (%v) %v\ntopdown %s (%v) %v\nstrict %v\ninput %s\ndata %s\n%v", name, what,
			got.AppendJSON(nil), got.Kind(), gotErr, want.AppendJSON(nil), want.Kind(), wantErr, s.strict, input.AppendJSON(nil), data.AppendJSON(nil), s.mod)
	}
	te, _ := errors.AsType[*topdown.Error](wantErr)
	_, panicked := errors.AsType[*eval.PanicError](gotErr)
	switch {
	case met.malformed:
	case te != nil && (te.Code == topdown.InternalErr || te.Code == topdown.CancelErr):
		// A bug in OPA: walk can meet a key that its object does not find. Or it would take too
		// long.
	case panicked:
		report("panic")
	case errors.Is(gotErr, eval.ErrLimit):
		if !met.bound() && want.Size() < maxResult/2 && !s.thorough(input, data).bound() && !s.replaces() {
			report("a limit without reason")
		}
	case gotErr == nil && wantErr == nil:
		// Compare texts too: sprintf shows the spelling of a number. If rules have equal values in
		// two spellings, the index decides which comes first.
		if canon(got) == canon(want) || met.rounded {
			break
		}
		if value.Equal(got, want) && s.several() {
			break
		}
		// OPA's index treats x in {"a": x, "b": 1} as a list of constants, and skips the rule for
		// any x but 1.
		if plain, _, err := s.topdown(name, input, data, true); (err != nil || canon(got) != canon(plain)) && !s.ordered(t, name, input, data, got, nil) {
			report("another value")
		}
	case gotErr == nil:
		if !met.rounded && !s.ordered(t, name, input, data, got, nil) {
			report("no error")
		}
	case wantErr == nil:
		if e, ok := errors.AsType[*eval.Error](gotErr); !ok || !s.thorough(input, data).has(e.Code) && !s.replaces() && !s.ordered(t, name, input, data, got, e) {
			report("an error")
		}
	}
	return got, gotErr
}

// several reports whether rules of one name can give equal values in two spellings, or whether
// there is a function: OPA treats f(1) and f(1.0) as the same call.
func (s *subject) several() bool {
	for _, g := range s.prog.groups {
		if len(g.rules) > 1 && !g.sameValue || g.kind == Function {
			return true
		}
	}
	return false
}

// replaces reports whether a rule with variables in its name may be evaluated as a whole with other
// input or data.
func (s *subject) replaces() bool {
	with, partial := false, false
	ast.WalkExprs(s.mod, func(e *ast.Expr) bool {
		with = with || len(e.With) > 0
		return with
	})
	for _, r := range s.mod.Rules {
		partial = partial || r.Head.RuleKind() == ast.MultiValue || len(r.Head.Ref()) > 1
	}
	return with && partial
}

func canon(v value.Value) string {
	if !v.Defined() {
		return "undefined"
	}
	return v.AST().String()
}

// reporter is the part of testing.T and rapid.T that comparisons use.
type reporter interface {
	Helper()
	Errorf(format string, args ...any)
}
