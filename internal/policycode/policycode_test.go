package policycode

import (
	"encoding/json"
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/controlfile"
	"github.com/gatehouse-dev/gatehouse/internal/errtest"
	"github.com/gatehouse-dev/gatehouse/internal/fault"
	"github.com/gatehouse-dev/gatehouse/internal/patch"
	"github.com/gatehouse-dev/gatehouse/internal/policy"
	"github.com/gatehouse-dev/gatehouse/internal/rego/lang"
	"github.com/gatehouse-dev/gatehouse/internal/rego/suite"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

func details(t *testing.T, err error) *fault.Error {
	t.Helper()
	f, ok := errors.AsType[*fault.Error](err)
	if !ok {
		t.Fatalf("got %v, want a fault", err)
	}
	return f
}

// TestReadNeedsAControl: files without a control are an issue, unless there is another issue
// already.
func TestReadNeedsAControl(t *testing.T) {
	const control = "package a\n\nallow := true\n"
	for what, c := range map[string]struct {
		files  []controlfile.File
		issues int
	}{
		"nothing":        {nil, 1},
		"a test":         {[]controlfile.File{{Path: "a_test.rego", Content: "package a_test\n"}}, 1},
		"a control":      {[]controlfile.File{{Path: "a.rego", Content: control}}, 0},
		"a bad path":     {[]controlfile.File{{Path: "../a.rego", Content: control}}, 1},
		"one and a test": {[]controlfile.File{{Path: "a.rego", Content: control}, {Path: "a_test.rego", Content: "package a_test\n"}}, 0},
	} {
		if _, issues := read(c.files); len(issues) != c.issues {
			t.Errorf("%s: issues = %+v, want %d", what, issues, c.issues)
		}
	}
}

func TestLinked(t *testing.T) {
	one, two := int64(1), int64(2)
	none, named := &controlfile.Link{None: true}, &controlfile.Link{Name: "payroll"}
	for what, c := range map[string]struct {
		manifest      *controlfile.Link
		id, otherwise *int64
		want          patch.Field[int64]
	}{
		"nothing is said":                    {nil, nil, nil, patch.Field[int64]{}},
		"the request's":                      {nil, nil, &two, patch.Set(two)},
		"the manifest's":                     {named, &one, nil, patch.Set(one)},
		"the manifest's, over the request's": {named, &one, &two, patch.Set(one)},
		"none, in the manifest":              {none, nil, nil, patch.Clear[int64]()},
		"none, over the request's":           {none, nil, &two, patch.Clear[int64]()},
	} {
		if got := linkChange(c.manifest, c.id, c.otherwise); got != c.want {
			t.Errorf("%s: linked = %+v, want %+v", what, got, c.want)
		}
	}
}

func TestPlacement(t *testing.T) {
	resource, bouncer, about, active := int64(5), int64(6), "about", policy.Active
	d := Deployment{ID: "d1", Repository: "github.com/acme/controls", Commit: "4f1c2aa"}
	r := Request{ResourceID: &resource, BouncerID: &bouncer}
	cases := []controlfile.Case{{Name: "staff", Input: map[string]any{"n": 1, "list": []string{"a"}}, Expected: true}}
	got, err := placement(scope.Scope{}, controlfile.Control{Path: "p/a.rego", Source: "package a\n", Name: "a", Description: &about, Status: &active, Cases: &cases}, links{}, r, d)
	errtest.Must(t, err)
	if got.Name != "a" || *got.Change.RegoCode != "package a\n" || got.Change.Description != patch.Set("about") || *got.Change.Status != policy.Active ||
		got.Change.ResourceID != patch.Set(resource) || got.Change.BouncerID != patch.Set(bouncer) || got.Note != "deployed from p/a.rego at 4f1c2aa" {
		t.Errorf("placement = %+v", got)
	}
	if want := map[string]any{"deployment_id": "d1", "path": "p/a.rego", "repository": "github.com/acme/controls", "commit": "4f1c2aa"}; !reflect.DeepEqual(got.Extra, want) {
		t.Errorf("extra = %v, want %v", got.Extra, want)
	}
	// Cases are stored with the types of JSON, so that the next deployment finds them unchanged.
	if want := []policy.TestCase{{Name: "staff", Expected: true, Input: map[string]any{"n": 1.0, "list": []any{"a"}}}}; !reflect.DeepEqual(got.Change.TestCases.Value, want) {
		t.Errorf("cases = %+v, want %+v", got.Change.TestCases.Value, want)
	}
	got, err = placement(scope.Scope{}, controlfile.Control{Path: "a.rego", Source: "package a\n", Name: "a"}, links{}, Request{}, Deployment{ID: "d2"})
	if err != nil || got.Note != "deployed from a.rego" || len(got.Extra) != 2 || got.Change.Description.Sent || got.Change.Status != nil || got.Change.TestCases.Sent || got.Change.ResourceID.Sent || got.Change.BouncerID.Sent {
		t.Errorf("placement of a control without a manifest = %+v, %v", got, err)
	}
	// A library does not get the links of the request.
	got, err = placement(scope.Scope{}, controlfile.Control{Path: "lib.rego", Source: "package lib.roles\n\nx := 1\n", Name: "roles"}, links{}, r, d)
	if err != nil || got.Change.ResourceID.Sent || got.Change.BouncerID.Sent {
		t.Errorf("placement of a library = %+v, %v, want no links", got, err)
	}
	if r.ResourceID == nil {
		t.Error("placement changes its request")
	}
	// Cases of decisions stay if the caller may not see them, or if the export of the files could not.
	sees := scope.Scope{Permissions: scope.Permissions{All: true}}
	for _, c := range []struct {
		sc     scope.Scope
		hidden int
		keeps  bool
	}{{scope.Scope{}, 0, true}, {sees, 0, false}, {sees, 1, true}} {
		got, err := placement(c.sc, controlfile.Control{Path: "a.rego", Source: "package a\n", Name: "a", Cases: &cases, HiddenCases: c.hidden}, links{}, r, d)
		if err != nil || got.Change.KeepRecorded != c.keeps {
			t.Errorf("%d hidden cases: keeps %v, %v", c.hidden, got.Change.KeepRecorded, err)
		}
	}
	cases[0].Input = map[string]any{"f": func() {}}
	if _, err := placement(scope.Scope{}, controlfile.Control{Path: "a.rego", Source: "package a\n", Name: "a", Cases: &cases}, links{}, r, d); err == nil || !strings.Contains(err.Error(), "test cases of a.rego") {
		t.Errorf("placement of a case that is not JSON: got %v, want an error about the test cases", err)
	}
}

func TestOutcomes(t *testing.T) {
	repo := controlfile.Repository{Controls: []controlfile.Control{{Path: "new.rego"}, {Path: "old.rego"}, {Path: "same.rego"}}}
	placed := []policy.Placed{
		{Outcome: policy.Created, Policy: policy.Policy{ID: 1, Content: policy.Content{Name: "new", Version: 1, Status: policy.Drafted, RegoCode: "package new\n"}}},
		{Outcome: policy.Updated, Old: policy.Policy{ID: 2, Content: policy.Content{RegoCode: "package old\n\nx := 1\n", Status: policy.Drafted}}, Policy: policy.Policy{ID: 2, Content: policy.Content{Name: "old", Version: 4, Status: policy.Active, RegoCode: "package old\n\nx := 2\n"}}},
		{Outcome: policy.Unchanged, Old: policy.Policy{ID: 3, Content: policy.Content{RegoCode: "package same\n"}}, Policy: policy.Policy{ID: 3, Content: policy.Content{Name: "same", Version: 2, RegoCode: "package same\n"}}},
	}
	dry := outcomes(scope.Scope{}, repo, placed, true)
	if o := dry[0]; o.Path != "new.rego" || o.Result != "created" || !strings.HasPrefix(o.Diff, "--- /dev/null\n+++ b/new.rego\n") || !strings.Contains(o.Diff, "+package new\n") || o.Changes != nil {
		t.Errorf("outcome of a new file = %+v", o)
	}
	if o := dry[1]; o.Version != 4 || o.Status != policy.Active || !strings.HasPrefix(o.Diff, "--- a/old.rego\n+++ b/old.rego\n") || !strings.Contains(o.Diff, "-x := 1\n+x := 2\n") || len(o.Changes) == 0 {
		t.Errorf("outcome of a changed file = %+v", o)
	}
	if o := dry[2]; o.Result != "unchanged" || o.Diff != "" || o.Changes != nil {
		t.Errorf("outcome of an unchanged file = %+v", o)
	}
	for _, o := range outcomes(scope.Scope{}, repo, placed, false) {
		if o.Diff != "" || o.Changes != nil || o.PolicyID == 0 {
			t.Errorf("outcome of a deployment = %+v, want no difference", o)
		}
	}
}

// TestRefused: the pointer of each issue names its file in the request.
func TestRefused(t *testing.T) {
	files := []controlfile.File{{Path: "a.rego"}, {Path: "b.rego"}}
	issues := []lang.FileIssue{
		{File: "b.rego", Issue: lang.Issue{Message: "bad", Line: 3, Column: 4}}, {File: "elsewhere.rego", Issue: lang.Issue{Message: "odd"}}, {Issue: lang.Issue{Message: "none"}},
	}
	f := details(t, refusedFault(files, issues))
	if !fault.Is(f, fault.Invalid) || f.Code != "invalid_policy" || f.Message != "the files have 3 errors" {
		t.Errorf("fault = %+v, want invalid_policy with 3 errors", f)
	}
	want := []fault.Detail{{Pointer: "/files/1/content", Message: "bad", Line: 3, Column: 4}, {Pointer: "/files", Message: "odd"}, {Pointer: "/files", Message: "none"}}
	if !slices.Equal(f.Details, want) {
		t.Errorf("details = %+v, want %+v", f.Details, want)
	}
}

// TestUntested: the fault lists failed tests with their files and lines, and the reason if a test
// could not be evaluated. It does not list tests that passed or were skipped.
func TestUntested(t *testing.T) {
	f := details(t, failedTestsFault(controlfile.TestReport{
		Summary: controlfile.Summary{Total: 7, Failed: 4},
		Tests: []suite.ModuleTest{
			{File: "a_test.rego", Name: "test_good", Status: suite.TestPassed, Line: 1},
			{File: "a_test.rego", Name: "todo_test_x", Status: suite.TestSkipped, Line: 2},
			{File: "a_test.rego", Name: "test_bad", Status: suite.TestFailed, Line: 3},
			{File: "a_test.rego", Name: "test_odd", Status: suite.TestError, Error: "no such thing", Line: 4},
		},
		Cases: []controlfile.CaseResult{
			{File: "gatehouse.yaml", Line: 5, Result: suite.TestResult{Name: "fine", Passed: true}},
			{File: "gatehouse.yaml", Line: 6, Result: suite.TestResult{Name: "staff", Expected: true}},
			{File: "gatehouse.yaml", Line: 7, Result: suite.TestResult{Name: "broken", Error: "took too long"}},
		},
	}))
	want := []fault.Detail{
		{Message: "a_test.rego: test_bad failed", Line: 3},
		{Message: "a_test.rego: test_odd error: no such thing", Line: 4},
		{Message: "gatehouse.yaml: staff: expected true, got false", Line: 6},
		{Message: "gatehouse.yaml: broken: took too long", Line: 7},
	}
	if f.Code != "tests_failed" || f.Message != "4 of 7 tests fail" || !slices.Equal(f.Details, want) {
		t.Errorf("fault = %+v, want tests_failed with %+v", f, want)
	}
	if text, err := json.Marshal(f.Fields["failures"]); err != nil || strings.Contains(string(text), "test_good") || strings.Contains(string(text), "fine") || strings.Count(string(text), `"file"`) != 4 {
		t.Errorf("failures = %s, %v, want the 4 that fail", text, err)
	}
}

func TestLater(t *testing.T) {
	early, late := time.Unix(1, 0), time.Unix(2, 0)
	never, first, second := policy.Policy{}, policy.Policy{PromotedAt: &early}, policy.Policy{PromotedAt: &late}
	for _, c := range []struct {
		a, b policy.Policy
		want bool
	}{{never, never, false}, {never, first, false}, {first, never, true}, {first, second, false}, {second, first, true}, {first, first, false}} {
		if isLater(c.a, c.b) != c.want {
			t.Errorf("later of %v and %v = %v, want %v", c.a.PromotedAt, c.b.PromotedAt, !c.want, c.want)
		}
	}
}

// TestDeployRefusesProduction: a deployment to production is refused before the files are read.
func TestDeployRefusesProduction(t *testing.T) {
	s := &Service{}
	all := scope.Scope{Permissions: scope.Permissions{All: true}}
	if _, err := s.Deploy(t.Context(), all, Request{Environment: scope.Production}); !fault.Is(err, fault.Invalid) || details(t, err).Details[0].Pointer != "/environment" {
		t.Errorf("Deploy to production: got %v, want an offence at /environment", err)
	}
	all.Env, all.EnvBound = scope.Production, true
	if _, err := s.Deploy(t.Context(), all, Request{}); !fault.Is(err, fault.Forbidden) {
		t.Errorf("Deploy by a production credential: got %v, want forbidden", err)
	}
}
