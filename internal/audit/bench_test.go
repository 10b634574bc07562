package audit

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/db/dbtest"
	"github.com/gatehouse-dev/gatehouse/internal/errtest"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

// TestMillionRows loads a million decisions, logs how long every kind of page takes, with both counts,
// and verifies the log. It takes minutes:
//
//	GATEHOUSE_AUDIT_ROWS=1000000 go test -run TestMillionRows -v -timeout 30m ./internal/audit
func TestMillionRows(t *testing.T) {
	n := 0
	if _, err := fmt.Sscan(os.Getenv("GATEHOUSE_AUDIT_ROWS"), &n); err != nil || n <= 0 {
		t.Skip("GATEHOUSE_AUDIT_ROWS is not set")
	}
	for _, backend := range []string{dbtest.SQLite, dbtest.Postgres} {
		t.Run(backend, func(t *testing.T) {
			cfg := dbtest.Config(t, backend)
			c := dbtest.OpenConfig(t, cfg)
			l := storeOnly(t, c, at(noon))
			took := load(t, l, 0, n, 30*day)
			t.Logf("loaded %d rows in %s: %.0f rows/s", n, took.Round(time.Millisecond), float64(n)/took.Seconds())
			vacuum(t, cfg)
			for _, q := range filters() {
				measure(t, l, q.name, q.f)
			}
			began := time.Now()
			wantValid(t, l, admin)
			t.Logf("verified in %s", time.Since(began).Round(time.Millisecond))
			prune(t, l)
		})
	}
}

// vacuum runs VACUUM ANALYZE, because autovacuum is off on the test servers.
func vacuum(t *testing.T, cfg db.Config) {
	t.Helper()
	if cfg.URL == "" {
		return
	}
	ctx := context.Background()
	conn, err := pgx.Connect(ctx, cfg.URL)
	errtest.Must(t, err)
	defer conn.Close(ctx)
	for _, table := range []string{"decisions", "decision_counts"} {
		errtest.Must(t, errtest.Of(conn.Exec(ctx, `VACUUM ANALYZE "t_default".`+table)))
	}
}

// prune runs retention for some seconds on a log that is completely past its retention, and
// measures how long a writer waits meanwhile.
func prune(t *testing.T, l *DecisionLog) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 8*time.Second)
	defer cancel()
	old := *storeOnly(t, l.cfg.Cluster, at(noon.Add(100*day)))
	done := make(chan int64)
	go func() {
		n, _ := old.Retain(ctx, scope.DefaultTenant)
		done <- n
	}()
	var times []time.Duration
	for i := 0; ctx.Err() == nil; i++ {
		began := time.Now()
		l.put(t, scope.DefaultTenant, Decision{DecisionID: fmt.Sprint("during-", i), Timestamp: noon, Decision: Permit, Environment: scope.Production})
		times = append(times, time.Since(began))
	}
	removed := <-done
	slices.Sort(times)
	t.Logf("retention removed %d rows in 8 s; %d writes meanwhile: median %s, p99 %s, worst %s", removed, len(times), times[len(times)/2], times[len(times)*99/100], times[len(times)-1])
}

const loadBatch = maxBatch

// load spreads n decisions of a part over a time up to noon: 2,000 users, of whom one makes half
// of all requests, 200 controls, of which one decides a quarter, one denial in
// twenty, and one in ten thousand in sandbox.
func load(t testing.TB, l *DecisionLog, part, n int, over time.Duration) time.Duration {
	t.Helper()
	r := rand.New(rand.NewPCG(7, uint64(part)))
	name := "orders may be read by their department"
	start := noon.Add(-over)
	step := over / time.Duration(n)
	rows := make([]row, 0, loadBatch)
	var spent time.Duration
	for i := range n {
		d := Decision{
			DecisionID: fmt.Sprintf("0197a3f0-%04x-7000-%04x-%012x", r.IntN(65536), part, i), Timestamp: start.Add(step * time.Duration(i)), Decision: Permit, Effect: "ALLOW",
			User: User{ID: fmt.Sprintf("user-%04d", r.IntN(2000)), Email: "someone@example.com"}, Resource: Resource{Type: "api", Path: "/orders/17"}, Action: "read",
			PolicyID: 1 + int64(r.IntN(200)), PolicyName: &name, Reason: "department matches", EvaluationTimeMS: 0.03 * math.Exp(0.6*r.NormFloat64()), IPAddress: "10.0.0.1", Environment: scope.Production,
			AuditLevel: Basic, RequestID: "req-123",
		}
		if r.IntN(2) == 0 {
			d.User.ID = "svc-batch"
		}
		if r.IntN(4) == 0 {
			d.PolicyID = 1
		}
		d.ResourceID = 1 + d.PolicyID%50
		if r.IntN(20) == 0 {
			d.Decision, d.Effect = Deny, "DENY"
		}
		if r.IntN(10000) == 0 {
			d.Environment = scope.Sandbox
		}
		row := rowOf(t, &d)
		if rows = append(rows, row); len(rows) == loadBatch || i == n-1 {
			began := time.Now()
			errtest.Must(t, l.store(context.Background(), scope.DefaultTenant, rows))
			spent += time.Since(began)
			rows = rows[:0]
		}
	}
	return spent
}

type namedFilter struct {
	name string
	f    Filter
}

func filters() []namedFilter {
	odd := noon.Add(-9*day - 17*time.Minute - 13*time.Second)
	return []namedFilter{
		{"nothing", Filter{}},
		{"nothing, 1000 rows", Filter{Limit: 1000}},
		{"decision", Filter{Decision: Permit}},
		{"rare environment", Filter{Environment: scope.Sandbox}},
		{"window", Filter{Start: odd, End: odd.Add(5 * day)}},
		{"user", Filter{UserID: "user-0042"}},
		{"heavy user", Filter{UserID: "svc-batch"}},
		{"heavy user, window", Filter{UserID: "svc-batch", Start: odd}},
		{"policy", Filter{PolicyID: 1, Decision: Deny}},
		{"resource, window", Filter{ResourceID: "2", End: odd}},
		{"policy and resource", Filter{PolicyID: 1, ResourceID: "2"}},
		{"heavy user and policy", Filter{UserID: "svc-batch", PolicyID: 1}},
		{"heavy user and resource, window", Filter{UserID: "svc-batch", ResourceID: "2", Start: odd}},
		{"heavy user and light policy", Filter{UserID: "svc-batch", PolicyID: 77}},
		{"all of them", Filter{UserID: "svc-batch", ResourceID: "2", PolicyID: 1, Decision: Deny, Environment: scope.Production, Start: odd, End: noon}},
		{"nobody", Filter{UserID: "nobody", PolicyID: 1}},
	}
}

// measure runs one query a few times and logs how long it takes.
func measure(t *testing.T, l *DecisionLog, name string, f Filter) {
	t.Helper()
	var times []time.Duration
	var page Page
	for range 7 {
		began := time.Now()
		var err error
		if page, err = l.Query(context.Background(), admin, f); err != nil {
			t.Fatal(err)
		}
		times = append(times, time.Since(began))
	}
	slices.Sort(times)
	t.Logf("%-34s median %8s worst %8s  filtered %7d of %d", name, times[3].Round(10*time.Microsecond), times[6].Round(10*time.Microsecond), page.Filtered, page.Total)
	if times[3] > 200*time.Millisecond {
		t.Errorf("%s took %s, want at most 200 ms", name, times[3])
	}
}

const benchRows = 25_000

// BenchmarkStore measures the cost of storing decisions, from spool record to row, in batches of
// the shipper's size.
func BenchmarkStore(b *testing.B) {
	for _, backend := range []string{dbtest.SQLite, dbtest.Postgres} {
		b.Run(backend, func(b *testing.B) {
			l := storeOnly(b, dbtest.OpenConfig(b, dbtest.Config(b, backend)), at(noon))
			var before, after syscall.Rusage
			_ = syscall.Getrusage(syscall.RUSAGE_SELF, &before)
			part := 0
			for b.Loop() {
				load(b, l, part, benchRows, time.Second)
				part++
			}
			_ = syscall.Getrusage(syscall.RUSAGE_SELF, &after)
			rows := float64(b.N * benchRows)
			cpu := float64(after.Utime.Nano() + after.Stime.Nano() - before.Utime.Nano() - before.Stime.Nano())
			b.ReportMetric(rows/b.Elapsed().Seconds(), "rows/s")
			b.ReportMetric(cpu/rows, "cpu-ns/row")
		})
	}
}
