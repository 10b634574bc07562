package alert

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/audit/stats"
	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/db/dbtest"
	"github.com/gatehouse-dev/gatehouse/internal/errtest"
	"github.com/gatehouse-dev/gatehouse/internal/notify"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
	"github.com/gatehouse-dev/gatehouse/internal/timetest"
)

var admin = scope.Scope{Tenant: scope.DefaultTenant, Actor: scope.Actor{Kind: scope.Person, ID: "u1", Name: "alice"}}

// bench is a service on a store, with a clock that tests advance.
type bench struct {
	testing.TB
	*Service
	clock *timetest.Clock
	gone  map[int64]bool // the ids of deleted objects
}

// newBench returns a bench on a store.
func newBench(t testing.TB, c *db.Cluster) *bench {
	b := &bench{TB: t, clock: timetest.At(time.Date(2026, 3, 2, 12, 0, 10, 0, time.UTC)), gone: map[int64]bool{}}
	b.Service = &Service{
		Stores: c, Now: b.clock.Now, Outbox: notify.Outbox{Root: "https://gatehouse.example.com"},
		Exists: func(_ context.Context, _ *db.Tx, _ scope.Env, _ string, id int64) (bool, error) {
			return !b.gone[id], nil
		},
	}
	return b
}

// decide stores decisions of the last minute, like the decision log.
func (b *bench) decide(permitted, denied int64, of ...stats.Series) {
	b.Helper()
	at := b.clock.Now().Add(-lag - 30*time.Second)
	sums := stats.Rollups{}
	for _, d := range []stats.Decided{
		{At: at, Environment: "sandbox", Permitted: true, N: permitted, TotalUS: 1000 * permitted, EachUS: 1000},
		{At: at, Environment: "sandbox", ByControl: true, N: denied, TotalUS: 1000 * denied, EachUS: 1000},
	} {
		if d.N == 0 {
			continue
		}
		sums.Add(d)
		for _, s := range of {
			sums.AddTo(s, d)
		}
	}
	b.write(func(tx *db.Tx) error { return stats.Store(context.Background(), tx, sums) })
}

// write runs fn in a transaction of the tenant.
func (b *bench) write(fn func(tx *db.Tx) error) {
	b.Helper()
	errtest.Must(b, b.Stores.Write(context.Background(), scope.DefaultTenant, fn))
}

// evaluate evaluates the tenant's rules once.
func (b *bench) evaluate() {
	b.Helper()
	e := &Evaluator{Service: b.Service, Active: func(context.Context, scope.TenantID) (bool, error) { return true, nil }, Logger: slog.New(slog.DiscardHandler)}
	errtest.Must(b, errtest.Of(e.evaluateTenant(context.Background(), scope.DefaultTenant)))
}

// rule creates a rule, with a name if it has none.
func (b *bench) rule(d Draft) Rule {
	b.Helper()
	if d.Name == "" {
		d.Name = "rule " + d.Trigger.Metric
	}
	r, err := b.Create(context.Background(), admin, d)
	errtest.Must(b, err)
	return r
}

// count returns the number that a query yields.
func (b *bench) count(sql string) (n int64) {
	b.Helper()
	err := b.Stores.Read(context.Background(), scope.DefaultTenant, func(tx *db.Tx) (err error) {
		n, err = db.One[int64](context.Background(), tx, sql)
		return err
	})
	errtest.Must(b, err)
	return n
}

// fired returns the numbers of audit entries of rules that fired and that ended.
func (b *bench) fired() string {
	b.Helper()
	return fmt.Sprint(b.count(`SELECT COUNT(*) FROM audit_events WHERE type = 'CUSTOM_ALERT_FIRED'`), " ", b.count(`SELECT COUNT(*) FROM audit_events WHERE type = 'CUSTOM_ALERT_RESOLVED'`))
}

var denials = Trigger{Metric: "denial_rate", Operator: ">", Threshold: 20}

// TestFiresAndEnds: a rule fires when its condition begins to hold, again after each
// cooldown up to the day's maximum, and ends once.
func TestFiresAndEnds(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, c *db.Cluster) {
		b := newBench(t, c)
		r := b.rule(Draft{Trigger: denials, Frequency: Frequency{Window: 60, Cooldown: new(180), MaxFires: 2}})
		step := func(permitted, denied int64, want string) {
			t.Helper()
			b.clock.Move(time.Minute)
			b.decide(permitted, denied)
			b.evaluate()
			b.evaluate() // again, as by another replica or after a restart
			if got := b.fired(); got != want {
				t.Errorf("fired and ended %s, want %s", got, want)
			}
		}
		step(80, 20, "0 0") // 20 % are not more than 20 %
		step(79, 21, "1 0")
		step(0, 5, "1 0") // within the cooldown
		step(0, 5, "1 0")
		step(0, 5, "2 0") // after the cooldown
		step(0, 5, "2 0")
		step(0, 5, "2 0")
		step(0, 5, "2 0") // the maximum of the day is reached
		step(5, 0, "2 1")
		step(5, 0, "2 1")
		step(0, 5, "2 1") // the maximum still holds
		b.clock.Move(12 * time.Hour)
		step(0, 5, "3 1") // the next day
		step(0, 0, "3 2") // no decisions: the condition does not hold
		got, err := b.Get(context.Background(), admin, r.ID)
		if err != nil || got.Firing || got.Value != nil || got.ChangeNo != r.ChangeNo || got.EvaluatedAt == nil {
			t.Errorf("Get = %+v, %v, want a rule that does not fire", got, err)
		}
	})
}

// TestReplicasFireOnce: several concurrent evaluators fire a rule once.
func TestReplicasFireOnce(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, c *db.Cluster) {
		b := newBench(t, c)
		b.rule(Draft{Trigger: denials, Frequency: Frequency{Cooldown: new(0)}})
		b.decide(0, 10)
		var all sync.WaitGroup
		for range 8 {
			all.Go(b.evaluate)
		}
		all.Wait()
		if got := b.fired(); got != "1 0" {
			t.Errorf("fired and ended %s, want 1 0", got)
		}
	})
}

// TestClockSetBack: a clock that is set back neither stops a rule nor makes it fire
// twice.
func TestClockSetBack(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, c *db.Cluster) {
		b := newBench(t, c)
		b.rule(Draft{Trigger: denials, Frequency: Frequency{Window: 60, Cooldown: new(3600)}})
		b.decide(0, 10)
		b.evaluate()
		b.clock.Move(-3 * time.Hour)
		b.decide(10, 0)
		b.evaluate()
		if got := b.fired(); got != "1 1" {
			t.Errorf("after the clock went back: fired and ended %s, want 1 1", got)
		}
		b.clock.Move(time.Minute)
		b.decide(0, 10)
		b.evaluate()
		b.evaluate()
		if got := b.fired(); got != "2 1" {
			t.Errorf("a minute later: fired and ended %s, want 2 1", got)
		}
	})
}

// TestMetrics: each metric has the value that a person would compute.
func TestMetrics(t *testing.T) {
	var r stats.Rollup
	r.Count(stats.Decided{Permitted: true, N: 70, TotalUS: 70 * 1000, EachUS: 1000})
	r.Count(stats.Decided{Permitted: true, Masked: true, N: 10, TotalUS: 10 * 1000, EachUS: 1000})
	r.Count(stats.Decided{N: 20, Errors: 5, TotalUS: 20 * 51000, EachUS: 51000})
	for metric, want := range map[string]float64{
		"denial_rate": 20, "error_rate": 5, "mask_rate": 10, "decision_count": 100, "denial_count": 20, "error_count": 5, "latency_avg": 11, "latency_p50": 1, "latency_p95": 51, "latency_p99": 51,
	} {
		if got, there := measure(metric, &r); !there || got < want*0.87 || got > want*1.13 {
			t.Errorf("measure of %s = %v, want about %v", metric, got, want)
		}
		_, there := measure(metric, &stats.Rollup{})
		if there != strings.HasSuffix(metric, "_count") {
			t.Errorf("measure of %s without decisions: has a value: %v", metric, there)
		}
	}
	for _, o := range []struct {
		operator string
		value    float64
		want     bool
	}{{">", 20, false}, {">", 20.1, true}, {">=", 20, true}, {">=", 19, false}, {"==", 20, true}, {"==", 20.5, false}} {
		tr := Trigger{Operator: o.operator, Threshold: 20}
		if tr.holds(o.value, true) != o.want || tr.holds(o.value, false) {
			t.Errorf("%v %s 20: holds = %v, want %v, and false without a value", o.value, o.operator, tr.holds(o.value, true), o.want)
		}
	}
}

// TestFilters: a rule with a filter reads only its own series, that rules with the same
// filter share a series, and that a rule whose object was deleted says so.
func TestFilters(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, c *db.Cluster) {
		ctx := context.Background()
		b := newBench(t, c)
		filter := Filter{ResourceID: "7", SubjectID: "bob"}
		for _, name := range []string{"one", "two"} {
			b.rule(Draft{Name: name, Trigger: Trigger{Metric: "denial_count", Filter: filter, Operator: ">=", Threshold: 3}})
		}
		b.rule(Draft{Name: "other", Trigger: Trigger{Metric: "denial_count", Filter: Filter{BouncerID: 9}, Operator: ">=", Threshold: 3}})
		if n := b.count(`SELECT COUNT(*) FROM decision_series`); n != 2 {
			t.Errorf("%d series, want 2", n)
		}
		b.decide(0, 50)
		b.evaluate()
		if got := b.fired(); got != "0 0" {
			t.Errorf("after decisions of others: fired and ended %s, want 0 0", got)
		}
		b.clock.Move(time.Minute)
		b.decide(0, 3, stats.Series{Environment: scope.Sandbox, Resource: "7", Subject: "bob"})
		b.evaluate()
		if got := b.fired(); got != "2 0" {
			t.Errorf("after its own decisions: fired and ended %s, want 2 0", got)
		}
		b.gone[7] = true
		page, err := b.List(ctx, admin, 0, 10)
		if err != nil || page.Total != 3 || !strings.Contains(page.Rules[0].Problem, "resource 7") || page.Rules[2].Problem != "" {
			t.Errorf("List = %+v, %v, want the deleted resource named", page, err)
		}
		if _, err := b.Create(ctx, admin, Draft{Name: "late", Trigger: Trigger{Metric: "denial_count", Filter: filter, Operator: ">", Threshold: 1}}); err == nil {
			t.Error("Create with a deleted resource succeeds, want an error")
		}
		off := false
		for _, r := range page.Rules {
			if _, err := b.Update(ctx, admin, r.ID, Change{Enabled: &off}, r.ChangeNo); err != nil {
				t.Errorf("Update to disable %s: %v", r.Name, err)
			}
		}
		if n := b.count(`SELECT COUNT(*) FROM decision_series`); n != 0 {
			t.Errorf("%d series remain without a rule, want none", n)
		}
	})
}

// TestAuditEntries: entries of the administrative log are counted, except those of the
// rules themselves.
func TestAuditEntries(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, c *db.Cluster) {
		b := newBench(t, c)
		b.rule(Draft{Trigger: Trigger{Metric: auditEvents, Filter: Filter{EventType: "POLICY_DELETED"}, Operator: ">=", Threshold: 2}, Frequency: Frequency{Window: 600, Cooldown: new(0)}})
		b.rule(Draft{Name: "any", Trigger: Trigger{Metric: auditEvents, Operator: ">=", Threshold: 3}, Frequency: Frequency{Window: 600, Cooldown: new(0)}})
		b.clock.Move(5 * time.Minute)
		for i := range 2 {
			b.write(func(tx *db.Tx) error {
				_, err := tx.Exec(context.Background(), `INSERT INTO audit_events (seq, at, type, object, object_id, object_name, environment, actor_kind, actor_id, actor_name,
					ip_address, request_id, changes, event_context, hash) VALUES ($1, $2, 'POLICY_DELETED', 'policy', '1', '', 'sandbox', '', '', '', '', '', '{}', '{}', '')`,
					1000+i, b.clock.Now().Add(-2*time.Minute))
				return err
			})
		}
		b.clock.Move(5 * time.Minute)
		b.evaluate()
		if got := b.fired(); got != "1 0" {
			t.Errorf("fired and ended %s, want 1 0", got)
		}
	})
}

// TestPreviewIsWhatHappens: a preview of the past has the results of the evaluations.
func TestPreviewIsWhatHappens(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, c *db.Cluster) {
		b := newBench(t, c)
		d := Draft{Trigger: denials, Frequency: Frequency{Window: 120, Cooldown: new(300), MaxFires: 3}}
		b.rule(d)
		for i := range 60 {
			b.clock.Move(time.Minute)
			denied := int64(0)
			if i%20 > 10 {
				denied = 8
			}
			b.decide(10, denied)
			b.evaluate()
		}
		p, err := b.Preview(context.Background(), admin, d)
		errtest.Must(t, err)
		if got := fmt.Sprint(p.Fires, " ", p.Resolved); got != b.fired() || p.Fires == 0 || p.Resolved == 0 || len(p.Firings) != p.Fires || p.Held == 0 {
			t.Errorf("Preview = %s of %+v, want %s as the evaluations", got, p, b.fired())
		}
		if p.Until.Sub(p.Since) < previewed || p.Highest == nil || *p.Highest < 40 {
			t.Errorf("Preview = %+v, want a highest value of at least 40", p)
		}
	})
}

// TestWhoIsTold: the channels of a rule are notified, also when a firing rule is removed.
func TestWhoIsTold(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, c *db.Cluster) {
		ctx := context.Background()
		b := newBench(t, c)
		for i, env := range []string{"sandbox", "sandbox", "production"} {
			b.write(func(tx *db.Tx) error {
				_, err := tx.Exec(ctx, `INSERT INTO notification_channels (name, type, endpoint, environment, severity_threshold, severity_rank, max_attempts, enabled,
					settings, credential, created_by, created_at, updated_at, change_no) VALUES ($1, 'webhook', 'https://x', $2, 'info', 0, 5, TRUE, '{}', $3, '', 0, 0, 1)`,
					fmt.Sprint("c", i), env, []byte{})
				return err
			})
		}
		if _, err := b.Create(ctx, admin, Draft{Name: "x", Trigger: denials, Channels: []int64{1, 3}}); err == nil {
			t.Error("Create with a channel of the other environment succeeds, want an error")
		}
		r := b.rule(Draft{Trigger: denials, Channels: []int64{2}})
		b.decide(0, 10)
		b.evaluate()
		if n := b.count(`SELECT COUNT(*) FROM notification_deliveries`); n != 1 || b.count(`SELECT channel_id FROM notification_deliveries`) != 2 {
			t.Errorf("%d messages, want 1 to the channel 2", n)
		}
		errtest.Must(t, b.Delete(ctx, admin, r.ID, 0))
		if n := b.count(`SELECT COUNT(*) FROM notification_deliveries WHERE message LIKE '%"status":"resolved"%'`); n != 1 {
			t.Errorf("%d messages about the end, want 1", n)
		}
	})
}

// BenchmarkEvaluate measures one minute of a tenant with the maximum number of rules, each with a
// different window, and an hour of decisions.
func BenchmarkEvaluate(bm *testing.B) {
	b := newBench(bm, dbtest.Open(bm, dbtest.SQLite))
	for i := range MaxRules {
		b.rule(Draft{Name: fmt.Sprint("rule ", i), Trigger: Trigger{Metric: "latency_p99", Operator: ">", Threshold: 1e6}, Frequency: Frequency{Window: 60 * (i + 1)}})
	}
	for range 60 {
		b.clock.Move(time.Minute)
		b.decide(100, 10)
	}
	for bm.Loop() {
		b.clock.Move(time.Minute)
		b.evaluate()
	}
}
