package audit

import (
	"context"
	"fmt"
	"io/fs"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/audit/stats"
	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/db/dbtest"
	"github.com/gatehouse-dev/gatehouse/internal/errtest"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

// TestRollupsAgreeWithTheLog: the roll-ups of every width agree with a plain count of the decisions, at
// every audit level, also if decisions are stored twice.
func TestRollupsAgreeWithTheLog(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, c *db.Cluster) {
		l := storeOnly(t, c, at(noon))
		r := rand.New(rand.NewPCG(3, 4))
		type key struct {
			w     stats.Width
			start time.Time
			env   scope.Env
		}
		want := map[key]*stats.Rollup{}
		var rows []row
		for i := range 600 {
			d := Decision{
				DecisionID: fmt.Sprint(i), Timestamp: noon.Add(-time.Duration(r.Int64N(int64(3 * day)))).Truncate(time.Microsecond),
				Environment: []scope.Env{scope.Production, scope.Sandbox}[r.IntN(2)], Decision: []string{Permit, Deny}[r.IntN(2)],
				PolicyID: r.Int64N(3), EvaluationTimeMS: float64(r.IntN(3000)) / 1000, CacheHit: r.IntN(3) == 0,
				AuditLevel: []Level{None, Basic, Detailed}[r.IntN(3)], Effect: "DENY",
			}
			if d.Decision == Permit {
				d.Effect = []string{"ALLOW", "MASK"}[r.IntN(2)]
			} else if r.IntN(5) == 0 {
				d.Error = "evaluation_limit"
			}
			rw := rowOf(t, &d)
			rows = append(rows, rw)
			if r.IntN(4) == 0 {
				rows = append(rows, rw) // comes twice, counts once
			}
			for _, w := range stats.Widths() {
				k := key{w, w.Start(d.Timestamp), d.Environment}
				if want[k] == nil {
					want[k] = &stats.Rollup{Start: k.start}
				}
				count(want[k], &d)
			}
		}
		for len(rows) > 0 {
			n := min(len(rows), 97)
			errtest.Must(t, l.store(context.Background(), scope.DefaultTenant, rows[:n]))
			rows = rows[n:]
		}
		got := 0
		for _, w := range stats.Widths() {
			for _, env := range []scope.Env{scope.Production, scope.Sandbox} {
				sc := admin
				sc.Env = env
				list, err := l.Rollups(context.Background(), sc, w, noon.Add(-4*day), noon)
				errtest.Must(t, err)
				for _, u := range list {
					got++
					if k := (key{w, u.Start, env}); want[k] == nil || u != *want[k] {
						t.Errorf("roll-up of %v in %s from %s:\n%+v\nwant %+v", time.Duration(w), env, u.Start, u, want[k])
					}
				}
			}
		}
		if got != len(want) {
			t.Errorf("%d roll-ups, want %d", got, len(want))
		}
	})
}

// count adds a decision to a roll-up, independently of Rollup.Count.
func count(u *stats.Rollup, d *Decision) {
	if d.Decision == Permit {
		u.Permitted++
	} else {
		u.Denied++
		if d.PolicyID != 0 {
			u.PolicyDenials++
		}
	}
	if d.Effect == "MASK" {
		u.Masked++
	}
	if d.Error != "" {
		u.Errors++
	}
	if d.CacheHit {
		u.CacheHits++
	}
	us := int64(d.EvaluationTimeMS * 1000)
	u.EvaluationUS += us
	u.Latencies.Add(us, 1)
}

// TestRollupsEnd: retention removes the roll-ups of each width at their own time.
func TestRollupsEnd(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, c *db.Cluster) {
		l := storeOnly(t, c, at(noon))
		for i, age := range []time.Duration{0, 4 * time.Hour, 3 * day, 40 * day, 900 * day} {
			d := Decision{DecisionID: fmt.Sprint(i), Timestamp: noon.Add(-age), Environment: scope.Production, Decision: Permit, AuditLevel: None}
			errtest.Must(t, l.store(context.Background(), scope.DefaultTenant, []row{rowOf(t, &d)}))
		}
		errtest.Must(t, errtest.Of(l.Retain(context.Background(), scope.DefaultTenant)))
		for w, want := range map[stats.Width]int{stats.TenSeconds: 1, stats.Minute: 3, stats.Hour: 3, stats.Day: 3} {
			list, err := l.Rollups(context.Background(), admin, w, noon.Add(-1000*day), noon)
			if err != nil || len(list) != want {
				t.Errorf("%d roll-ups of %v after retention, %v, want %d", len(list), time.Duration(w), err, want)
			}
			for _, r := range list { // the histograms of minutes are removed before their counts
				if kept := w != stats.Minute || r.Start.After(noon.Add(-2*day)); (r.Latencies.Count() > 0) != kept || r.Total() == 0 {
					t.Errorf("roll-up of %v from %s: %d decisions, %d latencies, want latencies: %t", time.Duration(w), r.Start, r.Total(), r.Latencies.Count(), kept)
				}
			}
		}
	})
}

// BenchmarkRollupsOfADay reads the roll-ups that the dashboard reads, for a day with decisions in
// every ten seconds in both environments.
func BenchmarkRollupsOfADay(b *testing.B) {
	for _, backend := range []string{dbtest.SQLite, dbtest.Postgres} {
		b.Run(backend, func(b *testing.B) {
			c := dbtest.Open(b, backend)
			l := storeOnly(b, c, at(noon))
			r := rand.New(rand.NewPCG(5, 6))
			for hours := range 25 {
				rs := stats.Rollups{}
				for slot := range 360 {
					for _, env := range []scope.Env{scope.Production, scope.Sandbox} {
						start := noon.Add(-time.Duration(hours)*hour - time.Duration(slot)*10*time.Second)
						for i := range 20 {
							us := int64(math.Exp(4 + r.NormFloat64()))
							rs.Add(stats.Decided{At: start, Environment: string(env), Permitted: i < 17, ByControl: i == 19, N: 6, Errors: int64(i / 19), CacheHits: 3, TotalUS: 6 * us, EachUS: us})
						}
					}
				}
				err := c.Write(context.Background(), scope.DefaultTenant, func(tx *db.Tx) error { return stats.Store(context.Background(), tx, rs) })
				errtest.Must(b, err)
			}
			for b.Loop() {
				for _, part := range []struct {
					w    stats.Width
					back time.Duration
				}{{stats.TenSeconds, time.Minute}, {stats.Minute, hour}, {stats.Hour, day}} {
					errtest.Must(b, errtest.Of(l.Totals(context.Background(), admin, part.w, noon.Add(-part.back), noon)))
				}
			}
		})
	}
}

// TestRollupsOfOlderVersions: the migration derives the roll-ups of hours and days from the counters of
// older versions as if they had been counted.
func TestRollupsOfOlderVersions(t *testing.T) {
	text, err := fs.ReadFile(db.Migrations(), "migrations/tenant/0100_rollups.sql")
	errtest.Must(t, err)
	var fills []string
	for s := range strings.SplitSeq(string(text), ";") {
		if i := strings.Index(s, "INSERT INTO decision_rollups"); i >= 0 {
			fills = append(fills, s[i:])
		}
	}
	dbtest.Each(t, func(t *testing.T, c *db.Cluster) {
		l := storeOnly(t, c, at(noon))
		r := rand.New(rand.NewPCG(8, 9))
		var rows []row
		for i := range 200 {
			d := Decision{
				DecisionID: fmt.Sprint(i), Timestamp: noon.Add(-time.Duration(r.Int64N(int64(3 * day)))), Environment: scope.Production,
				Decision: []string{Permit, Deny}[r.IntN(2)], PolicyID: r.Int64N(3), AuditLevel: Basic, Resource: Resource{ID: fmt.Sprint(r.IntN(4))},
			}
			if d.Decision == Deny && r.IntN(3) == 0 {
				d.Error = "evaluation_limit"
			}
			rows = append(rows, rowOf(t, &d))
		}
		ctx := context.Background()
		errtest.Must(t, l.store(ctx, scope.DefaultTenant, rows))
		read := func(w stats.Width) (out []stats.Rollup) {
			list, err := l.Rollups(ctx, admin, w, noon.Add(-4*day), noon)
			errtest.Must(t, err)
			for _, u := range list {
				out = append(out, stats.Rollup{Start: u.Start, Permitted: u.Permitted, Denied: u.Denied, PolicyDenials: u.PolicyDenials, Errors: u.Errors})
			}
			return out
		}
		wantHours, wantDays := read(stats.Hour), read(stats.Day)
		err := c.Write(ctx, scope.DefaultTenant, func(tx *db.Tx) error {
			for _, sql := range append([]string{`DELETE FROM decision_rollups`}, fills...) {
				if _, err := tx.Exec(ctx, sql); err != nil {
					return err
				}
			}
			return nil
		})
		errtest.Must(t, err)
		if hours, days := read(stats.Hour), read(stats.Day); !slices.Equal(hours, wantHours) || !slices.Equal(days, wantDays) || len(fills) != 3 {
			t.Errorf("%d fills, want 3; hours %+v\nwant %+v\ndays %+v\nwant %+v", len(fills), hours, wantHours, days, wantDays)
		}
	})
}
