package decision_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/audit"
	"github.com/gatehouse-dev/gatehouse/internal/decision"
	"github.com/gatehouse-dev/gatehouse/internal/errtest"
	"github.com/gatehouse-dev/gatehouse/internal/fault"
	"github.com/gatehouse-dev/gatehouse/internal/rego"
	"github.com/gatehouse-dev/gatehouse/internal/rego/target"
	"github.com/gatehouse-dev/gatehouse/internal/rego/value"
	"github.com/gatehouse-dev/gatehouse/internal/rego/value/valuetest"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

// fixture is a service with controls, and what it records.
type fixture struct {
	*decision.Service
	t       *testing.T
	records []audit.Decision
	// loaded are the environments whose snapshot was loaded.
	loaded []scope.Env
	// tallies are those of the controls; 0 is for decisions that no control made.
	tallies map[int64]*rego.Tally
}

// newFixture returns a service with controls, and the resource doc at /r.
func newFixture(t *testing.T, doc string, sources ...string) *fixture {
	c := &fixture{t: t, tallies: map[int64]*rego.Tally{}}
	c.Service = service(true)
	c.Now = time.Now
	n := 0
	c.NewID = func() string { n++; return fmt.Sprint("own-", n) }
	c.Snapshots.Load = func(_ context.Context, _ scope.TenantID, env scope.Env) (decision.Source, error) {
		c.loaded = append(c.loaded, env)
		src := decision.Source{Revision: 1, Resources: []target.Resource{{ID: 1, Type: "api", Path: "/r", AuditLevel: "comprehensive", Doc: c.object(doc)}}}
		for i, text := range sources {
			src.Controls = append(src.Controls, decision.ControlText{Meta: rego.Meta{ID: int64(i + 1), Name: fmt.Sprint("c", i+1), Version: 1}, Source: text})
		}
		return src, nil
	}
	c.Record = func(_ scope.TenantID, d *audit.Decision) error { c.records = append(c.records, *d); return nil }
	c.RecordAll = func(_ scope.TenantID, ds []audit.Decision) error { c.records = append(c.records, ds...); return nil }
	c.Tally = func(_ scope.TenantID, id int64) *rego.Tally {
		if c.tallies[id] == nil {
			c.tallies[id] = &rego.Tally{}
		}
		return c.tallies[id]
	}
	return c
}

// object decodes a JSON document.
func (c *fixture) object(text string) value.Value {
	c.t.Helper()
	return valuetest.Decode(c.t, text)
}

// items returns the items of a bulk call.
func (c *fixture) items(text string) func() ([]value.Value, error) {
	return func() ([]value.Value, error) { return c.object(text).Elems(), nil }
}

var anyone = scope.Scope{Tenant: "acme"}

// TestTracesAnswers checks that only a decision that is answered gets a span. A call that fails has
// decided nothing.
func TestTracesAnswers(t *testing.T) {
	c := newFixture(t, `{}`, "package a\n\nallow if input.user.id == \"ann\"\n")
	var traced []string
	c.Traced = func(_ context.Context, _, effect string) { traced = append(traced, effect) }
	body := c.object(`{"user":{"id":"ann"},"resource":{"id":1}}`)
	errtest.Must(t, errtest.Of(c.Evaluate(context.Background(), anyone, body)))
	c.Record = func(scope.TenantID, *audit.Decision) error {
		return fault.New(fault.Unavailable, "audit_unavailable", "the decision log cannot be written")
	}
	if _, err := c.Evaluate(context.Background(), anyone, body); !fault.Is(err, fault.Unavailable) {
		t.Errorf("a decision without a log: %v, want Unavailable", err)
	}
	c.Person = func(context.Context, scope.TenantID, string) (value.Value, error) {
		return value.Value{}, fault.New(fault.Unavailable, "store_unavailable", "the store does not answer")
	}
	if _, err := c.Evaluate(context.Background(), anyone, body); err == nil {
		t.Error("a decision about a person who is not known: no error")
	}
	if !slices.Equal(traced, []string{"ALLOW"}) {
		t.Errorf("the traced effects are %q, want one ALLOW", traced)
	}
}

// TestEveryEvaluationCounts checks that each control that ran counts, whether it decided or
// not, alone and in bulk, from the cache too. Controls behind a DENY did not run. Each
// decision counts once, for the control that made it or for none.
func TestEveryEvaluationCounts(t *testing.T) {
	c := newFixture(t, `{}`, "package a\nallow if input.user.id == \"ann\"", "package b\ndeny if input.user.id == \"eve\"", "package c\nallow if input.user.id == \"bob\"")
	clock := time.Unix(1000, 0)
	c.Now = func() time.Time { clock = clock.Add(time.Microsecond); return clock } // each reading takes a microsecond
	c.Share = decision.NewProcessorShare(1, c.Now)
	evaluate := func(user string) {
		errtest.Must(t, errtest.Of(c.Evaluate(context.Background(), anyone, c.object(`{"user":{"id":"`+user+`"}}`))))
	}
	evaluate("ann")
	evaluate("eve") // the second control ends it
	evaluate("nobody")
	errtest.Must(t, errtest.Of(c.EvaluateBulk(context.Background(), anyone, c.items(`[{"user":{"id":"nobody"}},{"user":{"id":"eve"}},{"user":{"id":"zoe"}}]`))))
	type figures struct{ evaluations, hits, undecided, allowed, denied int64 }
	got := map[int64]figures{}
	var all time.Duration
	took := map[int64]time.Duration{}
	for id, l := range c.tallies {
		got[id] = figures{l.Evaluations.Load(), l.CacheHits.Load(), l.Decided[rego.NoMatch].Load(), l.Decided[rego.Allow].Load(), l.Decided[rego.Deny].Load()}
		took[id] = time.Duration(l.Nanoseconds.Load())
		all += took[id]
	}
	want := map[int64]figures{0: {undecided: 3}, 1: {6, 2, 0, 1, 0}, 2: {6, 2, 0, 0, 2}, 3: {4, 1, 0, 0, 0}}
	if !maps.Equal(got, want) {
		t.Errorf("counted %+v, want %+v", got, want)
	}
	// The controls that ran share the time of a decision. The third ran in fewer decisions.
	var recorded time.Duration
	for _, r := range c.records {
		recorded += time.Duration(r.EvaluationTimeMS * float64(time.Millisecond))
	}
	if took[3] <= 0 || took[3] >= took[1] || took[1] != took[2] || (recorded-all).Abs() >= time.Microsecond {
		t.Errorf("the evaluations took %v, want the same for 1 and 2, less for 3, and %s together as recorded", took, recorded)
	}
}

// TestEnvironmentOfTheRequest checks that a request can name its environment, as the query, the header
// or the key can, and that they must not contradict each other.
func TestEnvironmentOfTheRequest(t *testing.T) {
	for body, tc := range map[string]struct {
		sc   scope.Scope
		want scope.Env
		kind fault.Kind
		code string
	}{
		`{"environment":"sandbox"}`:           {sc: anyone, want: scope.Sandbox},
		`{"environment":"production"}`:        {sc: anyone, want: scope.Production},
		`{}`:                                  {sc: anyone, want: scope.Production},
		`{"environment":"sandbox","user":{}}`: {sc: scope.Scope{Env: scope.Sandbox, EnvBound: true}, want: scope.Sandbox},
		`{"user":{},"environment":"sandbox"}`: {sc: scope.Scope{Env: scope.Production}, kind: fault.BadRequest, code: "environment_conflict"},
		`{"environment":"production","a":1}`:  {sc: scope.Scope{Env: scope.Sandbox, EnvBound: true}, kind: fault.Forbidden, code: "environment_denied"},
		`{"environment":"Sandbox"}`:           {sc: anyone, kind: fault.Invalid, code: "/environment"},
		`{"environment":7}`:                   {sc: anyone, kind: fault.Invalid, code: "/environment"},
		`{"decision_id":7}`:                   {sc: anyone, kind: fault.Invalid, code: "/decision_id"},
		`{"decision_id":"theirs"}`:            {sc: anyone, want: scope.Production},
	} {
		c := newFixture(t, `{}`)
		r, err := c.Evaluate(context.Background(), tc.sc, c.object(body))
		if tc.code != "" {
			if f, ok := errors.AsType[*fault.Error](err); !ok || f.Kind != tc.kind || f.Code != tc.code && (len(f.Details) != 1 || f.Details[0].Pointer != tc.code) || len(c.records) > 0 {
				t.Errorf("%s: %+v, want %s", body, err, tc.code)
			}
			continue
		}
		if err != nil || len(c.loaded) != 1 || c.loaded[0] != tc.want || c.records[0].Environment != tc.want || c.records[0].DecisionID != r.DecisionID || r.DecisionID != "own-1" {
			t.Errorf("%s: %v, loaded %v, recorded %+v, want environment %s", body, err, c.loaded, c.records, tc.want)
		}
	}
}

// TestBulkItems checks that an item is decided in the environment of its call, and has an id of its own
// in the audit.
func TestBulkItems(t *testing.T) {
	c := newFixture(t, `{}`)
	in := scope.Scope{Tenant: "acme", Env: scope.Sandbox}
	out, err := c.EvaluateBulk(context.Background(), in, c.items(`[{"decision_id":"theirs"},{"decision_id":"theirs","environment":"sandbox"},{}]`))
	errtest.Must(t, err)
	var answer struct{ Results []map[string]any }
	errtest.Must(t, json.Unmarshal(out.AppendJSON(nil), &answer))
	for i, want := range []string{"theirs own-1 own-1 sandbox", "theirs own-2 own-2 sandbox", "own-3 own-3 own-3 sandbox"} {
		r := answer.Results[i]
		if got := fmt.Sprint(r["decision_id"], " ", r["audit_id"], " ", c.records[i].DecisionID, " ", c.records[i].Environment); got != want {
			t.Errorf("item %d: %s, want %s", i, got, want)
		}
	}
	_, err = c.EvaluateBulk(context.Background(), anyone, c.items(`[{"environment":"production"},{"environment":"sandbox"},{"environment":null}]`))
	if f, ok := errors.AsType[*fault.Error](err); !ok || len(f.Details) != 2 || f.Details[0].Pointer != "/decisions/1/environment" || f.Details[1].Pointer != "/decisions/2/environment" || !strings.Contains(f.Details[0].Message, "production") {
		t.Errorf("items of other environments: %+v, want an offence at the second and third", err)
	}
}

// TestOneTimestamp checks that answer and audit have the same time, in microseconds.
func TestOneTimestamp(t *testing.T) {
	c := newFixture(t, `{}`)
	at := time.Date(2026, 11, 20, 10, 0, 0, 123456789, time.UTC)
	c.Now = func() time.Time { return at }
	r, err := c.Evaluate(context.Background(), anyone, c.object(`{}`))
	errtest.Must(t, err)
	if !r.Timestamp.Equal(c.records[0].Timestamp) || r.Timestamp.Nanosecond() != 123456000 {
		t.Errorf("the answer has %s, the record %s, want the same microsecond", r.Timestamp, c.records[0].Timestamp)
	}
}
