package audit

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/db/dbtest"
	"github.com/gatehouse-dev/gatehouse/internal/errtest"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
	"github.com/gatehouse-dev/gatehouse/internal/spool"
)

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

// waitShipped waits until all records of a spool are in the store.
func waitShipped(t *testing.T, s *spool.Log) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	errtest.Must(t, s.Wait(ctx))
}

// runUntilShipped runs the shipper until all records are in the store.
func runUntilShipped(t *testing.T, l *DecisionLog) {
	t.Helper()
	stop := running(t, l)
	waitShipped(t, l.cfg.Spool)
	stop()
}

// TestEachTenantGetsDecisionsOnce: decisions reach the store of their own tenant, each once, also when
// several callers record them concurrently. Those of an unknown tenant go nowhere.
func TestEachTenantGetsDecisionsOnce(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, c *db.Cluster) {
		defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
		s := openSpool(t, t.TempDir())
		defer s.Close()
		l := newLog(t, Config{Cluster: c, Spool: s})
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
				t.Errorf("Query of %s: filtered %d of %d, %v, want %d", tenant, page.Filtered, page.Total, err, want)
			}
			wantValid(t, l, sc)
		}
	})
}

// TestRepeatedAfterACrash: a spool that is shipped twice is stored once. That happens after a crash
// between storing a batch and acknowledging it.
func TestRepeatedAfterACrash(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, c *db.Cluster) {
		dir := t.TempDir()
		first := openSpool(t, dir)
		l := newLog(t, Config{Cluster: c, Spool: first})
		for i := range 50 {
			d := Decision{DecisionID: fmt.Sprint(i), Decision: Deny, Environment: scope.Production, AuditLevel: []Level{Basic, None}[i%2]}
			errtest.Must(t, l.Record(scope.DefaultTenant, &d))
		}
		batch, err := first.Next(context.Background(), maxBatch)
		if err != nil || !l.shipAll(context.Background(), batch.Records) {
			t.Fatalf("shipAll fails; Next: %v", err)
		}
		errtest.Must(t, first.Close())
		l = newLog(t, Config{Cluster: c, Spool: openSpool(t, dir)})
		runUntilShipped(t, l)
		counts, err := l.Counters(context.Background(), admin, Of{}, time.Now().Add(-time.Hour), time.Now())
		var tally Tally
		for _, b := range counts {
			tally.add(b.Tally)
		}
		if err != nil || tally.Counted != 50 || tally.Logged != 25 {
			t.Errorf("Counters = %+v, %v, want 50 counted and 25 logged", tally, err)
		}
	})
}

// TestQueryReturnsJustRecorded: a query returns the decisions that were recorded before it.
func TestQueryReturnsJustRecorded(t *testing.T) {
	c := dbtest.Open(t, dbtest.SQLite)
	l := newLog(t, Config{Cluster: c})
	defer running(t, l)()
	for i := range 20 {
		d := Decision{DecisionID: fmt.Sprint(i), Decision: Permit, Environment: scope.Production}
		errtest.Must(t, l.Record(scope.DefaultTenant, &d))
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
				t.Fatalf("Query after %d records: %d entries, %v", i+1, page.Total, err)
			}
		}
	}
}

// TestUnreadableRecordsAreSetAside: records that cannot be read go to a file, with an alarm each, and do
// not stop the others.
func TestUnreadableRecordsAreSetAside(t *testing.T) {
	c := dbtest.Open(t, dbtest.SQLite)
	s, aside := openSpool(t, t.TempDir()), t.TempDir()
	l := newLog(t, Config{Cluster: c, Spool: s, SetAside: aside})
	var alarms int
	l.cfg.Alarm = func(tenant scope.TenantID, _ error) {
		if alarms++; tenant != scope.DefaultTenant {
			t.Errorf("an alarm for the tenant %q", tenant)
		}
	}
	for _, rec := range []string{"rubbish", "1default\n{broken", "1default\n{}"} {
		errtest.Must(t, s.Append([]byte(rec)))
	}
	d := Decision{DecisionID: "good", Decision: Permit}
	errtest.Must(t, l.Record(scope.DefaultTenant, &d))
	runUntilShipped(t, l)
	// A tenant may be named like that. Its purge does not remove the records of others.
	errtest.Must(t, l.Forget("unreadable"))
	unreadable, err := os.ReadFile(filepath.Join(aside, ".unreadable.jsonl"))
	if err != nil || strings.Count(string(unreadable), "\n") < 3 || alarms != 3 {
		t.Errorf(".unreadable.jsonl = %q, %v; %d alarms, want 3 of each", unreadable, err, alarms)
	}
	if page, err := l.Query(context.Background(), admin, Filter{}); err != nil || page.Total != 1 {
		t.Errorf("Query: %d entries, %v, want the readable one", page.Total, err)
	}
}

// TestIngest: decisions of a bouncer that lack a valid id are refused, odd values are corrected.
func TestIngest(t *testing.T) {
	c := dbtest.Open(t, dbtest.SQLite)
	s := openSpool(t, t.TempDir())
	l := newLog(t, Config{Cluster: c, Spool: s})
	ds := []Decision{{DecisionID: "a", Decision: Permit}, {}, {DecisionID: strings.Repeat("x", 300)}, {DecisionID: "b", Decision: "odd", Environment: "mars", User: User{ID: strings.Repeat("é", 3000)}}}
	refused, err := l.Ingest(context.Background(), scope.DefaultTenant, ds)
	if err != nil || len(refused) != 2 || refused[0] != 1 || refused[1] != 2 {
		t.Fatalf("Ingest refuses %v, %v, want 1 and 2", refused, err)
	}
	defer running(t, l)()
	waitShipped(t, s)
	page, err := l.Query(context.Background(), admin, Filter{UserID: strings.Repeat("é", 3000)})
	if err != nil || page.Total != 2 || page.Filtered != 1 || page.Logs[0].Decision != Deny || page.Logs[0].Environment != scope.Production {
		t.Errorf("Query = %+v, %v, want 2 entries, and DENY in production for the odd one", page, err)
	}
	errtest.Must(t, s.Close())
	if _, err := l.Ingest(context.Background(), scope.DefaultTenant, ds); err == nil || errors.Is(err, context.Canceled) {
		t.Errorf("Ingest with a closed spool: got %v, want an error", err)
	}
}
