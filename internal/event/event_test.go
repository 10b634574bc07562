package event

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/db/dbtest"
	"github.com/gatehouse-dev/gatehouse/internal/errtest"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

var author = scope.Scope{Tenant: scope.DefaultTenant, Actor: scope.Actor{Kind: scope.Person, ID: "u1", Name: "alice"}}

func emit(t *testing.T, c *db.Cluster, tenant scope.TenantID, events ...Event) {
	t.Helper()
	store, err := c.Tenant(context.Background(), tenant)
	errtest.Must(t, err)
	err = store.Write(context.Background(), func(tx *db.Tx) error {
		for _, e := range events {
			if err := Emit(context.Background(), tx, author, e); err != nil {
				return err
			}
		}
		return nil
	})
	errtest.Must(t, err)
}

// memory is a sink that stores the events that were committed.
type memory struct {
	name string
	fail func(Occurrence) error
	mu   sync.Mutex
	got  map[scope.TenantID][]Occurrence
	more chan struct{}
}

func newMemory(name string) *memory {
	return &memory{name: name, got: map[scope.TenantID][]Occurrence{}, more: make(chan struct{}, 1000)}
}

func (m *memory) Name() string { return m.name }

func (m *memory) Take(_ context.Context, tx *db.Tx, tenant scope.TenantID, o Occurrence) error {
	if m.fail != nil {
		if err := m.fail(o); err != nil {
			return err
		}
	}
	tx.AfterCommit(func() {
		m.mu.Lock()
		m.got[tenant] = append(m.got[tenant], o)
		m.mu.Unlock()
		m.more <- struct{}{}
	})
	return nil
}

func (m *memory) list(t scope.TenantID) []Occurrence {
	m.mu.Lock()
	defer m.mu.Unlock()
	return append([]Occurrence{}, m.got[t]...)
}

// deliverAll delivers all events that the default tenant's sinks have not received.
func deliverAll(ctx context.Context, d *Dispatcher) error {
	for {
		behind, err := d.DispatchTenant(ctx, scope.DefaultTenant)
		if err != nil || !behind {
			return err
		}
	}
}

func dispatcher(c *db.Cluster, sinks ...Sink) *Dispatcher {
	return &Dispatcher{Cluster: c, Sinks: sinks, Now: time.Now, Logger: slog.New(slog.NewTextHandler(io.Discard, nil))}
}

func TestEachSinkReceivesEachEventOnce(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, c *db.Cluster) {
		ctx := context.Background()
		steady, shaky := newMemory("steady"), newMemory("shaky")
		broken := true
		shaky.fail = func(Occurrence) error {
			if broken {
				return errors.New("no")
			}
			return nil
		}
		emit(t, c, scope.DefaultTenant,
			Event{Type: PolicyCreated, ObjectKind: "policy", ObjectID: "7", ObjectName: "p", Env: scope.Sandbox, Data: map[string]any{"version": 1}},
			Event{Type: UserCreated, ObjectKind: "user", ObjectID: "u-9", ObjectName: "bob"})
		d := dispatcher(c, shaky, steady)
		if err := deliverAll(ctx, d); err == nil {
			t.Error("delivery with a failing sink succeeds, want its error")
		}
		if n := len(steady.list(scope.DefaultTenant)); n != 2 {
			t.Fatalf("the steady sink had %d events while the other failed, want 2", n)
		}
		broken = false
		for range 2 {
			errtest.Must(t, deliverAll(ctx, d))
		}
		a, b := steady.list(scope.DefaultTenant), shaky.list(scope.DefaultTenant)
		if diff := cmp.Diff(a, b); diff != "" || len(b) != 2 {
			t.Fatalf("the sinks have different events (%d):\n%s", len(b), diff)
		}
		want := map[string]any{
			"policy_id": float64(7), "policy_name": "p", "environment": "sandbox", "version": float64(1),
			"actor": map[string]any{"kind": "user", "id": "u1", "name": "alice"},
		}
		if diff := cmp.Diff(want, a[0].Data); diff != "" {
			t.Errorf("data (-want +got)\n%s", diff)
		}
		if a[1].Data["user_id"] != "u-9" || a[0].ID == a[1].ID || a[0].Timestamp.IsZero() {
			t.Errorf("second event = %+v", a[1])
		}
	})
}

func TestRollbackEmitsNothing(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, c *db.Cluster) {
		ctx := context.Background()
		store, err := c.Tenant(ctx, scope.DefaultTenant)
		errtest.Must(t, err)
		no := errors.New("no")
		err = store.Write(ctx, func(tx *db.Tx) error {
			if err := Emit(ctx, tx, author, Event{Type: PolicyDeleted}); err != nil {
				return err
			}
			return no
		})
		if !errors.Is(err, no) {
			t.Fatal(err)
		}
		m := newMemory("m")
		if err := deliverAll(ctx, dispatcher(c, m)); err != nil || len(m.list(scope.DefaultTenant)) != 0 {
			t.Errorf("delivery after the rollback: %v, events %v, want none", err, m.list(scope.DefaultTenant))
		}
	})
}

// TestEmitMany checks that the events of one call keep their order, between those of the calls
// before and after it, and that the positions have no gaps.
func TestEmitMany(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, c *db.Cluster) {
		ctx := context.Background()
		store, err := c.Tenant(ctx, scope.DefaultTenant)
		errtest.Must(t, err)
		made := 0
		for _, n := range []int{1, 0, 3, 307, 1} {
			events := make([]Event, n)
			for i := range events {
				made++
				events[i] = Event{Type: ResourceUpdated, ObjectKind: "resource", ObjectID: fmt.Sprint(made), Env: scope.Production}
			}
			err := store.Write(ctx, func(tx *db.Tx) error { return Emit(ctx, tx, author, events...) })
			errtest.Must(t, err)
		}
		var rows []stored
		err = store.Read(ctx, func(tx *db.Tx) (err error) {
			rows, err = eventsAfter(ctx, tx, 0, 1000)
			return err
		})
		if err != nil || len(rows) != made {
			t.Fatalf("%d events, %v, want %d", len(rows), err, made)
		}
		for i, r := range rows {
			if r.Seq != int64(i+1) || r.Data["resource_id"] != float64(i+1) || r.Type != ResourceUpdated || r.Env != scope.Production {
				t.Fatalf("event %d = %+v", i, r)
			}
		}
	})
}

func TestTwoReplicasUnderLoad(t *testing.T) {
	for _, backend := range dbtest.Backends() {
		t.Run(backend, func(t *testing.T) {
			c := dbtest.Open(t, backend)
			defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
			ctx, cancel := context.WithCancel(context.Background())
			m := newMemory("m")
			var done sync.WaitGroup
			for range 2 {
				done.Go(func() {
					if err := dispatcher(c, m).Run(ctx); err != nil {
						t.Errorf("Run: %v", err)
					}
				})
			}
			const writers, each = 4, 25
			var wrote sync.WaitGroup
			for w := range writers {
				wrote.Go(func() {
					for i := range each {
						emit(t, c, []scope.TenantID{scope.DefaultTenant, dbtest.Second}[i%2], Event{Type: PolicyUpdated, ObjectKind: "policy", ObjectID: fmt.Sprint(w*100 + i)})
					}
				})
			}
			wrote.Wait()
			for range writers * each {
				select {
				case <-m.more:
				case <-time.After(20 * time.Second):
					t.Fatalf("%d and %d events within 20 seconds", len(m.list(scope.DefaultTenant)), len(m.list(dbtest.Second)))
				}
			}
			cancel()
			done.Wait()
			seen := map[string]bool{}
			for _, tenant := range []scope.TenantID{scope.DefaultTenant, dbtest.Second} {
				for _, o := range m.list(tenant) {
					if seen[o.ID] {
						t.Errorf("the event %s is delivered twice", o.ID)
					}
					seen[o.ID] = true
				}
			}
			if len(seen) != writers*each {
				t.Errorf("%d events, want %d", len(seen), writers*each)
			}
		})
	}
}

func TestOldEventsAreRemoved(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, c *db.Cluster) {
		ctx := context.Background()
		for i := range 3 {
			emit(t, c, scope.DefaultTenant, Event{Type: PolicyUpdated, ObjectKind: "policy", ObjectID: fmt.Sprint(i)})
		}
		m := newMemory("m")
		d := dispatcher(c, m)
		errtest.Must(t, deliverAll(ctx, d))
		d.Now = func() time.Time { return time.Now().Add(30 * 24 * time.Hour) }
		errtest.Must(t, deliverAll(ctx, d))
		store, _ := c.Tenant(ctx, scope.DefaultTenant)
		_ = store.Read(ctx, func(tx *db.Tx) error {
			rows, err := eventsAfter(ctx, tx, 0, 10)
			if err != nil || len(rows) != 0 {
				t.Errorf("%d events remain, %v, want none", len(rows), err)
			}
			return nil
		})
		emit(t, c, scope.DefaultTenant, Event{Type: PolicyDeleted, ObjectKind: "policy", ObjectID: "1"})
		if err := deliverAll(ctx, d); err != nil || len(m.list(scope.DefaultTenant)) != 4 {
			t.Errorf("error %v, %d events, want 4: positions must go on growing", err, len(m.list(scope.DefaultTenant)))
		}
	})
}

func TestTypes(t *testing.T) {
	if n := len(Types()); n != 18 {
		t.Errorf("Types = %d, want 18", n)
	}
}

// TestTenantsTakeTurns checks that many events of one tenant do not delay those of other tenants.
func TestTenantsTakeTurns(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, c *db.Cluster) {
		many := make([]Event, 3*batch)
		for i := range many {
			many[i] = Event{Type: PolicyUpdated, ObjectKind: "policy", ObjectID: "1"}
		}
		ctx, cancel := context.WithCancel(context.Background())
		ids, err := c.Tenants(ctx)
		if err != nil || len(ids) < 2 {
			t.Fatalf("Tenants = %v, %v, want at least 2", ids, err)
		}
		emit(t, c, ids[0], many...) // this tenant is checked first
		emit(t, c, ids[1], Event{Type: PolicyCreated, ObjectKind: "policy", ObjectID: "2"})
		m, first := newMemory("turns"), -1
		m.fail = func(o Occurrence) error {
			if o.Type == PolicyCreated {
				first = len(m.list(ids[0]))
			}
			return nil
		}
		var running sync.WaitGroup
		running.Go(func() {
			if err := dispatcher(c, m).Run(ctx); err != nil {
				t.Errorf("Run: %v", err)
			}
		})
		for range len(many) + 1 {
			select {
			case <-m.more:
			case <-time.After(time.Minute):
				t.Fatalf("%d and %d events within a minute", len(m.list(ids[0])), len(m.list(ids[1])))
			}
		}
		cancel()
		running.Wait()
		if first != batch {
			t.Errorf("the other tenant waits for %d events, want %d", first, batch)
		}
	})
}
