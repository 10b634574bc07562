package dashboard

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/audit"
	"github.com/gatehouse-dev/gatehouse/internal/audit/stats"
	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/db/dbtest"
	"github.com/gatehouse-dev/gatehouse/internal/errtest"
	"github.com/gatehouse-dev/gatehouse/internal/fulltest"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
	"github.com/gatehouse-dev/gatehouse/internal/spool"
)

var noon = time.Date(2026, 11, 20, 12, 34, 56, 0, time.UTC)

// house is the dashboard of a tenant, with a decision log that stores its records.
type house struct {
	*Service
	t   testing.TB
	now time.Time
	dir string // directory of the spool
	log *spool.Log
}

func newHouse(t testing.TB, c *db.Cluster, dir string) *house {
	t.Helper()
	h := &house{t: t, now: noon, dir: dir}
	var err error
	if h.log, err = spool.Open(spool.Config{Dir: dir, Sync: spool.SyncNever}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = h.log.Close() })
	clock := func() time.Time { return h.now }
	h.Service = &Service{
		Stores: c, Now: clock,
		Log:       audit.NewDecisionLog(audit.Config{Cluster: c, Spool: h.log, SetAside: t.TempDir(), Now: clock, Logger: slog.New(slog.NewTextHandler(io.Discard, nil))}),
		Controls:  func(context.Context, *db.Tx, scope.Env) (Controls, error) { return Controls{}, nil },
		Anomalies: func(context.Context, *db.Tx, scope.Env, time.Time) (int64, error) { return 0, nil },
	}
	return h
}

// record records decisions in the log.
func (h *house) record(ds []audit.Decision) {
	h.t.Helper()
	for len(ds) > 0 {
		n := min(len(ds), 1000)
		if err := h.Log.RecordAll(scope.DefaultTenant, ds[:n]); err != nil {
			h.t.Fatal(err)
		}
		ds = ds[n:]
	}
}

// ship waits until all recorded decisions are stored.
func (h *house) ship() {
	h.t.Helper()
	ctx, end := context.WithTimeout(context.Background(), 10*time.Minute)
	defer end()
	done := make(chan error, 1)
	go func() { done <- h.Log.Run(ctx) }()
	for h.Log.Pending() > 0 && ctx.Err() == nil {
		h.Log.WaitShipped(ctx)
	}
	end()
	if err := <-done; err != nil || h.Log.Pending() > 0 {
		h.t.Fatalf("Run: %v; %d decisions wait, want none", err, h.Log.Pending())
	}
}

func (h *house) stats(env scope.Env) Stats {
	h.t.Helper()
	out, err := h.Stats(context.Background(), scope.Scope{Tenant: scope.DefaultTenant, Env: env})
	if err != nil {
		h.t.Fatal(err)
	}
	return out
}

// draw returns a random decision from the period within before a time.
func draw(r *rand.Rand, id string, before time.Time, within time.Duration) audit.Decision {
	d := audit.Decision{
		DecisionID: id, Timestamp: before.Add(-time.Duration(r.Int64N(int64(within)))).Truncate(time.Microsecond),
		Environment: []scope.Env{scope.Production, scope.Sandbox}[r.IntN(2)], Decision: audit.Permit, Effect: "ALLOW",
		EvaluationTimeMS: math.Round(1000*math.Exp(-2+r.NormFloat64())) / 1000, AuditLevel: []audit.Level{audit.None, audit.Basic, audit.Detailed}[r.IntN(3)],
	}
	if r.IntN(3) == 0 {
		d.Decision, d.Effect = audit.Deny, "DENY"
		if d.PolicyID = r.Int64N(3); d.PolicyID != 0 && r.IntN(4) == 0 {
			d.Error = "evaluation_limit"
		}
	}
	return d
}

// expected computes the figures of Stats from the decisions, by the definition of each field. A day
// and an hour are accurate to the minute, and a minute to ten seconds.
func expected(ds []audit.Decision, env scope.Env, now time.Time) Stats {
	var s Stats
	var permitted int64
	var times []float64
	began := func(d time.Duration, step time.Duration) time.Time { return now.Truncate(step).Add(step - d) }
	for _, d := range ds {
		if env != scope.AnyEnv && d.Environment != env || d.Timestamp.After(now) {
			continue
		}
		if !d.Timestamp.Before(began(24*time.Hour, time.Minute)) {
			s.Decisions24h++
			if d.Decision == audit.Permit {
				permitted++
			}
		}
		if !d.Timestamp.Before(began(time.Minute, 10*time.Second)) {
			s.RealTime.RequestsPerMinute++
		}
		if d.Timestamp.Before(began(time.Hour, time.Minute)) {
			continue
		}
		s.RealTime.RequestsPerHour++
		times = append(times, d.EvaluationTimeMS)
		if d.Error != "" {
			s.RealTime.Errors++
		}
		if d.Decision == audit.Deny && d.PolicyID != 0 {
			s.RealTime.PolicyDenials++
		}
	}
	if s.Decisions24h > 0 {
		s.AllowedPercentage = math.Round(100_000*float64(permitted)/float64(s.Decisions24h)) / 1000
		s.DeniedPercentage = math.Round(100_000*float64(s.Decisions24h-permitted)/float64(s.Decisions24h)) / 1000
	}
	if s.RealTime.RequestsPerHour > 0 {
		s.RealTime.ErrorRate = math.Round(100_000*float64(s.RealTime.Errors)/float64(s.RealTime.RequestsPerHour)) / 1000
	}
	slices.Sort(times)
	at := func(q float64) float64 {
		if len(times) == 0 {
			return 0
		}
		return times[int(q*float64(len(times)))]
	}
	s.RealTime.LatencyP50, s.RealTime.LatencyP95, s.RealTime.LatencyP99 = at(0.5), at(0.95), at(0.99)
	return s
}

// hold compares the figures of Stats with the expected ones. Percentiles may differ by an eighth
// and two microseconds.
func (h *house) hold(ds []audit.Decision, what string) {
	h.t.Helper()
	for _, env := range []scope.Env{scope.AnyEnv, scope.Sandbox, scope.Production} {
		got, want := h.stats(env), expected(ds, env, h.now)
		for name, pair := range map[string][2]float64{
			"p50": {got.RealTime.LatencyP50, want.RealTime.LatencyP50},
			"p95": {got.RealTime.LatencyP95, want.RealTime.LatencyP95},
			"p99": {got.RealTime.LatencyP99, want.RealTime.LatencyP99},
		} {
			if math.Abs(pair[0]-pair[1]) > pair[1]/8+0.002 {
				h.t.Errorf("%s, %q: %s = %v, want about %v", what, env, name, pair[0], pair[1])
			}
		}
		got.RealTime.LatencyP50, got.RealTime.LatencyP95, got.RealTime.LatencyP99 = 0, 0, 0
		want.RealTime.LatencyP50, want.RealTime.LatencyP95, want.RealTime.LatencyP99 = 0, 0, 0
		want.RealTime.HealthScore = 100 // there are no bouncers
		if got != want {
			h.t.Errorf("%s, %q: statistics\n%+v, want\n%+v", what, env, got, want)
		}
	}
}

// TestStatsCountEachDecision checks each figure with a known set of decisions, also at the edges of
// its window.
func TestStatsCountEachDecision(t *testing.T) {
	t.Parallel()
	dbtest.Both(t, func(t *testing.T, c *db.Cluster) {
		h := newHouse(t, c, t.TempDir())
		h.hold(nil, "with no decisions")
		r := rand.New(rand.NewPCG(1, 2))
		var ds []audit.Decision
		for i := range 700 {
			within := []time.Duration{90 * time.Second, 70 * time.Minute, 26 * time.Hour}[i%3]
			ds = append(ds, draw(r, fmt.Sprint("d-", i), noon, within))
		}
		for i, edge := range []time.Duration{time.Minute, time.Hour, 24 * time.Hour} { // both sides of each edge
			for j, step := range []time.Duration{10 * time.Second, time.Minute} {
				for k, beside := range []time.Duration{-time.Microsecond, 0} {
					d := draw(r, fmt.Sprint("edge-", i, j, k), noon, time.Second)
					d.Timestamp = noon.Truncate(step).Add(step - edge + beside)
					ds = append(ds, d)
				}
			}
		}
		h.record(ds)
		h.ship()
		for _, later := range []time.Duration{0, 4 * time.Second, time.Minute, 30 * time.Minute, 2 * time.Hour, 25 * time.Hour} {
			h.now = noon.Add(later)
			h.hold(ds, "after "+later.String())
		}
	})
}

// TestStatsAfterACrash: a process that is killed after it stored decisions, but before it recorded
// that, stores them again after its restart. They count once, and the dashboard agrees with the
// log.
func TestStatsAfterACrash(t *testing.T) {
	fulltest.Only(t)
	dbtest.Both(t, func(t *testing.T, c *db.Cluster) {
		r := rand.New(rand.NewPCG(3, 4))
		var ds []audit.Decision
		for i := range 300 {
			d := draw(r, fmt.Sprint("d-", i), noon, 3*time.Hour)
			d.AuditLevel = audit.Basic
			ds = append(ds, d)
		}
		first := newHouse(t, c, t.TempDir())
		first.record(ds)
		left := t.TempDir() // the content of the disk when the process is killed
		errtest.Must(t, os.CopyFS(left, os.DirFS(first.dir)))
		first.ship()
		first.hold(ds, "before the crash")
		second := newHouse(t, c, left)
		if second.Log.Pending() == 0 {
			t.Fatal("no decision waits for the second server")
		}
		more := draw(r, "after", noon, time.Minute)
		more.AuditLevel = audit.Basic
		second.record([]audit.Decision{more})
		second.ship()
		ds = append(ds, more)
		second.hold(ds, "after the crash")
		page, err := second.Log.Query(context.Background(), scope.Scope{Tenant: scope.DefaultTenant}, audit.Filter{Limit: 1})
		if err != nil || page.Total != int64(len(ds)) {
			t.Errorf("log = %d decisions, %v, want %d", page.Total, err, len(ds))
		}
		if got := second.stats(scope.AnyEnv).Decisions24h; got != page.Total {
			t.Errorf("decisions of the dashboard = %d, want %d as in the log", got, page.Total)
		}
	})
}

// BenchmarkStats measures GET /dashboard/stats without HTTP, with a million decisions in the last
// 24 hours, or with the number in GATEHOUSE_BENCH_DECISIONS.
func BenchmarkStats(b *testing.B) {
	n := 1_000_000
	if text := os.Getenv("GATEHOUSE_BENCH_DECISIONS"); text != "" {
		var err error
		if n, err = strconv.Atoi(text); err != nil {
			b.Fatal(err)
		}
	}
	for _, backend := range []string{dbtest.SQLite, dbtest.Postgres} {
		b.Run(backend, func(b *testing.B) {
			h := newHouse(b, dbtest.Open(b, backend), b.TempDir())
			r := rand.New(rand.NewPCG(5, 6))
			for from := 0; from < n; from += 50_000 {
				ds := make([]audit.Decision, 0, 50_000)
				for i := from; i < min(n, from+50_000); i++ {
					d := draw(r, strconv.Itoa(i), noon, 24*time.Hour-time.Minute)
					d.AuditLevel = audit.Basic
					ds = append(ds, d)
				}
				h.record(ds)
				h.ship()
			}
			if got := h.stats(scope.AnyEnv).Decisions24h; got < int64(n)*99/100 {
				b.Fatalf("%d decisions are counted, want about %d", got, n)
			}
			for b.Loop() {
				h.stats(scope.AnyEnv)
			}
		})
	}
}

// TestSpans: the sums that are read from whole hours, plus or minus some minutes, equal the sums of
// all minutes, for any start and end.
func TestSpans(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, c *db.Cluster) {
		h := newHouse(t, c, t.TempDir())
		r := rand.New(rand.NewPCG(7, 8))
		ds := make([]audit.Decision, 0, 3000)
		for i := range cap(ds) {
			ds = append(ds, draw(r, strconv.Itoa(i), noon.Add(2*time.Hour), 26*time.Hour))
		}
		h.record(ds)
		h.ship()
		for range 150 {
			to := noon.Add(-time.Duration(r.IntN(20*60)) * time.Minute).Add(time.Duration(r.IntN(60)) * time.Second)
			from := to.Add(-time.Duration(r.IntN(150)) * time.Minute)
			sc := scope.Scope{Tenant: scope.DefaultTenant, Env: []scope.Env{scope.AnyEnv, scope.Production, scope.Sandbox}[r.IntN(3)]}
			rows, err := h.Log.Rollups(t.Context(), sc, stats.Minute, from, to)
			errtest.Must(t, err)
			want := stats.Rollup{Start: stats.Minute.Start(from)}
			for i := range rows {
				want.Merge(&rows[i])
			}
			if got, err := h.Log.Minutes(t.Context(), sc, from, to); err != nil || got != want {
				t.Fatalf("Minutes from %s to %s = %d decisions, %v, want %d", from, to, got.Total(), err, want.Total())
			}
			if got, err := h.Log.Outcomes(t.Context(), sc, from, to); err != nil || got.Permitted != want.Permitted || got.Denied != want.Denied {
				t.Fatalf("Outcomes from %s to %s = %d, %v, want %d", from, to, got.Total(), err, want.Total())
			}
		}
	})
}
