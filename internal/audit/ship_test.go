package audit

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/db/dbtest"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
	"github.com/gatehouse-dev/gatehouse/internal/spool"
)

func newLog(c *db.Cluster, s *spool.Log, aside string) *DecisionLog {
	return NewDecisionLog(Config{Cluster: c, Spool: s, SetAside: aside, Now: func() time.Time { return time.Now().UTC() }, Logger: slog.New(slog.NewTextHandler(io.Discard, nil))})
}

// running runs the shipper in the background until the test calls stop.
func running(t *testing.T, l *DecisionLog) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- l.Run(ctx) }()
	return func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run: %v", err)
		}
	}
}

func waitShipped(t *testing.T, s *spool.Log) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	if err := s.Wait(ctx); err != nil {
		t.Fatal(err)
	}
}

func TestEachTenantGetsDecisionsOnce(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, c *db.Cluster) {
		defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
		s := openSpool(t, t.TempDir())
		defer s.Close()
		l := newLog(c, s, t.TempDir())
		stop := running(t, l)
		var wg sync.WaitGroup
		for w := range 8 {
			wg.Go(func() {
				for i := range 100 {
					d := Decision{DecisionID: fmt.Sprintf("%d-%d", w/2, i), Decision: Permit, Environment: scope.Production} // each id twice
					if err := l.Record([]scope.TenantID{scope.DefaultTenant, dbtest.Second, "never-was"}[i%3], &d); err != nil {
						t.Error(err)
					}
				}
			})
		}
		wg.Wait()
		waitShipped(t, s)
		stop()
		for tenant, want := range map[scope.TenantID]int64{scope.DefaultTenant: 4 * 34, dbtest.Second: 4 * 33} {
			sc := admin
			sc.Tenant = tenant
			page, err := l.Query(context.Background(), sc, Filter{})
			if err != nil || page.Total != want || page.Filtered != want {
				t.Errorf("%s: %d of %d, want %d, error %v", tenant, page.Filtered, page.Total, want, err)
			}
			if rep, err := l.Verify(context.Background(), sc); err != nil || !rep.Valid {
				t.Errorf("%s: %+v, error %v", tenant, rep, err)
			}
		}
	})
}

// TestRepeatedAfterACrash ships the same spool twice, as happens after a crash between storing a
// batch and acknowledging it.
func TestRepeatedAfterACrash(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, c *db.Cluster) {
		dir := t.TempDir()
		first := openSpool(t, dir)
		l := newLog(c, first, t.TempDir())
		for i := range 50 {
			d := Decision{DecisionID: fmt.Sprint(i), Decision: Deny, Environment: scope.Production, AuditLevel: []Level{Basic, None}[i%2]}
			if err := l.Record(scope.DefaultTenant, &d); err != nil {
				t.Fatal(err)
			}
		}
		batch, err := first.Next(context.Background(), maxBatch)
		if err != nil || !l.shipAll(context.Background(), batch.Records) {
			t.Fatal("not shipped", err)
		}
		if err := first.Close(); err != nil {
			t.Fatal(err)
		}
		second := openSpool(t, dir)
		l = newLog(c, second, t.TempDir())
		stop := running(t, l)
		waitShipped(t, second)
		stop()
		counts, err := l.Counters(context.Background(), admin, Of{}, time.Now().Add(-time.Hour), time.Now())
		var tally Tally
		for _, b := range counts {
			tally.add(b.Tally)
		}
		if err != nil || tally.Counted != 50 || tally.Logged != 25 {
			t.Errorf("%+v, error %v: want 50 counted, 25 logged", tally, err)
		}
	})
}

func TestQueryReturnsJustRecorded(t *testing.T) {
	c := dbtest.Open(t, dbtest.SQLite)
	l := newLog(c, openSpool(t, t.TempDir()), t.TempDir())
	defer running(t, l)()
	for i := range 20 {
		d := Decision{DecisionID: fmt.Sprint(i), Decision: Permit, Environment: scope.Production}
		if err := l.Record(scope.DefaultTenant, &d); err != nil {
			t.Fatal(err)
		}
		if i == 0 { // the shipper runs from here on
			waitShipped(t, l.cfg.Spool)
		}
		// On an idle machine the first query returns it; a busy one may need several.
		for asked := 1; ; asked++ {
			page, err := l.Query(context.Background(), admin, Filter{})
			if err == nil && page.Total == int64(i+1) {
				break
			}
			if err != nil || asked == 20 {
				t.Fatalf("%d entries after %d, error %v", page.Total, i+1, err)
			}
		}
	}
}

func TestUnreadableRecordsAreSetAside(t *testing.T) {
	c := dbtest.Open(t, dbtest.SQLite)
	s, aside := openSpool(t, t.TempDir()), t.TempDir()
	l := newLog(c, s, aside)
	var alarms int
	l.cfg.Alarm = func(tenant scope.TenantID, _ error) {
		if alarms++; tenant != scope.DefaultTenant {
			t.Errorf("an alarm for the tenant %q", tenant)
		}
	}
	for _, rec := range []string{"rubbish", "1default\n{broken", "1default\n{}"} {
		if err := s.Append([]byte(rec)); err != nil {
			t.Fatal(err)
		}
	}
	d := Decision{DecisionID: "good", Decision: Permit}
	if err := l.Record(scope.DefaultTenant, &d); err != nil {
		t.Fatal(err)
	}
	stop := running(t, l)
	waitShipped(t, s)
	stop()
	// A tenant may be named like that. Its purge does not remove the records of others.
	if err := l.Forget("unreadable"); err != nil {
		t.Fatal(err)
	}
	kept, err := os.ReadFile(filepath.Join(aside, ".unreadable.jsonl"))
	if err != nil || strings.Count(string(kept), "\n") < 3 || alarms != 3 {
		t.Errorf("kept %q, %d alarms, error %v", kept, alarms, err)
	}
	if page, err := l.Query(context.Background(), admin, Filter{}); err != nil || page.Total != 1 {
		t.Errorf("%d entries, error %v", page.Total, err)
	}
}

func TestIngest(t *testing.T) {
	c := dbtest.Open(t, dbtest.SQLite)
	s := openSpool(t, t.TempDir())
	l := newLog(c, s, t.TempDir())
	ds := []Decision{{DecisionID: "a", Decision: Permit}, {}, {DecisionID: strings.Repeat("x", 300)}, {DecisionID: "b", Decision: "odd", Environment: "mars", User: User{ID: strings.Repeat("é", 3000)}}}
	refused, err := l.Ingest(context.Background(), scope.DefaultTenant, ds)
	if err != nil || len(refused) != 2 || refused[0] != 1 || refused[1] != 2 {
		t.Fatalf("refused %v, error %v", refused, err)
	}
	defer running(t, l)()
	waitShipped(t, s)
	page, err := l.Query(context.Background(), admin, Filter{UserID: strings.Repeat("é", 3000)})
	if err != nil || page.Total != 2 || page.Filtered != 1 || page.Logs[0].Decision != Deny || page.Logs[0].Environment != scope.Production {
		t.Errorf("%+v, error %v", page, err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := l.Ingest(context.Background(), scope.DefaultTenant, ds); err == nil || errors.Is(err, context.Canceled) {
		t.Error("a closed spool accepted a decision")
	}
}
