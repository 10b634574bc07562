package authzen_test

import (
	"context"
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/audit"
	"github.com/gatehouse-dev/gatehouse/internal/authzen"
	"github.com/gatehouse-dev/gatehouse/internal/decision"
	"github.com/gatehouse-dev/gatehouse/internal/errtest"
	"github.com/gatehouse-dev/gatehouse/internal/rego"
	"github.com/gatehouse-dev/gatehouse/internal/rego/target"
	"github.com/gatehouse-dev/gatehouse/internal/rego/value"
	"github.com/gatehouse-dev/gatehouse/internal/rego/value/valuetest"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

// desk is a service for many resources with a control each. It keeps what was recorded.
type desk struct {
	*authzen.Service
	records int
}

// newDesk creates tenants with n resources, "r1" to "rN", and a control for each.
func newDesk(n int) *desk {
	now := func() time.Time { return time.Now().UTC() }
	d := &desk{}
	nobody := func(context.Context, scope.TenantID, string) (value.Value, error) { return value.Value{}, nil }
	d.Service = &authzen.Service{
		Subject:  nobody,
		Subjects: func(context.Context, scope.Scope) ([]string, error) { return nil, nil },
		Decisions: &decision.Service{
			Snapshots: &decision.Snapshots{
				Load: func(context.Context, scope.TenantID, scope.Env) (decision.Source, error) {
					src := decision.Source{Revision: 1}
					for i := range n {
						id := int64(i + 1)
						src.Resources = append(src.Resources, target.Resource{ID: id, Name: fmt.Sprint("r", id), Type: "record", Path: fmt.Sprint("/r/", id)})
						text := fmt.Sprintf("package c%d\n\nallow if { input.action.name == \"read\"; input.user.id == \"u%d\" }", id, id)
						src.Controls = append(src.Controls, decision.ControlText{Meta: rego.Meta{ID: id, Name: fmt.Sprint("c", id), Version: 1, ResourceID: id}, Source: text})
					}
					return src, nil
				},
				Now: now, Idle: time.Hour,
			},
			Person:    nobody,
			Record:    func(scope.TenantID, *audit.Decision) error { d.records++; return nil },
			RecordAll: func(_ scope.TenantID, ds []audit.Decision) error { d.records += len(ds); return nil },
			Tally:     func(scope.TenantID, int64) *rego.Tally { return new(rego.Tally) },
			Now:       now, NewID: func() string { return "id" }, Deadline: time.Minute, BulkDeadline: time.Minute,
			Share: decision.NewProcessorShare(2, now),
		},
	}
	return d
}

func parsed(t *testing.T, format string, args ...any) value.Value {
	t.Helper()
	return valuetest.Decode(t, fmt.Sprintf(format, args...))
}

func request(t *testing.T, subject, resource string) value.Value {
	return parsed(t, `{"subject":{"type":"user","id":%q},"action":{"name":"read"},"resource":{"type":"record","id":%q}}`, subject, resource)
}

// TestEvaluationParsesNothing: with 5,000 controls, the first evaluation that names a
// resource costs what one control costs. Parsing all takes millions of allocations.
func TestEvaluationParsesNothing(t *testing.T) {
	d := newDesk(5000)
	sc := scope.Scope{Tenant: "acme"}
	errtest.Must(t, errtest.Of(d.Decisions.Snapshot(context.Background(), sc)))
	ask := request(t, "u4711", "r4711")
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	got, err := d.Evaluate(context.Background(), sc, ask)
	runtime.ReadMemStats(&after)
	if err != nil || !got.Decision || d.records == 0 {
		t.Fatalf("Evaluate = %+v, %v after %d records, want a permit", got, err, d.records)
	}
	if n := after.Mallocs - before.Mallocs; n > 50_000 {
		t.Errorf("an evaluation makes %d allocations, want at most 50,000", n)
	}
}

// TestAlternatingTenantsParseOnce: a tenant's search does not discard what another tenant's
// search has parsed.
func TestAlternatingTenantsParseOnce(t *testing.T) {
	d := newDesk(300)
	both := func() {
		for _, tenant := range []scope.TenantID{"acme", "bravo"} {
			sc := scope.Scope{Tenant: tenant}
			ask := parsed(t, `{"subject":{"type":"user","id":"u7"},"resource":{"type":"record","id":"r7"}}`)
			found, err := d.Search(context.Background(), sc, authzen.Actions, ask)
			if err != nil || len(found.Results) != 1 || found.Results[0].Name != "read" {
				t.Fatalf("search = %+v, %v, want read", found, err)
			}
			if got, err := d.Evaluate(context.Background(), sc, request(t, "u7", "r7")); err != nil || !got.Decision {
				t.Fatalf("Evaluate = %+v, %v, want a permit", got, err)
			}
		}
	}
	both()
	if again := testing.AllocsPerRun(5, both); again > 50_000 { // parsing makes more than 100 for each control
		t.Errorf("a round after the first makes %v allocations, want at most 50,000", again)
	}
}
