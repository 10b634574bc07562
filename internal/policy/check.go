package policy

import (
	"context"
	"crypto/sha256"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"

	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/fault"
	"github.com/gatehouse-dev/gatehouse/internal/policy/actions"
	"github.com/gatehouse-dev/gatehouse/internal/rego"
	"github.com/gatehouse-dev/gatehouse/internal/rego/lang"
	"github.com/gatehouse-dev/gatehouse/internal/rego/suite"
	"github.com/gatehouse-dev/gatehouse/internal/rego/value"
	"github.com/gatehouse-dev/gatehouse/internal/resource"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
	"github.com/gatehouse-dev/gatehouse/internal/worker"
)

// Validate compiles and lints a source. If it does not compile, the answer contains the errors;
// this is not a fault. The source may import the libraries of the scope's environment, or of
// sandbox if the scope has none.
func (s *Service) Validate(ctx context.Context, sc scope.Scope, source string) (Validation, error) {
	libs, err := s.Libraries(ctx, sc, sc.EnvOr(scope.Sandbox))
	if err != nil {
		return Validation{}, err
	}
	v, err := s.Evaluator.Validate(ctx, sc.Tenant, source, libs...)
	if err != nil {
		return Validation{}, err
	}
	if !v.Valid {
		return Validation{Errors: append([]lang.Issue{}, v.Errors...)}, nil
	}
	return Validation{Valid: true, Message: "Policy is valid", Warnings: append([]lang.Issue{}, v.Warnings...)}, nil
}

// Test runs cases against a control: those sent, or the stored ones when cases is nil.
// Unless a case sets its own data, the control reads the same data as decisions of its
// environment. Fault: Forbidden if the license does not allow tests.
func (s *Service) Test(ctx context.Context, sc scope.Scope, id int64, cases []TestCase) (TestReport, error) {
	if err := s.MayTest.Check(ctx, sc); err != nil {
		return TestReport{}, err
	}
	return s.Try(ctx, sc, id, cases)
}

// Try is Test without the license check, for operations that run tests as one of their steps.
func (s *Service) Try(ctx context.Context, sc scope.Scope, id int64, cases []TestCase) (TestReport, error) {
	p, err := s.stored(ctx, sc, id)
	if err != nil {
		return TestReport{}, err
	}
	if cases == nil {
		cases = p.TestCases
	}
	if cases, err = fillCases(p.TestCases, cases); err != nil {
		return TestReport{}, err
	}
	report, err := s.run(ctx, sc, p, cases)
	report.Results = shownResults(sc, cases, report.Results)
	return report, err
}

// Gate returns a Forbidden fault if the license does not allow an operation. A nil Gate allows
// everything.
type Gate func(ctx context.Context, sc scope.Scope) error

// Check calls the gate. A nil gate returns nil.
func (g Gate) Check(ctx context.Context, sc scope.Scope) error {
	if g == nil {
		return nil
	}
	return g(ctx, sc)
}

func (s *Service) run(ctx context.Context, sc scope.Scope, p Policy, cases []TestCase) (TestReport, error) {
	if p.Kind == KindLibrary {
		return TestReport{}, fault.New(fault.Conflict, "is_library", "a library decides nothing: test the controls that use it")
	}
	if len(cases) == 0 {
		return summarise([]suite.TestResult{}), nil
	}
	asked := make([]suite.TestCase, len(cases))
	for i, c := range cases {
		t, err := c.rego()
		if err != nil {
			return TestReport{}, fault.Invalidf(fmt.Sprintf("/test_cases/%d", i), "the case cannot be read: %v", err)
		}
		asked[i] = t
	}
	libs, err := s.Libraries(ctx, sc, p.Environment)
	if err != nil {
		return TestReport{}, err
	}
	results, err := s.RunCases(ctx, sc, p.Environment, worker.TestRequest{Name: p.Name, Source: p.RegoCode, Libraries: libs, Cases: asked})
	if err != nil {
		return TestReport{}, err
	}
	return summarise(results), nil
}

// RunCases runs cases in the worker with the data of an environment. For a caller without
// resources:read, the data has no attributes of resources, because a control can reveal what it
// reads. Faults: those of worker.Pool.Test.
func (s *Service) RunCases(ctx context.Context, sc scope.Scope, env scope.Env, r worker.TestRequest) ([]suite.TestResult, error) {
	r.Data = func(ctx context.Context) (rego.DataSource, error) {
		data, err := s.Data(ctx, sc.Tenant, env)
		if err == nil && sc.Require("resources:read") != nil {
			data = rego.WithoutAttributes(data)
		}
		return data, err
	}
	return s.Evaluator.Test(ctx, sc.Tenant, r)
}

// rego converts the case for the evaluator.
func (c TestCase) rego() (suite.TestCase, error) {
	in, err := value.FromAny(c.Input)
	t := suite.TestCase{Name: c.Name, Input: in, Expected: c.Expected}
	if data := c.Data.Members(); err == nil && len(data) > 0 {
		t.Data, err = value.FromAny(data)
	}
	return t, err
}

// Members returns the set members, by their names in JSON.
func (d *TestData) Members() map[string]any {
	out := map[string]any{}
	if d != nil && d.Resources != nil {
		out["resources"] = d.Resources
	}
	if d != nil && d.PIP != nil {
		out["pip"] = d.PIP
	}
	return out
}

// Compiler checks in a separate process that controls and libraries compile. It runs one
// compilation of a tenant at a time, because the worker pool answers 429 when there are too many.
// It caches which sources compiled.
type Compiler struct {
	// Evaluator runs the checks.
	Evaluator Evaluator

	compilations nameLocks
	compiled     compiledCache
}

// checkCompiles calls checkCompilesWith with the libraries of p's environment.
func (s *Service) checkCompiles(ctx context.Context, sc scope.Scope, p Policy) error {
	libs, err := s.Libraries(ctx, sc, p.Environment)
	if err != nil {
		return err
	}
	return s.checkCompilesWith(ctx, sc, p, libs)
}

// checkCompilesWith returns the fault Invalid "invalid_policy" if a policy does not compile with
// libs, or does not fit its kind.
func (c *Compiler) checkCompilesWith(ctx context.Context, sc scope.Scope, p Policy, libs []lang.Library) error {
	if issues := lang.Misplaced(p.RegoCode, p.Kind == KindLibrary); issues != nil {
		return uncompiled(issues)
	}
	digest := digestOf(p.RegoCode, libs)
	if c.compiled.has(digest) {
		return nil
	}
	leave, err := c.compilations.lock(ctx, string(sc.Tenant))
	if err != nil {
		return err
	}
	defer leave()
	if c.compiled.has(digest) {
		return nil
	}
	v, err := c.Evaluator.Check(ctx, sc.Tenant, p.RegoCode, libs...)
	if err != nil {
		return err
	}
	if !v.Valid {
		return uncompiled(v.Errors)
	}
	c.compiled.add(digest)
	return nil
}

// digestOf identifies a source together with the libraries that it could import.
func digestOf(source string, libs []lang.Library) [sha256.Size]byte {
	h := sha256.New()
	fmt.Fprintf(h, "%d %s", len(source), source)
	if strings.Contains(source, lang.LibraryRoot) {
		for _, l := range slices.SortedFunc(slices.Values(libs), func(a, b lang.Library) int { return strings.Compare(a.Source, b.Source) }) {
			fmt.Fprintf(h, "%d %s", len(l.Source), l.Source)
		}
	}
	return [sha256.Size]byte(h.Sum(nil))
}

func uncompiled(issues []lang.Issue) error {
	f := fault.New(fault.Invalid, "invalid_policy", "the control does not compile").With("errors", issues)
	for _, is := range issues {
		f.Details = append(f.Details, fault.Detail{Pointer: "/rego_code", Message: is.Message, Line: is.Line, Column: is.Column})
	}
	return f
}

// Links checks the references of policies to resources, bouncers and destinations, and moves them
// to production.
type Links struct {
	Resources *resource.Service
	// BouncerEnv returns the environment of a bouncer. Fault: NotFound.
	BouncerEnv func(ctx context.Context, tx *db.Tx, id int64) (scope.Env, error)
	// BouncerTwin returns the production bouncer of the same name; nil if there is none.
	BouncerTwin func(ctx context.Context, tx *db.Tx, id int64) (*int64, error)
	// DestinationExists reports whether env has the target of an action and whether the target
	// fits the action's type.
	DestinationExists func(ctx context.Context, tx *db.Tx, env scope.Env, a actions.Action) (bool, error)
}

// checkLinks checks the ids in next that differ from old: each must exist in the policy's
// own environment. An id of another environment or tenant gets the same answer as one that
// does not exist.
func (l *Links) checkLinks(ctx context.Context, tx *db.Tx, old, next Policy) error {
	var offences []fault.Detail
	absent := func(pointer, format string, args ...any) {
		offences = append(offences, fault.Detail{Pointer: pointer, Message: fmt.Sprintf(format, args...)})
	}
	for _, ref := range []struct {
		pointer, what string
		old, next     *int64
		env           func(context.Context, *db.Tx, int64) (scope.Env, error)
	}{
		{"/resource_id", "resource", old.ResourceID, next.ResourceID, resource.EnvironmentOf},
		{"/bouncer_id", "bouncer", old.BouncerID, next.BouncerID, l.BouncerEnv},
	} {
		if ref.next == nil || ref.old != nil && *ref.old == *ref.next && old.Environment == next.Environment {
			continue
		}
		env, err := ref.env(ctx, tx, *ref.next)
		if err != nil && !isNotFound(err) {
			return err
		}
		if err != nil || env != next.Environment {
			absent(ref.pointer, "no %s %d in %s", ref.what, *ref.next, next.Environment)
		}
	}
	list := next.Actions
	if old.Environment == next.Environment && reflect.DeepEqual(old.Actions, list) {
		list = nil // a destination that was deleted later must not block other changes
	}
	wrong, err := l.checkActions(ctx, tx, next.Environment, list)
	if err != nil {
		return err
	}
	offences = append(offences, wrong...)
	if len(offences) == 0 {
		return nil
	}
	return fault.CheckValues(offences[0].Message, offences)
}

// nameLocks lets one caller for each name run at a time, in this process.
type nameLocks struct {
	mu   sync.Mutex
	open map[string]*nameLock
}

type nameLock struct {
	token   chan struct{}
	waiting int
}

// lock waits until no other caller with the name runs. The caller must call leave at its end.
// Fault: that of a cancelled context.
func (t *nameLocks) lock(ctx context.Context, name string) (leave func(), err error) {
	t.mu.Lock()
	if t.open == nil {
		t.open = map[string]*nameLock{}
	}
	mine := t.open[name]
	if mine == nil {
		mine = &nameLock{token: make(chan struct{}, 1)}
		t.open[name] = mine
	}
	mine.waiting++
	t.mu.Unlock()

	done := func() {
		t.mu.Lock()
		if mine.waiting--; mine.waiting == 0 {
			delete(t.open, name)
		}
		t.mu.Unlock()
	}
	select {
	case mine.token <- struct{}{}:
		return func() { <-mine.token; done() }, nil
	case <-ctx.Done():
		done()
		return nil, fault.Cancelled(ctx.Err())
	}
}

// compiledCache holds the hashes of sources that compiled.
type compiledCache struct {
	mu   sync.Mutex
	seen map[[sha256.Size]byte]struct{}
}

// maxCompiled is the largest number of hashes in the cache, about 100 KB. Beyond it, the cache is
// cleared.
const maxCompiled = 2048

func (k *compiledCache) has(d [sha256.Size]byte) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	_, ok := k.seen[d]
	return ok
}

func (k *compiledCache) add(d [sha256.Size]byte) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.seen == nil || len(k.seen) >= maxCompiled {
		k.seen = map[[sha256.Size]byte]struct{}{}
	}
	k.seen[d] = struct{}{}
}
