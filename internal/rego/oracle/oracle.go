// Package oracle evaluates a control with topdown, OPA's own evaluator. Tests compare the results of
// the native evaluator with it. No decision is made with it, and no package of the program imports
// it.
package oracle

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/storage"
	"github.com/open-policy-agent/opa/v1/topdown"

	"github.com/gatehouse-dev/gatehouse/internal/rego/value"
)

// DataSource returns the documents under data by path.
type DataSource interface {
	Data(path []string) value.Value
}

// Control is a compiled module with its libraries.
type Control struct {
	compiler *ast.Compiler
	pkg      ast.Ref
}

// Compile compiles a module and its libraries with OPA's compiler.
func Compile(source string, libraries ...string) (*Control, error) {
	mods := map[string]*ast.Module{}
	c := &Control{compiler: ast.NewCompiler()}
	for i, text := range append([]string{source}, libraries...) {
		mod, err := ast.ParseModuleWithOpts(fmt.Sprintf("%d.rego", i), text, ast.ParserOptions{RegoVersion: ast.RegoV1})
		if err != nil {
			return nil, fmt.Errorf("parse: %w", err)
		}
		mods[fmt.Sprintf("%d.rego", i)] = mod
		if i == 0 {
			c.pkg = mod.Package.Path
		}
	}
	if c.compiler.Compile(mods); c.compiler.Failed() {
		return nil, c.compiler.Errors
	}
	return c, nil
}

// Rule returns the value of a rule, undefined if the rule does not hold. An error of a built-in
// fails the evaluation, as in decisions.
func (c *Control) Rule(ctx context.Context, name string, input value.Value, data DataSource, now time.Time) (v value.Value, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("topdown failed: %v", p)
		}
	}()
	answer := ast.VarTerm("answer")
	body, err := c.compiler.QueryCompiler().Compile(ast.NewBody(ast.Equality.Expr(answer, ast.NewTerm(c.pkg.Append(ast.StringTerm(name))))))
	if err != nil {
		return value.Value{}, err
	}
	q := topdown.NewQuery(body).WithCompiler(c.compiler).WithStore(dataStore{source: data}).WithTransaction(noTransaction{}).
		WithTime(now).WithStrictBuiltinErrors(true)
	if input.Defined() {
		q = q.WithInput(input.Term())
	}
	err = q.Iter(ctx, func(qr topdown.QueryResult) (err error) {
		v, err = value.FromAST(qr[ast.Var("answer")].Value)
		return err
	})
	return v, err
}

// dataStore is a read-only store of OPA on a DataSource.
type dataStore struct {
	storage.PolicyNotSupported
	storage.TriggersNotSupported
	storage.WritesNotSupported
	source DataSource
}

// noTransaction is a transaction on an immutable snapshot.
type noTransaction struct{}

// ID is always 0.
func (noTransaction) ID() uint64 { return 0 }

// NewTransaction does nothing, because the snapshot does not change.
func (dataStore) NewTransaction(context.Context, ...storage.TransactionParams) (storage.Transaction, error) {
	return noTransaction{}, nil
}

// Read returns the value at path.
func (d dataStore) Read(_ context.Context, _ storage.Transaction, path storage.Path) (any, error) {
	if d.source == nil {
		return nil, notFound(path)
	}
	v := d.source.Data(path)
	if !v.Defined() {
		return nil, notFound(path)
	}
	return v.AST(), nil
}

func notFound(path storage.Path) error {
	return &storage.Error{Code: storage.NotFoundErr, Message: path.String()}
}

// Commit does nothing.
func (dataStore) Commit(context.Context, storage.Transaction) error { return nil }

// Abort does nothing.
func (dataStore) Abort(context.Context, storage.Transaction) {}

// Truncate always fails.
func (dataStore) Truncate(context.Context, storage.Transaction, storage.TransactionParams, storage.Iterator) error {
	return errors.New("the data of a snapshot cannot be replaced")
}
