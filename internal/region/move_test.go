package region

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"go.uber.org/goleak"

	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/db/dbtest"
	"github.com/gatehouse-dev/gatehouse/internal/errtest"
	"github.com/gatehouse-dev/gatehouse/internal/fault"
	"github.com/gatehouse-dev/gatehouse/internal/fulltest"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
	"github.com/gatehouse-dev/gatehouse/internal/tenant"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const fileRegion, serverRegion = "us-west-2", "eu-west-1"

var root = scope.Scope{Tenant: scope.DefaultTenant, Platform: true, Permissions: scope.Permissions{All: true}, Actor: scope.Actor{Kind: scope.System, ID: "test", Name: "test"}}

// config is a deployment with a region on each kind of store.
func config(t *testing.T, home string) db.Config {
	cfg := dbtest.Config(t, home)
	cfg.Regions = map[string]db.Region{fileRegion: {Dir: t.TempDir()}, serverRegion: {URL: dbtest.Config(t, dbtest.Postgres).URL}}
	return cfg
}

// process returns a replica with its own connections and caches.
func process(t *testing.T, cfg db.Config, reached func(string) error) *Service {
	t.Helper()
	c := dbtest.OpenConfig(t, cfg)
	now := func() time.Time { return time.Now().UTC() }
	return &Service{Stores: c, Tenants: &tenant.Service{Stores: c, Now: now}, Now: now, Ticks: time.Now, NewID: uuid.NewString, Keep: time.Hour, Logger: slog.New(slog.DiscardHandler), reached: reached}
}

// skipLong skips a test in the inner loop, and also under the race detector, where it would take
// many times as long and repeat the same code.
func skipLong(t *testing.T) {
	t.Helper()
	if fulltest.Only(t); testing.Short() {
		t.Skip("a shorter test of the same code runs under the race detector")
	}
}

// kill returns a hook that simulates a killed process at a phase.
func kill(at string) func(string) error {
	return func(phase string) error {
		if phase == at {
			return errKilled
		}
		return nil
	}
}

// populate puts the tenant into a region and adds rows.
func populate(t *testing.T, s *Service, region string) {
	t.Helper()
	ctx := context.Background()
	errtest.Must(t, s.Stores.System().Write(ctx, func(tx *db.Tx) error {
		_, err := s.Stores.Place(ctx, tx, dbtest.Second, region)
		return err
	}))
	for n := range 700 {
		errtest.Must(t, put(s, fmt.Sprint("old ", n)))
	}
}

// put writes a row of the tenant.
func put(s *Service, name string) error {
	return s.Stores.Write(context.Background(), dbtest.Second, func(tx *db.Tx) error {
		_, err := tx.Exec(context.Background(), `INSERT INTO settings (name, value) VALUES ($1, '1')`, name)
		return err
	})
}

// names returns the names of the tenant's rows, sorted.
func names(t *testing.T, s *Service) []string {
	t.Helper()
	var out []string
	errtest.Must(t, s.Stores.Read(context.Background(), dbtest.Second, func(tx *db.Tx) (err error) {
		out, err = db.All[string](context.Background(), tx, `SELECT name FROM settings`)
		return err
	}))
	slices.Sort(out)
	return out
}

// regionOfTenant returns the region that the tenant is in.
func regionOfTenant(t *testing.T, s *Service) string {
	t.Helper()
	base, _, _ := strings.Cut(storeOfTenant(t, s), "#")
	return base
}

// storeOfTenant returns the store that the tenant is in.
func storeOfTenant(t *testing.T, s *Service) (store string) {
	t.Helper()
	errtest.Must(t, s.Stores.System().Read(context.Background(), func(tx *db.Tx) (err error) {
		store, err = s.Stores.PlaceOf(context.Background(), tx, dbtest.Second)
		return err
	}))
	return store
}

// writer writes until stop is called. stop returns the acknowledged writes.
func writer(s *Service, prefix string) (stop func() []string) {
	var acknowledged []string
	var end atomic.Bool
	var running sync.WaitGroup
	running.Go(func() {
		for n := 0; !end.Load(); n++ {
			if name := fmt.Sprint(prefix, " ", n); put(s, name) == nil {
				acknowledged = append(acknowledged, name)
			}
		}
	})
	return func() []string { end.Store(true); running.Wait(); return acknowledged }
}

// finish runs rounds until the deployment has ended.
func finish(t *testing.T, s *Service, id string) Deployment {
	t.Helper()
	for range 50 {
		errtest.Must(t, s.runDue(context.Background()))
		d, err := s.Get(context.Background(), root, dbtest.Second, id)
		errtest.Must(t, err)
		if d.Status != InProgress {
			return d
		}
	}
	t.Fatal("the deployment does not end")
	return Deployment{}
}

// checkAllThere fails unless the tenant has its first rows and these.
func checkAllThere(t *testing.T, s *Service, want []string) {
	t.Helper()
	have := names(t, s)
	for _, name := range want {
		if _, found := slices.BinarySearch(have, name); !found {
			t.Errorf("the acknowledged row %q is lost", name)
			return
		}
	}
	if len(have) < 700+len(want) {
		t.Errorf("%d rows, want at least %d", len(have), 700+len(want))
	}
}

// checkStores fails unless the tenant has these stores.
func checkStores(t *testing.T, s *Service, want ...string) {
	t.Helper()
	stores, err := s.Stores.StoresOf(context.Background(), dbtest.Second)
	errtest.Must(t, err)
	slices.Sort(want)
	if !slices.Equal(stores, want) {
		t.Errorf("stores of the tenant = %v, want %v", stores, want)
	}
}

var phases = []string{copying, catchingUp, paused, "fenced", "finished", switched}

// TestKilledAnywhere: if the process is killed in any phase of a move, the next process completes
// the move, and no acknowledged write is lost.
func TestKilledAnywhere(t *testing.T) {
	for _, way := range [][2]string{{fileRegion, serverRegion}, {serverRegion, fileRegion}} {
		for _, phase := range phases {
			t.Run(way[0]+" "+phase, func(t *testing.T) {
				if phase != paused {
					skipLong(t)
				}
				ctx := context.Background()
				cfg := config(t, dbtest.SQLite)
				first := process(t, cfg, kill(phase))
				populate(t, first, way[0])
				d, err := first.Start(ctx, root, dbtest.Second, Request{Region: way[1]})
				errtest.Must(t, err)
				stop := writer(first, "first")
				_ = first.runDue(ctx)
				_ = first.Stores.Close() // ends the writers of the killed process
				want := stop()
				next := process(t, cfg, nil)
				if got, err := next.Get(ctx, root, dbtest.Second, d.ID); err != nil || got.Status != InProgress {
					t.Fatalf("deployment of the killed process = %+v, %v, want it in progress", got, err)
				}
				stop = writer(next, "next")
				d = finish(t, next, d.ID)
				want = append(want, stop()...)
				if d.Status != Completed || regionOfTenant(t, next) != way[1] {
					t.Errorf("deployment = %+v (%s) in %s, want it completed in %s", d, d.ReasonText, regionOfTenant(t, next), way[1])
				}
				errtest.Must(t, put(next, "after"))
				checkAllThere(t, next, append(want, "after"))
			})
		}
	}
}

// TestHungProcess: if a process hangs in any phase, and continues after another one has completed
// the move, it damages neither later writes nor the source.
func TestHungProcess(t *testing.T) {
	for _, phase := range phases {
		t.Run(phase, func(t *testing.T) {
			if phase != paused {
				skipLong(t)
			}
			ctx := context.Background()
			cfg := config(t, dbtest.Postgres)
			hangs, goOn := make(chan struct{}), make(chan struct{})
			hung := process(t, cfg, func(at string) error {
				if at == phase {
					close(hangs)
					<-goOn
				}
				return nil
			})
			populate(t, hung, serverRegion)
			// Replicas share no directory, so both regions are on servers.
			shared := cfg
			shared.Regions = map[string]db.Region{serverRegion: cfg.Regions[serverRegion], "eu-north-1": {URL: cfg.URL}}
			hung = process(t, shared, hung.reached)
			next := process(t, shared, nil)
			d, err := hung.Start(ctx, root, dbtest.Second, Request{Region: "eu-north-1"})
			errtest.Must(t, err)
			ended := make(chan error, 1)
			go func() { ended <- hung.runDue(ctx) }()
			<-hangs
			stop := writer(next, "next")
			d = finish(t, next, d.ID)
			if d.Status != Completed || regionOfTenant(t, next) != "eu-north-1" {
				t.Errorf("deployment = %+v (%s), want it completed", d, d.ReasonText)
			}
			close(goOn)
			<-ended
			errtest.Must(t, put(next, "after"))
			errtest.Must(t, put(hung, "after, by the one that hung"))
			checkAllThere(t, next, append(stop(), "after", "after, by the one that hung"))
			from, err := next.Stores.At(dbtest.Second, serverRegion)
			errtest.Must(t, err)
			if err := from.Write(ctx, func(tx *db.Tx) error {
				_, err := tx.Exec(ctx, `UPDATE settings SET value = '2'`)
				return err
			}); !fault.Is(err, fault.Unavailable) {
				t.Errorf("write to the source: got %v, want unavailable", err)
			}
		})
	}
}

// TestRollsBack: if a move cannot be completed, nothing changes for the tenant, the reason is
// reported, and the move can be started again.
func TestRollsBack(t *testing.T) {
	ctx := context.Background()
	cfg := config(t, dbtest.SQLite)
	failure := errors.New("something does not work")
	s := process(t, cfg, func(phase string) error {
		if phase == "finished" {
			return failure
		}
		return nil
	})
	populate(t, s, fileRegion)
	d, err := s.Start(ctx, root, dbtest.Second, Request{Region: serverRegion})
	errtest.Must(t, err)
	if _, err := s.Start(ctx, root, dbtest.Second, Request{Region: serverRegion}); !fault.Is(err, fault.Conflict) {
		t.Errorf("Start during a deployment: got %v, want a conflict", err)
	}
	stop := writer(s, "meanwhile")
	d = finish(t, s, d.ID)
	want := stop()
	if d.Status != Failed || d.Reason == nil || *d.Reason != failure.Error() || d.Progress.Database != "failed" || d.CompletedAt == nil || regionOfTenant(t, s) != fileRegion {
		t.Errorf("deployment = %+v, want it failed with the reason", d)
	}
	checkAllThere(t, s, want)
	checkStores(t, s, "", fileRegion)
	s.reached = nil
	d, err = s.Start(ctx, root, dbtest.Second, Request{Region: serverRegion})
	errtest.Must(t, err)
	if d = finish(t, s, d.ID); d.Status != Completed {
		t.Errorf("second deployment = %+v (%s), want it completed", d, d.ReasonText)
	}
	checkAllThere(t, s, want)
}

// onWarning is a log handler that calls fn with the attributes of each warning.
type onWarning struct {
	slog.Handler
	fn func(message string, attrs map[string]string)
}

func (h onWarning) Enabled(context.Context, slog.Level) bool { return true }

func (h onWarning) Handle(_ context.Context, r slog.Record) error {
	attrs := map[string]string{}
	r.Attrs(func(a slog.Attr) bool {
		attrs[a.Key] = a.Value.String()
		return true
	})
	if r.Level == slog.LevelWarn {
		h.fn(r.Message, attrs)
	}
	return nil
}

// TestWarnsWhileUnsettled: while the system store cannot record the end of a move, the log says so at
// once and then each minute, and the gauge counts the move.
func TestWarnsWhileUnsettled(t *testing.T) {
	for name, c := range map[string]struct {
		failure error  // of the move, before the switch
		refused string // whether writes are refused meanwhile
	}{
		"the move fails":     {errors.New("something does not work"), "false"},
		"the switch is lost": {nil, "true"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx := context.Background()
			s := process(t, config(t, dbtest.SQLite), nil)
			rename := func(from, to string) {
				errtest.Must(t, s.Stores.System().Write(ctx, func(tx *db.Tx) error { _, err := tx.Exec(ctx, "ALTER TABLE "+from+" RENAME TO "+to); return err }))
			}
			broken := false
			s.reached = func(phase string) error {
				if phase != "finished" || broken {
					return nil
				}
				broken = true
				rename("deployments", "lost_deployments")
				return c.failure
			}
			passed := time.Duration(0)
			s.Ticks = func() time.Time {
				if broken { // each attempt takes 20 seconds
					passed += 20 * time.Second
				}
				return time.Now().Add(passed)
			}
			var attempts []string
			s.Logger = slog.New(onWarning{Handler: slog.DiscardHandler, fn: func(message string, attrs map[string]string) {
				if !strings.HasPrefix(message, "the end of a deployment cannot be stored") {
					return
				}
				if attempts = append(attempts, attrs["attempts"]); attrs["tenant"] != string(dbtest.Second) || attrs["error"] == "" || attrs["writes_refused"] != c.refused || s.Unsettled() != 1 {
					t.Errorf("%v, %d unsettled", attrs, s.Unsettled())
				}
				if len(attempts) == 2 {
					rename("lost_deployments", "deployments")
				}
			}})
			populate(t, s, fileRegion)
			d, err := s.Start(ctx, root, dbtest.Second, Request{Region: serverRegion})
			errtest.Must(t, err)
			d = finish(t, s, d.ID)
			if d.Status != Failed || regionOfTenant(t, s) != fileRegion || s.Unsettled() != 0 {
				t.Errorf("it ended as %+v, %d unsettled", d, s.Unsettled())
			}
			if !slices.Equal(attempts, []string{"1", "4"}) {
				t.Errorf("warnings at the attempts %q", attempts)
			}
			errtest.Must(t, put(s, "after"))
		})
	}
}

// TestGivesUp: a move that is interrupted too often is rolled back.
func TestGivesUp(t *testing.T) {
	fulltest.Only(t)
	ctx := context.Background()
	s := process(t, config(t, dbtest.SQLite), kill("fenced"))
	populate(t, s, fileRegion)
	d, err := s.Start(ctx, root, dbtest.Second, Request{Region: serverRegion})
	errtest.Must(t, err)
	if d = finish(t, s, d.ID); d.Status != Failed || d.Reason == nil {
		t.Errorf("deployment = %+v, want it failed with a reason", d)
	}
	errtest.Must(t, put(s, "after"))
	checkAllThere(t, s, []string{"after"})
}

// TestForeignDataStays: a move never touches data in the new region that no deployment put there.
func TestForeignDataStays(t *testing.T) {
	fulltest.Only(t)
	ctx := context.Background()
	s := process(t, config(t, dbtest.SQLite), nil)
	populate(t, s, serverRegion)
	populate(t, s, fileRegion)
	d, err := s.Start(ctx, root, dbtest.Second, Request{Region: serverRegion})
	errtest.Must(t, err)
	if d = finish(t, s, d.ID); d.Status != Completed {
		t.Errorf("deployment = %+v (%s), want it completed", d, d.ReasonText)
	}
	checkAllThere(t, s, nil)
	checkStores(t, s, "", serverRegion, storeOfTenant(t, s), fileRegion)
	for _, store := range []string{serverRegion, fileRegion} {
		errtest.Must(t, s.Stores.System().Write(ctx, func(tx *db.Tx) error { _, err := s.Stores.Place(ctx, tx, dbtest.Second, store); return err }))
		checkAllThere(t, s, nil)
	}
}

// TestMovesBackAndPurges: a move back replaces the data that an earlier move kept. Kept data is
// purged when its time is over, but never the current store.
func TestMovesBackAndPurges(t *testing.T) {
	ctx := context.Background()
	s := process(t, config(t, dbtest.SQLite), nil)
	populate(t, s, fileRegion)
	for n, to := range []string{serverRegion, fileRegion, serverRegion} {
		d, err := s.Start(ctx, root, dbtest.Second, Request{Region: to})
		errtest.Must(t, err)
		if d = finish(t, s, d.ID); d.Status != Completed {
			t.Fatalf("deployment to %s = %+v (%s), want it completed", to, d, d.ReasonText)
		}
		errtest.Must(t, put(s, fmt.Sprint("after ", n)))
	}
	later := time.Now().UTC().Add(2 * time.Hour)
	s.Now = func() time.Time { return later }
	errtest.Must(t, s.runDue(ctx))
	checkAllThere(t, s, []string{"after 0", "after 1", "after 2"})
	page, err := s.List(ctx, root, dbtest.Second, 0, 10)
	errtest.Must(t, err)
	for _, d := range page.Deployments {
		if d.SourcePurgedAt == nil {
			t.Errorf("deployment = %+v, want its source purged", d)
		}
	}
	checkStores(t, s, "", storeOfTenant(t, s))
}

// TestStartsEmpty: without its data, a tenant keeps its settings, and its revisions keep
// increasing.
func TestStartsEmpty(t *testing.T) {
	ctx := context.Background()
	s := process(t, config(t, dbtest.SQLite), nil)
	populate(t, s, fileRegion)
	before, err := s.Stores.Tenant(ctx, dbtest.Second)
	errtest.Must(t, err)
	errtest.Must(t, before.Write(ctx, func(tx *db.Tx) error { _, err := tx.Bump(ctx, "env:production"); return err }))
	no := false
	d, err := s.Start(ctx, root, dbtest.Second, Request{Region: serverRegion, MigrateData: &no})
	errtest.Must(t, err)
	if !strings.Contains(d.Message, "empty") {
		t.Errorf("message = %q, want it to say that the store is empty", d.Message)
	}
	if d = finish(t, s, d.ID); d.Status != Completed {
		t.Fatalf("deployment = %+v (%s), want it completed", d, d.ReasonText)
	}
	revision, err := before.Revision(ctx, "env:production")
	errtest.Must(t, err)
	if revision < 1_000_000 {
		t.Errorf("revision = %d, want at least 1,000,000", revision)
	}
	errtest.Must(t, s.Stores.Read(ctx, dbtest.Second, func(tx *db.Tx) error {
		kinds, err := db.All[string](ctx, tx, `SELECT type FROM audit_events`)
		if err == nil && !slices.Equal(kinds, []string{"TENANT_DEPLOYED"}) {
			err = fmt.Errorf("audit entries = %v, want TENANT_DEPLOYED", kinds)
		}
		return err
	}))
}

// TestStopsAndWaits: a deployment waits for its window, and can be stopped before the switch.
func TestStopsAndWaits(t *testing.T) {
	ctx := context.Background()
	s := process(t, config(t, dbtest.SQLite), nil)
	populate(t, s, fileRegion)
	past, window := time.Now().Add(-time.Minute), time.Now().Add(time.Hour)
	if _, err := s.Start(ctx, root, dbtest.Second, Request{Region: "eu-north-1"}); !fault.Is(err, fault.Invalid) || !strings.Contains(err.Error(), serverRegion) {
		t.Errorf("Start to a region that is not served: got %v, want invalid", err)
	}
	if _, err := s.Start(ctx, scope.Scope{Tenant: dbtest.Second, Permissions: scope.Permissions{All: true}}, dbtest.Second, Request{Region: serverRegion}); !fault.Is(err, fault.Forbidden) {
		t.Errorf("Start by the tenant's administrator: got %v, want forbidden", err)
	}
	d, err := s.Start(ctx, root, dbtest.Second, Request{Region: fileRegion, MaintenanceWindow: &past})
	errtest.Must(t, err)
	if d = finish(t, s, d.ID); d.Status != Completed {
		t.Errorf("deployment to the same region with a window in the past = %+v (%s), want it completed", d, d.ReasonText)
	}
	d, err = s.Start(ctx, root, dbtest.Second, Request{Region: serverRegion, MaintenanceWindow: &window})
	errtest.Must(t, err)
	errtest.Must(t, s.runDue(ctx))
	if d, err = s.Get(ctx, root, dbtest.Second, d.ID); err != nil || d.Phase != waiting || d.Progress.Database != "pending" || d.MaintenanceWindow == nil || !d.Estimated.After(window) {
		t.Errorf("deployment before its window = %+v, %v, want it waiting", d, err)
	}
	_, err = s.Cancel(ctx, root, dbtest.Second, d.ID)
	errtest.Must(t, err)
	if d = finish(t, s, d.ID); d.Status != Failed || regionOfTenant(t, s) != fileRegion {
		t.Errorf("cancelled deployment = %+v, want it failed", d)
	}
	if _, err = s.Cancel(ctx, root, dbtest.Second, d.ID); !fault.Is(err, fault.Conflict) {
		t.Errorf("Cancel again: got %v, want a conflict", err)
	}
	d, err = s.Start(ctx, root, dbtest.Second, Request{Region: serverRegion, MaintenanceWindow: &window})
	errtest.Must(t, err)
	later := window.Add(time.Second)
	s.Now = func() time.Time { return later }
	if d = finish(t, s, d.ID); d.Status != Completed {
		t.Errorf("deployment after its window = %+v (%s), want it completed", d, d.ReasonText)
	}
	checkAllThere(t, s, nil)
}

// TestOwnRegions: without configured regions, a tenant moves to a part of the deployment's own
// store, and a change of the configuration never makes it unreachable.
func TestOwnRegions(t *testing.T) {
	for _, home := range []string{dbtest.SQLite, dbtest.Postgres} {
		t.Run(home, func(t *testing.T) {
			ctx := context.Background()
			cfg := dbtest.Config(t, home)
			s := process(t, cfg, nil)
			populate(t, s, "")
			d, err := s.Start(ctx, root, dbtest.Second, Request{Region: "eu-north-1"})
			errtest.Must(t, err)
			if d = finish(t, s, d.ID); d.Status != Completed {
				t.Fatalf("deployment = %+v (%s), want it completed", d, d.ReasonText)
			}
			cfg.Regions = map[string]db.Region{"eu-north-1": {Dir: t.TempDir()}}
			other := process(t, cfg, nil)
			checkAllThere(t, other, nil)
			errtest.Must(t, other.Forget(ctx, dbtest.Second))
			errtest.Must(t, other.Stores.DropTenant(ctx, dbtest.Second))
			checkStores(t, s)
		})
	}
}
