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

	"github.com/gatehouse-dev/gatehouse/internal/rego/value"
)

var testNow = time.Date(2026, 3, 4, 10, 11, 12, 13, time.UTC) // a Wednesday

// tree is a DataSource over one document.
type tree struct{ doc value.Value }

func (s tree) Data(path []string) value.Value { return s.doc.At(path...) }

// subject is a module ready to run in both evaluators.
type subject struct {
	compiler *ast.Compiler
	mod      *ast.Module
	prog     *Program
	err      error // of Compile
	names    []string
}

func load(src string) (*subject, error) {
	mod, err := ast.ParseModuleWithOpts("control.rego", src, ast.ParserOptions{RegoVersion: ast.RegoV1})
	if err != nil {
		return nil, err
	}
	return loadModules(mod, map[string]*ast.Module{"control.rego": mod})
}

func loadModules(own *ast.Module, mods map[string]*ast.Module) (*subject, error) {
	c := ast.NewCompiler()
	c.Compile(mods)
	if c.Failed() {
		return nil, c.Errors
	}
	s := &subject{compiler: c, mod: own}
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

// topdown evaluates data.<package>.<name>.
func (s *subject) topdown(name string, input, data value.Value) (v value.Value, err error) {
	defer func() {
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
		return value.Value{}, err
	}
	q := topdown.NewQuery(body).WithCompiler(s.compiler).WithStore(store).WithTransaction(txn).WithTime(testNow)
	if input.Defined() {
		q = q.WithInput(input.Term())
	}
	rs, err := q.Run(ctx)
	if err != nil || len(rs) == 0 {
		return value.Value{}, err
	}
	for k, t := range rs[0] {
		if k.Equal(x.Value) || len(rs[0]) == 1 {
			return value.FromAST(t.Value)
		}
	}
	return value.Value{}, fmt.Errorf("no binding in %v", rs[0])
}

// agree compares both evaluators on one rule. limited tells that native ended
// at a number outside of the range, for which topdown has an error or a value.
func (s *subject) agree(t reporter, name string, input, data value.Value) (limited bool) {
	t.Helper()
	want, wantErr := s.topdown(name, input, data)
	got, gotErr := s.prog.Rule(name, &Env{Now: testNow}, input, tree{data})
	var e *EvalError
	var te *topdown.Error
	if errors.As(wantErr, &te) && te.Code == topdown.InternalErr {
		// OPA's own bug: its comprehension index runs a body with a variable of
		// the outer query unbound; and its walk can meet a key that its object
		// does not find.
		return false
	}
	if errors.Is(gotErr, ErrLimit) {
		return true
	}
	if errors.As(gotErr, &e) && wantErr == nil && e.Code == topdown.ConflictErr {
		// topdown asks a rule with variables in its name for one member only, and
		// leaves a comprehension at the first solution that it needs.
		return false
	}
	if te != nil && e != nil && te.Code == e.Code {
		return false
	}
	if (gotErr != nil) != (wantErr != nil) {
		t.Errorf("%s: error %v, topdown %v\ninput %s\n%v", name, gotErr, wantErr, input.AppendJSON(nil), s.mod)
		return false
	}
	// Texts compare too: the form of a number is visible to sprintf.
	if !value.Equal(got, want) || canon(got) != canon(want) {
		t.Errorf("%s = %s (%v), topdown %s (%v)\ninput %s\ndata %s\n%v", name, got.AppendJSON(nil), got.Kind(), want.AppendJSON(nil), want.Kind(), input.AppendJSON(nil), data.AppendJSON(nil), s.mod)
	}
	return false
}

func canon(v value.Value) string {
	if !v.Defined() {
		return "undefined"
	}
	return v.AST().String()
}

// reporter is what testing.T and rapid.T have in common.
type reporter interface {
	Helper()
	Errorf(format string, args ...any)
}
