package tenant

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/fault"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

const (
	// RenewEvery is how often a replica renews its open alerts, and looks for those of others.
	RenewEvery = 20 * time.Second
	// goneAfter is how long nobody renews an alert until its replica counts as gone.
	goneAfter = 3 * time.Minute
)

// AlertKey identifies an open alert.
type AlertKey struct {
	Tenant  scope.TenantID `db:"tenant"`
	Type    string         `db:"type"`
	Subject string         `db:"subject"`
}

// replicaMark separates what an alert is about from the name of the replica that has it.
const replicaMark = " at "

// ReplicaSubject returns the subject of an alert about a replica of the server itself.
func ReplicaSubject(what, replica string) string { return what + replicaMark + replica }

// ReplicaAlerts keeps the alerts about replicas of the server itself. A replica opens and resolves its
// own. It cannot resolve them once it is gone, and the one in its place may have another name. So each
// replica renews its open alerts, and resolves those that nobody renews.
//
// A replica measures with its own clock how long an alert stays as it is. So it does not matter how far
// the clocks of replicas are apart.
type ReplicaAlerts struct {
	Stores *db.Cluster
	// Types are the types of the alerts.
	Types []string
	Now   func() time.Time

	seen map[AlertKey]sighting // nil: begin again
	last time.Time             // when Sweep last read the alerts
}

// sighting is since when an alert was not renewed.
type sighting struct{ renewed, since time.Time }

// Renew renews the open alerts of this replica. It returns those that were not known: they are new, or
// another replica has resolved them.
func (r *ReplicaAlerts) Renew(ctx context.Context, keys []AlertKey) (unknown []AlertKey, err error) {
	if len(keys) == 0 {
		return nil, nil
	}
	err = r.Stores.System().Write(ctx, func(tx *db.Tx) error {
		rows, err := selectRenewals(ctx, tx)
		if err != nil {
			return err
		}
		unknown = missing(keys, rows)
		return upsertRenewals(ctx, tx, keys, r.Now())
	})
	if err != nil {
		r.seen = nil // the others cannot renew theirs either
	}
	return unknown, err
}

// Forget removes an alert that this replica has resolved.
func (r *ReplicaAlerts) Forget(ctx context.Context, k AlertKey) error {
	return r.Stores.System().Write(ctx, func(tx *db.Tx) error { return deleteRenewal(ctx, tx, k, r.Now()) })
}

// ForgetTenant removes the alerts of a tenant that is purged.
func (r *ReplicaAlerts) ForgetTenant(ctx context.Context, id scope.TenantID) error {
	return r.Stores.System().Write(ctx, func(tx *db.Tx) error { return deleteRenewals(ctx, tx, id) })
}

// Sweep resolves the alerts of replicas that are gone: nobody has renewed them for goneAfter, as this
// replica saw it. It returns them. After a failure, or a pause of this replica, it begins to measure
// again, because the others may not have been able to renew theirs.
func (r *ReplicaAlerts) Sweep(ctx context.Context) (resolved []AlertKey, err error) {
	defer func() {
		if err != nil {
			r.seen = nil
		}
	}()
	if err := r.adopt(ctx); err != nil {
		return nil, err
	}
	rows, err := db.ReadStore(ctx, r.Stores.System(), func(tx *db.Tx) ([]renewal, error) { return selectRenewals(ctx, tx) })
	if err != nil {
		return nil, err
	}
	now := r.Now()
	if now.Before(r.last) || now.Sub(r.last) > 3*RenewEvery {
		r.seen = nil
	}
	r.last = now
	before := r.seen
	r.seen = make(map[AlertKey]sighting, len(rows))
	var failed []error
	for _, row := range rows {
		one, known := before[row.AlertKey]
		if !known || !one.renewed.Equal(row.At) {
			one = sighting{row.At, now}
		}
		r.seen[row.AlertKey] = one
		if now.Sub(one.since) < goneAfter {
			continue
		}
		if err := r.resolveGone(ctx, row); err != nil {
			failed = append(failed, err)
			continue
		}
		delete(r.seen, row.AlertKey)
		resolved = append(resolved, row.AlertKey)
	}
	return resolved, errors.Join(failed...)
}

// resolveGone resolves an alert of a replica that is gone.
func (r *ReplicaAlerts) resolveGone(ctx context.Context, row renewal) error {
	_, replica, _ := strings.Cut(row.Subject, replicaMark)
	why := "resolved because the server " + replica + " is gone: it has not renewed the alert for " + goneAfter.String()
	err := r.Stores.Write(ctx, row.Tenant, func(tx *db.Tx) error {
		return resolveAlerts(ctx, tx, row.Type, row.Subject, why, r.Now())
	})
	if err != nil && !fault.Is(err, fault.NotFound) { // the tenant is gone, too
		return err
	}
	return r.Stores.System().Write(ctx, func(tx *db.Tx) error { return deleteRenewal(ctx, tx, row.AlertKey, row.At) })
}

// adopt begins to watch open alerts of the default tenant that have no row: an earlier version opened
// them, or their replica was lost before it renewed them.
func (r *ReplicaAlerts) adopt(ctx context.Context) error {
	open, err := db.Read(ctx, r.Stores, scope.DefaultTenant, func(tx *db.Tx) (out []AlertKey, err error) {
		for _, kind := range r.Types {
			alerts, err := selectOpenOf(ctx, tx, kind)
			if err != nil {
				return nil, err
			}
			for _, a := range alerts {
				if strings.Contains(a.Subject, replicaMark) {
					out = append(out, AlertKey{scope.DefaultTenant, a.Type, a.Subject})
				}
			}
		}
		return out, nil
	})
	if err != nil || len(open) == 0 {
		return err
	}
	rows, err := db.ReadStore(ctx, r.Stores.System(), func(tx *db.Tx) ([]renewal, error) { return selectRenewals(ctx, tx) })
	if err != nil {
		return err
	}
	for _, k := range missing(open, rows) {
		if err := r.Stores.System().Write(ctx, func(tx *db.Tx) error { return insertRenewal(ctx, tx, k, r.Now()) }); err != nil {
			return err
		}
	}
	return nil
}

// missing returns the keys that have no row.
func missing(keys []AlertKey, rows []renewal) []AlertKey {
	known := make(map[AlertKey]bool, len(rows))
	for _, row := range rows {
		known[row.AlertKey] = true
	}
	return slices.DeleteFunc(slices.Clone(keys), func(k AlertKey) bool { return known[k] })
}
