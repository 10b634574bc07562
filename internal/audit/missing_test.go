package audit

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/db/dbtest"
	"github.com/gatehouse-dev/gatehouse/internal/errtest"
	"github.com/gatehouse-dev/gatehouse/internal/fault"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
	"github.com/gatehouse-dev/gatehouse/internal/spool"
)

// TestPosture: if the log cannot be written, decisions are refused. With BestEffort they continue, and
// an entry in the hash chain later says how many are missing. Decisions of a bouncer are refused in both
// cases, because the bouncer still has them.
func TestPosture(t *testing.T) {
	for _, bestEffort := range []bool{false, true} {
		t.Run(map[bool]string{false: "required", true: "best_effort"}[bestEffort], func(t *testing.T) {
			ctx := context.Background()
			c := dbtest.Open(t, dbtest.SQLite)
			s, err := spool.Open(spool.Config{Dir: filepath.Join(t.TempDir(), "s"), Sync: spool.SyncNever, MaxBytes: 40_000})
			errtest.Must(t, err)
			defer s.Close()
			l := newLog(t, Config{Cluster: c, Spool: s, BestEffort: bestEffort})
			alarms := 0
			l.cfg.Alarm = func(scope.TenantID, error) { alarms++ }
			fill := strings.Repeat("x", 1000)
			id := 0
			record := func(decision string, env scope.Env) error {
				id++
				return l.Record(scope.DefaultTenant, &Decision{DecisionID: strconv.FormatInt(int64(id), 10), Decision: decision, Environment: env, Reason: fill})
			}
			denials, permits := 0, 0
			for ; alarms == 0; denials++ {
				err = record(Deny, scope.Production)
			}
			if bestEffort != (err == nil) || !bestEffort && !fault.Is(err, fault.Unavailable) {
				t.Errorf("Record of a denial without room: got %v; best effort: %t", err, bestEffort)
			}
			if err := record(Permit, scope.Production); err != nil || alarms != 1 {
				t.Fatalf("Record of a permit in the room for permits: %v; %d alarms, want 1", err, alarms)
			}
			for alarms = 0; alarms == 0; permits++ {
				err = record(Permit, scope.Sandbox)
			}
			if bestEffort != (err == nil) {
				t.Errorf("Record of a permit without room: got %v; best effort: %t", err, bestEffort)
			}
			err = l.RecordAll(scope.DefaultTenant, []Decision{{DecisionID: "a", Decision: Permit, Reason: fill}, {DecisionID: "b", Decision: Deny}})
			if bestEffort != (err == nil) {
				t.Errorf("RecordAll without room: got %v; best effort: %t", err, bestEffort)
			}
			if _, err := l.Ingest(ctx, scope.DefaultTenant, []Decision{{DecisionID: "c", Decision: Permit, Reason: fill}}); !fault.Is(err, fault.Unavailable) {
				t.Errorf("Ingest without room: got %v, want unavailable", err)
			}
			want := map[bool]int64{false: 0, true: 4}[bestEffort]
			if n := l.MissingTotal(); n != want {
				t.Errorf("MissingTotal = %d, want %d", n, want)
			}

			defer running(t, l)()
			waitShipped(t, s)
			errtest.Must(t, l.WriteMissing())
			waitShipped(t, s)
			page, err := l.Query(ctx, admin, Filter{Limit: 1000})
			errtest.Must(t, err)
			logged := map[scope.Env][2]int{} // a small entry may fit before the last loss
			for _, d := range page.Logs {
				var n, permits, denials int
				if d.Action != "decisions_missing" {
					continue
				}
				if _, err := fmt.Sscanf(d.Reason, "%d decisions are missing (%d PERMIT, %d DENY): the server", &n, &permits, &denials); err != nil || n != permits+denials {
					t.Errorf("reason of a decisions_missing entry = %q, %v", d.Reason, err)
				}
				sum := logged[d.Environment]
				logged[d.Environment] = [2]int{sum[0] + permits, sum[1] + denials}
			}
			if !bestEffort && len(logged) != 0 || bestEffort && (logged[scope.Production] != [2]int{1, 2} || logged[scope.Sandbox] != [2]int{1, 0}) {
				t.Errorf("missing permits and denials in the log = %v; best effort: %t", logged, bestEffort)
			}
			wantValid(t, l, admin)
			if n := len(l.MissingNow()); n != 0 {
				t.Errorf("MissingNow names %d tenants, want none", n)
			}
		})
	}
}

// TestRunContinues: Run raises an alarm and goes on when the spool cannot be read.
func TestRunContinues(t *testing.T) {
	c := dbtest.Open(t, dbtest.SQLite)
	dir := t.TempDir()
	s := openSpool(t, dir)
	l := newLog(t, Config{Cluster: c, Spool: s})
	alarms := make(chan error, 1)
	l.cfg.Alarm = func(_ scope.TenantID, err error) {
		select {
		case alarms <- err:
		default:
		}
	}
	errtest.Must(t, l.Record(scope.DefaultTenant, &Decision{DecisionID: "a", Decision: Permit}))
	paths, err := filepath.Glob(filepath.Join(dir, "*.seg"))
	if err != nil || len(paths) != 1 {
		t.Fatalf("segments = %v, %v, want 1", paths, err)
	}
	errtest.Must(t, os.Rename(paths[0], paths[0]+".away"))
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- l.Run(ctx) }()
	select {
	case err := <-alarms:
		if !strings.Contains(err.Error(), "reading the audit spool") {
			t.Errorf("alarm = %v, want one about reading the audit spool", err)
		}
	case err := <-done:
		t.Fatalf("Run ended: %v", err)
	case <-time.After(20 * time.Second):
		t.Fatal("Run raises no alarm")
	}
	errtest.Must(t, os.Rename(paths[0]+".away", paths[0]))
	waitShipped(t, s)
	cancel()
	if err := <-done; err != nil && !errors.Is(err, context.Canceled) {
		t.Errorf("Run = %v, want no error", err)
	}
}
