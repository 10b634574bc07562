package rego

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/metrics"
	"github.com/open-policy-agent/opa/v1/storage"
	"github.com/open-policy-agent/opa/v1/topdown"

	"github.com/gatehouse-dev/gatehouse/internal/rego/native"
	"github.com/gatehouse-dev/gatehouse/internal/rego/value"
)

// maxResultBytes bounds what a control may answer.
const maxResultBytes = 1 << 20

// interpreted is a control on OPA's own evaluator: a query for each of its
// rules, compiled once.
type interpreted struct {
	compiler *ast.Compiler
	queries  [ruleCount]ast.Body
}

// The rules, in the order in which they are asked: DENY settles the outcome,
// and the reason is asked only of the control that gives it.
const (
	ruleDeny = iota
	ruleMask
	ruleAllow
	ruleReason
	ruleCount
)

func (r ruleSet) defines(rule int) bool {
	switch rule {
	case ruleDeny:
		return r.deny
	case ruleMask:
		return r.mask
	case ruleAllow:
		return r.allow
	default:
		return r.reason
	}
}

var ruleNames = [ruleCount]string{ruleDeny: "deny", ruleMask: "mask", ruleAllow: "allow", ruleReason: "reason"}

// resultVar is the variable that the queries bind.
const resultVar = ast.Var("answer")

func interpret(compiler *ast.Compiler, pkg ast.Ref, has ruleSet) (*interpreted, error) {
	in := &interpreted{compiler: compiler}
	for i, name := range ruleNames {
		if !has.defines(i) {
			continue
		}
		ref := pkg.Append(ast.StringTerm(name))
		body := ast.NewBody(ast.Equality.Expr(ast.NewTerm(resultVar), ast.NewTerm(ref)))
		compiled, err := compiler.QueryCompiler().Compile(body)
		if err != nil {
			return nil, fmt.Errorf("prepare %s: %w", name, err)
		}
		in.queries[i] = compiled
	}
	return in, nil
}

// run is one input on its way through the controls: what topdown needs of it
// is made once, and only if a control runs on topdown.
type run struct {
	in   value.Value
	data DataSource
	lim  Limits
	term *ast.Term
	nat  *native.Env
}

func newRun(in value.Value, data DataSource, lim Limits) *run {
	return &run{in: in, data: data, lim: lim}
}

func (r *run) input() *ast.Term {
	if r.term == nil && r.in.Defined() {
		r.term = ast.NewTerm(r.in.AST())
	}
	return r.term
}

// session is one control's evaluation on topdown. Its caches are shared by the
// queries, so that what deny computed is there for allow.
type session struct {
	virtual topdown.VirtualCache
	store   storage.Store
	watch   topdown.QueryTracer // of an explanation; nil for a decision
}

// ask evaluates one rule. An undefined rule is the zero Value.
func (in *interpreted) ask(ctx context.Context, s *session, rule int, r *run, b *budget) (_ value.Value, err error) {
	defer func() {
		if p := recover(); p != nil { // a fault of the interpreter denies; it does not end the process
			err = fmt.Errorf("the evaluator failed: %v", p)
		}
	}()
	b.start()
	if s.virtual == nil {
		s.virtual, s.store = topdown.NewVirtualCache(), dataStore{source: r.data}
	}
	q := topdown.NewQuery(in.queries[rule]).
		WithCompiler(in.compiler).
		WithStore(s.store).
		WithTransaction(noTransaction{}).
		WithInput(r.input()).
		WithCancel(b).
		WithTime(r.lim.Now).
		WithMetrics(metrics.NoOp()).
		WithVirtualCache(s.virtual).
		WithBuiltins(boundedBuiltins()).
		WithStrictBuiltinErrors(true)
	if s.watch != nil { // rules that the index would leave out are to be seen, too
		q = q.WithQueryTracer(s.watch).WithIndexing(false).WithEarlyExit(false)
	}
	var answer *ast.Term
	err = q.Iter(ctx, func(qr topdown.QueryResult) error {
		answer = qr[resultVar]
		return nil
	})
	switch {
	case b.Cancelled():
		return value.Value{}, ErrLimit
	case err != nil:
		return value.Value{}, topdownError(err)
	case answer == nil:
		return value.Value{}, nil
	}
	if weigh(answer, maxResultBytes) > maxResultBytes {
		return value.Value{}, ErrLimit
	}
	return value.FromAST(answer.Value)
}

// topdownError drops the file name from an error: a control has none.
func topdownError(err error) error {
	var halt topdown.Halt
	if errors.As(err, &halt) && errors.Is(halt.Err, ErrLimit) || topdown.IsCancel(err) {
		return ErrLimit
	}
	var e *topdown.Error
	if errors.As(err, &e) {
		if e.Location == nil {
			return &atLine{message: e.Message}
		}
		if pkg, ok := strings.CutSuffix(e.Location.File, ".rego"); ok && strings.HasPrefix(pkg, LibraryRoot+".") {
			return &atLine{message: fmt.Sprintf("library %s: %s", pkg, e.Message), line: e.Location.Row}
		}
		return &atLine{message: e.Message, line: e.Location.Row}
	}
	return err
}

// atLine is an evaluator's error with its place.
type atLine struct {
	message string
	line    int
}

func (e *atLine) Error() string { return e.message }

func firstLine(s string) string {
	s, _, _ = strings.Cut(s, "\n")
	if len(s) > 300 {
		s = strings.ToValidUTF8(s[:300], "") + "..."
	}
	return s
}

// dataStore gives topdown a DataSource to read from. It cannot be written.
type dataStore struct {
	storage.PolicyNotSupported
	storage.TriggersNotSupported
	storage.WritesNotSupported
	source DataSource
}

// noTransaction is the transaction over an immutable snapshot.
type noTransaction struct{}

// ID is always 0.
func (noTransaction) ID() uint64 { return 0 }

// NewTransaction begins nothing: the snapshot does not change.
func (dataStore) NewTransaction(context.Context, ...storage.TransactionParams) (storage.Transaction, error) {
	return noTransaction{}, nil
}

// Read is the value at path.
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

// Commit ends nothing.
func (dataStore) Commit(context.Context, storage.Transaction) error { return nil }

// Abort ends nothing.
func (dataStore) Abort(context.Context, storage.Transaction) {}

// Truncate is refused.
func (dataStore) Truncate(context.Context, storage.Transaction, storage.TransactionParams, storage.Iterator) error {
	return errors.New("the data of a snapshot cannot be replaced")
}
