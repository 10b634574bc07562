package audit

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/db/dbtest"
	"github.com/gatehouse-dev/gatehouse/internal/errtest"
	"github.com/gatehouse-dev/gatehouse/internal/fault"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
	"github.com/gatehouse-dev/gatehouse/internal/spool"
)

var (
	noon  = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	admin = scope.Scope{Tenant: scope.DefaultTenant, Actor: scope.Actor{Kind: scope.Person, ID: "u1", Name: "alice", IP: "10.0.0.9"}, RequestID: "r1"}
)

// newLog returns a log on a store. It replaces what cfg lacks: the spool, the folder, the clock and the
// logger.
func newLog(t testing.TB, cfg Config) *DecisionLog {
	t.Helper()
	if cfg.Spool == nil {
		cfg.Spool = openSpool(t, t.TempDir())
	}
	if cfg.SetAside == "" {
		cfg.SetAside = t.TempDir()
	}
	if cfg.Now == nil {
		cfg.Now = func() time.Time { return time.Now().UTC() }
	}
	cfg.Logger = slog.New(slog.DiscardHandler)
	return NewDecisionLog(cfg)
}

// storeOnly returns a log for tests that write rows directly into the store.
func storeOnly(t testing.TB, c *db.Cluster, now func() time.Time) *DecisionLog {
	t.Helper()
	return newLog(t, Config{Cluster: c, Now: now})
}

// wantValid fails unless the hash chains of a tenant are valid.
func wantValid(t testing.TB, l *DecisionLog, sc scope.Scope) {
	t.Helper()
	if rep, err := l.Verify(context.Background(), sc); err != nil || !rep.Valid {
		t.Errorf("Verify of %s = %+v, %v, want valid", sc.Tenant, rep, err)
	}
}

func openSpool(t testing.TB, dir string) *spool.Log {
	t.Helper()
	s, err := spool.Open(spool.Config{Dir: dir, Sync: spool.SyncNever})
	errtest.Must(t, err)
	t.Cleanup(func() { s.Close() })
	return s
}

// at returns a clock that stands still.
func at(t time.Time) func() time.Time { return func() time.Time { return t } }

// rowOf returns the row of a decision.
func rowOf(t testing.TB, d *Decision) row {
	t.Helper()
	r, err := toRow(appendDecision(nil, d))
	errtest.Must(t, err)
	return r
}

// put writes decisions into the store.
func (l *DecisionLog) put(t testing.TB, tenant scope.TenantID, ds ...Decision) {
	t.Helper()
	rows := make([]row, 0, len(ds))
	for i := range ds {
		d := ds[i]
		l.normalise(&d)
		rows = append(rows, rowOf(t, &d))
	}
	errtest.Must(t, l.store(context.Background(), tenant, rows))
}

// randomDecision returns a random decision. It has few different values, so that filters overlap.
func randomDecision(r *rand.Rand, i int, when time.Time) Decision {
	name := "control"
	d := Decision{
		DecisionID: fmt.Sprintf("d-%06d", i), Timestamp: when, User: User{ID: fmt.Sprintf("user-%d", r.IntN(5))}, Action: "read", Decision: Permit,
		Environment: scope.Production, Resource: Resource{Type: "api", Path: "/x"}, EvaluationTimeMS: 0.5,
	}
	if r.IntN(4) == 0 {
		d.Decision = Deny
	}
	if r.IntN(3) == 0 {
		d.Environment = scope.Sandbox
	}
	if p := r.IntN(4); p > 0 {
		d.PolicyID, d.PolicyName = int64(p), &name
	}
	switch p := r.IntN(4); p {
	case 0:
	case 1:
		d.Resource.ID = "theirs"
	default:
		d.ResourceID = int64(p)
	}
	if i%5 == 0 {
		d.CallerID = "mine"
	} else if i%7 == 0 {
		d.CallerID = fmt.Sprintf("order-%d", i) + strings.Repeat("-long", 30)
	}
	d.AuditLevel = []Level{Basic, Basic, Detailed, Comprehensive, None}[r.IntN(5)]
	return d
}

// matches reports whether a filter selects a decision.
func matches(d Decision, f Filter) bool {
	key := keyOf(&d)
	if f.DecisionID != "" && d.DecisionID != f.DecisionID && d.CallerID != f.DecisionID {
		return false
	}
	return d.AuditLevel != None && (f.UserID == "" || d.User.ID == f.UserID) && (f.PolicyID == 0 || d.PolicyID == f.PolicyID) && (f.ResourceID == "" || key == f.ResourceID) &&
		(f.Decision == "" || d.Decision == f.Decision) && (f.Environment == "" || d.Environment == f.Environment) &&
		(f.Start.IsZero() || !d.Timestamp.Before(f.Start)) && (f.End.IsZero() || !d.Timestamp.After(f.End))
}

// TestQueryAgainstEveryFilter compares random queries with a plain loop over the decisions.
func TestQueryAgainstEveryFilter(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, c *db.Cluster) {
		ctx := context.Background()
		l := storeOnly(t, c, at(noon))
		r := rand.New(rand.NewPCG(1, 2))
		var all []Decision
		for i := range 600 {
			all = append(all, randomDecision(r, i, noon.Add(-time.Duration(r.IntN(50*3600))*time.Second)))
		}
		l.put(t, scope.DefaultTenant, all[:350]...)
		l.put(t, scope.DefaultTenant, all[300:]...) // fifty of them come twice and count once
		logged := 0
		for _, d := range all {
			if d.AuditLevel != None {
				logged++
			}
		}
		pick := func(s ...string) string { return s[r.IntN(len(s))] }
		for range 300 {
			f := Filter{
				UserID: pick("", "", "user-1", "nobody"), ResourceID: pick("", "", "theirs", "2"), Decision: pick("", Permit, Deny), PolicyID: int64(r.IntN(3)),
				Environment: scope.Env(pick("", "sandbox", "production")), Limit: 1 + r.IntN(40),
				DecisionID: pick("", "", "", "mine", "order-14"+strings.Repeat("-long", 30), "d-000007", "nowhere"),
			}
			if r.IntN(2) == 0 {
				f.Start = noon.Add(-time.Duration(r.IntN(50*3600)) * time.Second)
			}
			if r.IntN(2) == 0 {
				f.End = noon.Add(-time.Duration(r.IntN(50*3600)) * time.Second)
			}
			checkQuery(t, l, ctx, f, all, int64(logged))
		}
	})
}

// checkQuery reads all pages of f and compares them with the result of a plain loop.
func checkQuery(t *testing.T, l *DecisionLog, ctx context.Context, f Filter, all []Decision, logged int64) {
	t.Helper()
	want := map[string]bool{}
	for _, d := range all {
		if matches(d, f) {
			want[d.DecisionID] = true
		}
	}
	last := time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC)
	got := map[string]bool{}
	for {
		page, err := l.Query(ctx, admin, f)
		errtest.Must(t, err)
		if page.Total != logged || page.Filtered != int64(len(want)) {
			t.Fatalf("Query(%+v): total %d, want %d; filtered %d, want %d", f, page.Total, logged, page.Filtered, len(want))
		}
		for _, d := range page.Logs {
			if d.Timestamp.After(last) || got[d.DecisionID] || !want[d.DecisionID] {
				t.Fatalf("Query(%+v): %s at %s after %s; in the filter: %v, on an earlier page: %v", f, d.DecisionID, d.Timestamp, last, want[d.DecisionID], got[d.DecisionID])
			}
			last, got[d.DecisionID] = d.Timestamp, true
		}
		if f.Cursor = page.NextCursor; f.Cursor == "" {
			break
		}
	}
	if len(got) != len(want) {
		t.Fatalf("Query(%+v): %d entries, want %d", f, len(got), len(want))
	}
	n := 0
	f.Cursor = ""
	if err := l.Each(ctx, admin, f, func(*Decision) error { n++; return nil }); err != nil || n != len(want) {
		t.Fatalf("Each(%+v): %d entries, %v, want %d", f, n, err, len(want))
	}
}

// TestScopesAndTenants: a key of one environment sees only its entries, a tenant only its own.
func TestScopesAndTenants(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, c *db.Cluster) {
		ctx := context.Background()
		l := storeOnly(t, c, at(noon))
		d := Decision{DecisionID: "one", Timestamp: noon, Decision: Permit, Environment: scope.Sandbox}
		l.put(t, scope.DefaultTenant, d)
		d.DecisionID, d.Environment = "two", scope.Production
		l.put(t, scope.DefaultTenant, d)
		bound := admin
		bound.Env, bound.EnvBound = scope.Sandbox, true
		page, err := l.Query(ctx, bound, Filter{Environment: scope.Production})
		if err != nil || page.Total != 1 || len(page.Logs) != 1 || page.Logs[0].DecisionID != "one" {
			t.Errorf("Query by a sandbox key = %+v, %v, want the entry one", page, err)
		}
		other := admin
		other.Tenant = dbtest.Second
		if page, err = l.Query(ctx, other, Filter{}); err != nil || page.Total != 0 || page.Logs == nil {
			t.Errorf("Query by the other tenant = %+v, %v, want an empty list", page, err)
		}
		for _, f := range []Filter{{Limit: -1}, {Limit: 1001}, {Cursor: "x"}, {Cursor: "MS4tMQ"}, {Decision: "MAYBE"}} {
			if _, err := l.Query(ctx, admin, f); !fault.Is(err, fault.BadRequest) {
				t.Errorf("Query(%+v): got %v, want a bad request", f, err)
			}
		}
		counts, err := l.Counters(ctx, admin, Of{}, noon.Add(-time.Hour), noon)
		if err != nil || len(counts) != 2 || counts[0].Counted != 1 {
			t.Errorf("Counters = %+v, %v, want 2 cells of 1 decision", counts, err)
		}
	})
}

// TestLevelsLimitWhatIsStored: the audit level decides whether an entry exists and has an input and a
// trace. Secrets are redacted at each level, and each decision counts once.
func TestLevelsLimitWhatIsStored(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, c *db.Cluster) {
		ctx := context.Background()
		l := storeOnly(t, c, at(noon))
		base := Decision{
			Timestamp: noon, Decision: Permit, User: User{ID: "bob", Email: "bob@x"}, Environment: scope.Production,
			Input: []byte(`{"user":{"id":"bob","password":"canary"}}`), Trace: []byte(`[{"token":"canary"}]`), ResourceID: 4, PolicyID: 2,
		}
		for _, level := range []Level{None, Basic, Detailed, Comprehensive} {
			d := base
			d.DecisionID, d.AuditLevel = string(level), level
			l.put(t, scope.DefaultTenant, d)
			l.put(t, scope.DefaultTenant, d)
		}
		page, err := l.Query(ctx, admin, Filter{ResourceID: "4"})
		if err != nil || page.Total != 3 || page.Filtered != 3 {
			t.Fatalf("Query = %+v, %v, want 3 entries", page, err)
		}
		for _, d := range page.Logs {
			if (len(d.Input) > 0) != (d.AuditLevel != Basic) || (len(d.Trace) > 0) != (d.AuditLevel == Comprehensive) {
				t.Errorf("entry at level %s has the input %q and the trace %q", d.AuditLevel, d.Input, d.Trace)
			}
			if in := string(d.Input) + string(d.Trace); in != "" && (strings.Contains(in, "canary") || !strings.Contains(in, "[redacted]")) {
				t.Errorf("entry at level %s has %s, want the secrets redacted", d.AuditLevel, in)
			}
		}
		counts, err := l.Counters(ctx, admin, Of{PolicyID: 2, ResourceID: "4"}, noon, noon)
		if err != nil || len(counts) != 1 || counts[0].Counted != 4 || counts[0].Logged != 3 {
			t.Errorf("Counters = %+v, %v, want 4 counted and 3 logged", counts, err)
		}
	})
}

// appendEntry writes an administrative entry.
func appendEntry(t *testing.T, c *db.Cluster, sc scope.Scope, when time.Time, e Entry) {
	t.Helper()
	errtest.Must(t, c.Write(context.Background(), sc.Tenant, func(tx *db.Tx) error { return Append(context.Background(), tx, sc, when, e) }))
}

// TestEvents: Events returns administrative entries, newest first, without secrets and invalid text.
func TestEvents(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, c *db.Cluster) {
		ctx := context.Background()
		l := storeOnly(t, c, at(noon))
		for i := range 5 {
			appendEntry(t, c, admin, noon.Add(time.Duration(i)*time.Minute), Entry{
				Type: []string{"POLICY_CREATED", "RESOURCE_UPDATED"}[i%2], Object: "policy", ObjectID: fmt.Sprint(i), ObjectName: "n\x00ame", Env: scope.Sandbox,
				Changes:      map[string]any{"secret": "canary", "name": map[string]any{"from": "a", "to": "b"}},
				EventContext: map[string]any{"resource_snapshot": map[string]any{"version": 3, "owner_email": "canary@x"}},
			})
		}
		page, err := l.Events(ctx, admin, EventFilter{Limit: 2})
		if err != nil || page.Total != 5 || page.Filtered != 5 || len(page.Events) != 2 || page.Events[0].ObjectID != "4" {
			t.Fatalf("Events = %+v, %v, want 2 of 5 entries, the newest first", page, err)
		}
		want := Event{
			ID: 5, Timestamp: noon.Add(4 * time.Minute), Type: "POLICY_CREATED", Object: "policy", ObjectID: "4", ObjectName: "n\uFFFDame", Environment: scope.Sandbox,
			ActorKind: scope.Person, ActorID: "u1", ActorName: "alice", IPAddress: "10.0.0.9", RequestID: "r1",
			Changes:      map[string]any{"secret": "[redacted]", "name": map[string]any{"from": "a", "to": "b"}},
			EventContext: map[string]any{"resource_snapshot": map[string]any{"version": float64(3)}},
		}
		if diff := cmp.Diff(want, page.Events[0]); diff != "" {
			t.Errorf("newest entry (-want +got)\n%s", diff)
		}
		page, err = l.Events(ctx, admin, EventFilter{Cursor: page.NextCursor, Type: "RESOURCE_UPDATED", Start: noon, End: noon.Add(3 * time.Minute)})
		if err != nil || page.Filtered != 2 || len(page.Events) != 1 || page.Events[0].ObjectID != "1" || page.NextCursor != "" {
			t.Errorf("Events of the next page = %+v, %v, want only the entry 1 of 2", page, err)
		}
	})
}
