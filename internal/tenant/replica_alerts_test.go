package tenant

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/db/dbtest"
	"github.com/gatehouse-dev/gatehouse/internal/errtest"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

// replicaWorld is a number of replicas on one store with one clock.
type replicaWorld struct {
	*testing.T
	stores *db.Cluster
	now    time.Time
}

func (w *replicaWorld) replica() *ReplicaAlerts {
	return &ReplicaAlerts{Stores: w.stores, Types: []string{"disk_space"}, Now: func() time.Time { return w.now }}
}

func (w *replicaWorld) open(k AlertKey) {
	w.Helper()
	err := w.stores.Write(context.Background(), k.Tenant, func(tx *db.Tx) error {
		return OpenAlert(context.Background(), tx, Alert{Type: k.Type, Severity: SeverityCritical, Subject: k.Subject, Message: "it is full", CreatedAt: w.now})
	})
	if err != nil {
		w.Fatal(err)
	}
}

// renew renews alerts, and returns how many were not known.
func (w *replicaWorld) renew(r *ReplicaAlerts, keys ...AlertKey) int {
	w.Helper()
	unknown, err := r.Renew(context.Background(), keys)
	if err != nil {
		w.Fatal(err)
	}
	return len(unknown)
}

// pass lets time pass, in which the replicas of renewing renew their alerts and r sweeps. It returns
// what r resolved.
func (w *replicaWorld) pass(r *ReplicaAlerts, d time.Duration, renewing ...AlertKey) (out []AlertKey) {
	w.Helper()
	for range d / RenewEvery {
		w.now = w.now.Add(RenewEvery)
		if len(renewing) > 0 {
			w.renew(w.replica(), renewing...)
		}
		gone, err := r.Sweep(context.Background())
		if err != nil {
			w.Fatal(err)
		}
		out = append(out, gone...)
	}
	return out
}

// want checks whether an alert is open, and the message of the newest one.
func (w *replicaWorld) want(step string, k AlertKey, open bool, message string) {
	w.Helper()
	alerts, err := db.Read(context.Background(), w.stores, k.Tenant, func(tx *db.Tx) ([]Alert, error) { return selectAlerts(context.Background(), tx) })
	if err != nil {
		w.Fatal(err)
	}
	for _, a := range alerts {
		if a.Type == k.Type && a.Subject == k.Subject {
			if (a.ResolvedAt == nil) != open || !strings.Contains(a.Message, message) {
				w.Errorf("%s: the alert %s is open: %t, with the message %q; want %t, %q", step, k.Subject, a.ResolvedAt == nil, a.Message, open, message)
			}
			return
		}
	}
	w.Errorf("%s: there is no alert %s", step, k.Subject)
}

// TestReplicaAlerts checks that the alert of a replica that is gone is resolved by another one, and
// says why, in every tenant; that the alert of a replica that renews it stays; and that a replica
// that comes back learns that its alert was resolved.
func TestReplicaAlerts(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, c *db.Cluster) {
		w := &replicaWorld{t, c, time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)}
		a, b := w.replica(), w.replica()
		low, missing := AlertKey{scope.DefaultTenant, "disk_space", ReplicaSubject("low", "one :8080")}, AlertKey{dbtest.Second, "audit_pipeline", ReplicaSubject("missing", "one :8080")}
		lives := AlertKey{scope.DefaultTenant, "disk_space", ReplicaSubject("low", "two :8080")}
		for _, k := range []AlertKey{low, missing, lives} {
			w.open(k)
		}
		if n := w.renew(a, low, missing); n != 2 {
			t.Errorf("%d new alerts were not known, want 2", n)
		}
		if n := w.renew(a, low, missing); n != 0 {
			t.Errorf("%d alerts were not known after they were renewed, want none", n)
		}
		if gone := w.pass(b, goneAfter, lives); len(gone) > 0 {
			t.Errorf("%v were resolved before the replica counts as gone", gone)
		}
		w.want("before", low, true, "it is full")
		if gone := w.pass(b, RenewEvery, lives); len(gone) != 2 {
			t.Errorf("resolved %v, want the two of the replica that is gone", gone)
		}
		w.want("after", low, false, "it is full (resolved because the server one :8080 is gone")
		w.want("after", missing, false, "it is full (resolved because the server one :8080 is gone")
		w.want("after", lives, true, "it is full")
		if n := w.renew(a, low); n != 1 {
			t.Errorf("a replica that comes back knows of %d of its alerts that were resolved, want 1", n)
		}

		errtest.Must(t, a.Forget(context.Background(), low))
		w.now = w.now.Add(time.Hour) // b was paused: it must not believe that the others were
		if gone := w.pass(b, goneAfter); len(gone) > 0 {
			t.Errorf("%v were resolved although the replica that sweeps was paused itself", gone)
		}
		if gone := w.pass(b, RenewEvery); len(gone) != 1 || gone[0] != lives {
			t.Errorf("resolved %v, want %v", gone, lives)
		}
	})
}

// TestReplicaAlertsOfEarlierVersions checks that an open alert that nobody has ever renewed is resolved,
// too, and that alerts that do not name a replica are left alone. A purged tenant is no obstacle.
func TestReplicaAlertsOfEarlierVersions(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, c *db.Cluster) {
		w := &replicaWorld{t, c, time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)}
		r := w.replica()
		old, other := AlertKey{scope.DefaultTenant, "disk_space", "low at gone :8080"}, AlertKey{scope.DefaultTenant, "disk_space", "something else"}
		w.open(old)
		w.open(other)
		nobody := AlertKey{"nobody", "audit_pipeline", "missing at gone :8080"}
		w.renew(r, nobody)
		if gone := w.pass(r, goneAfter+RenewEvery); len(gone) != 2 {
			t.Errorf("resolved %v, want two", gone)
		}
		w.want("the alert of an earlier version", old, false, "gone :8080 is gone")
		w.want("an alert without a replica", other, true, "it is full")
		if gone := w.pass(r, 2*goneAfter); len(gone) > 0 {
			t.Errorf("%v were resolved twice", gone)
		}
		w.renew(r, nobody, old)
		errtest.Must(t, r.ForgetTenant(context.Background(), "nobody"))
		if n := w.renew(r, nobody, old); n != 1 {
			t.Errorf("%d alerts are not known after their tenant was purged, want 1", n)
		}
	})
}
