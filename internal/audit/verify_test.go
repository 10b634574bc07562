package audit

import (
	"context"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/db/dbtest"
	"github.com/gatehouse-dev/gatehouse/internal/errtest"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

// tamper changes rows of the store directly.
func tamper(t *testing.T, c *db.Cluster, statements ...string) {
	t.Helper()
	ctx := context.Background()
	errtest.Must(t, c.Write(ctx, scope.DefaultTenant, func(tx *db.Tx) error {
		for _, s := range statements {
			if n, err := tx.Exec(ctx, s); err != nil || n == 0 {
				t.Errorf("%s changes %d rows: %v", s, n, err)
			}
		}
		return nil
	}))
}

// TestVerify: Verify finds each change of a stored log, and names its chain, position and kind.
func TestVerify(t *testing.T) {
	swap := func(table string) []string {
		return []string{
			`UPDATE ` + table + ` SET seq = 1000 WHERE seq = 7`, `UPDATE ` + table + ` SET seq = 7 WHERE seq = 8`, `UPDATE ` + table + ` SET seq = 8 WHERE seq = 1000`,
		}
	}
	for _, test := range []struct {
		name, chain string
		pos         int64
		kind        string
		do          []string
	}{
		{"one byte of a record", "decisions.basic", 7, "edited", []string{`UPDATE decisions SET record = replace(record, 'read', 'reaD') WHERE seq = 7`}},
		{"a column that is searched by", "decisions.basic", 7, "edited", []string{`UPDATE decisions SET user_id = 'x' WHERE seq = 7`}},
		{"a caller's id", "decisions.basic", 7, "edited", []string{`UPDATE decisions SET caller_id = 'x' WHERE seq = 7`}},
		{"a caller's id that is gone", "decisions.basic", 6, "edited", []string{`UPDATE decisions SET caller_id = NULL WHERE seq = 6`}},
		{"a hash", "decisions.basic", 7, "edited", []string{`UPDATE decisions SET hash = '00' WHERE seq = 7`}},
		{"a deleted row", "decisions.basic", 8, "removed", []string{`DELETE FROM decisions WHERE seq = 7`}},
		{"two rows in each other's place", "decisions.basic", 8, "removed", swap("decisions")},
		{"the newest row", "decisions.basic", 20, "head", []string{`DELETE FROM decisions WHERE seq = 20`}},
		{"an entry's changes", "events", 7, "edited", []string{`UPDATE audit_events SET changes = '{"a":2}' WHERE seq = 7`}},
		{"a deleted entry", "events", 8, "removed", []string{`DELETE FROM audit_events WHERE seq = 7`}},
		{"entries in each other's place", "events", 7, "edited", swap("audit_events")},
		{"the newest entry", "events", 20, "head", []string{`DELETE FROM audit_events WHERE seq = 20`}},
	} {
		t.Run(test.name, func(t *testing.T) {
			dbtest.Each(t, func(t *testing.T, c *db.Cluster) {
				l := storeOnly(t, c, at(noon))
				r := rand.New(rand.NewPCG(3, 4))
				for i := range 20 {
					d := randomDecision(r, i, noon)
					d.AuditLevel = Basic
					l.put(t, scope.DefaultTenant, d)
					appendEntry(t, c, admin, noon, Entry{Type: "X", Changes: map[string]any{"a": 1}})
				}
				rep, err := l.Verify(context.Background(), admin)
				if err != nil || !rep.Valid || len(rep.Chains) != 2 || rep.Chains[0].Checked != 20 {
					t.Fatalf("Verify before the change = %+v, %v, want 2 valid chains of 20", rep, err)
				}
				tamper(t, c, test.do...)
				rep, err = l.Verify(context.Background(), admin)
				if err != nil || rep.Valid {
					t.Fatalf("Verify after the change = %+v, %v, want invalid", rep, err)
				}
				for _, ch := range rep.Chains {
					if (ch.Name == test.chain) == ch.Valid {
						t.Errorf("chain %s is valid: %v, want %v", ch.Name, ch.Valid, !ch.Valid)
					}
					if ch.Name == test.chain && (ch.Breaks[0].Kind != test.kind || ch.Breaks[0].Position != test.pos) {
						t.Errorf("breaks of %s = %+v, want %s at %d", ch.Name, ch.Breaks, test.kind, test.pos)
					}
				}
			})
		})
	}
}

// TestRetention: entries are removed when the time of their level is over, and the rest of the log stays
// valid.
func TestRetention(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, c *db.Cluster) {
		ctx := context.Background()
		now := noon
		l := storeOnly(t, c, func() time.Time { return now })
		r := rand.New(rand.NewPCG(5, 6))
		fresh := map[Level]int64{}
		old := map[Level]int64{}
		for i := range 1200 {
			d := randomDecision(r, i, now)
			if i < 900 {
				old[d.AuditLevel]++
			} else {
				fresh[d.AuditLevel]++
			}
			if i == 900 {
				now = now.Add(60 * day)
			}
			d.Timestamp = now
			l.put(t, scope.DefaultTenant, d)
		}
		appendEntry(t, c, admin, noon, Entry{Type: "OLD"})
		appendEntry(t, c, admin, now, Entry{Type: "NEW"})
		check := func(gone ...Level) {
			t.Helper()
			removed, err := l.Retain(ctx, scope.DefaultTenant)
			errtest.Must(t, err)
			var want int64
			for _, g := range gone {
				want += old[g]
				old[g] = 0
			}
			if removed < want || removed > want+1 {
				t.Errorf("Retain removes %d, want %d", removed, want)
			}
			page, err := l.Query(ctx, admin, Filter{})
			if total := old[Basic] + old[Detailed] + old[Comprehensive] + fresh[Basic] + fresh[Detailed] + fresh[Comprehensive]; err != nil || page.Total != total || page.Filtered != total {
				t.Errorf("Query after Retain: total %d, filtered %d, %v, want %d", page.Total, page.Filtered, err, total)
			}
			wantValid(t, l, admin)
		}
		check()
		now = noon.Add(91 * day)
		check(Basic)
		now = noon.Add(366 * day)
		old[Basic], fresh[Basic] = fresh[Basic], 0
		check(Basic, Detailed)
		now = noon.Add(2556 * day)
		old[Detailed], fresh[Detailed] = fresh[Detailed], 0
		check(Detailed, Comprehensive)
		ev, err := l.Events(ctx, admin, EventFilter{})
		if err != nil || ev.Total != 1 || ev.Events[0].Type != "NEW" {
			t.Errorf("Events after Retain = %+v, %v, want NEW", ev, err)
		}
		d := randomDecision(r, 5000, now)
		d.AuditLevel = Basic
		l.put(t, scope.DefaultTenant, d)
		wantValid(t, l, admin)
	})
}
