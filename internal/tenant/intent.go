package tenant

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/audit"
	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

// intent is a change of a tenant's record that must be logged. The record is in the system store
// and the log in a tenant's store, and no transaction covers both. So the record's transaction also
// stores the intent. Once the log's transaction has committed, the intent is deleted. If a server
// is killed in between, Recover completes the change.
type intent struct {
	// Seq is the revision of the tenants that the change made.
	Seq    int64          `db:"seq"`
	Tenant scope.TenantID `db:"tenant"`
	// Home is the tenant whose log gets the entry. A purge deletes the tenant's own log, so its
	// entry goes to another one.
	Home scope.TenantID `db:"home"`
	At   time.Time      `db:"at"`
	Line logLine        `db:"telling"`
}

// logLine is the content of the audit entry.
type logLine struct {
	Type      string         `json:"type"`
	Name      string         `json:"name"`
	Changes   map[string]any `json:"changes"`
	Actor     scope.Actor    `json:"actor"`
	RequestID string         `json:"request_id"`
}

// created is the type of the audit entry about a new tenant.
const created = "TENANT_CREATED"

// newIntent returns the intent of a change of t.
func newIntent(sc scope.Scope, t Tenant, at time.Time, kind string, changes map[string]any) intent {
	return intent{Tenant: t.ID, Home: t.ID, At: db.Stamp(at), Line: logLine{kind, t.Name, changes, sc.Actor, sc.RequestID}}
}

// purges reports whether the tenant's store is to be deleted.
func (in intent) purges() bool { return in.Home != in.Tenant }

// store writes the intent and notifies all replicas, in the record's transaction.
func (in *intent) store(ctx context.Context, tx *db.Tx) (err error) {
	if in.Seq, err = tx.Bump(ctx, Revision); err != nil {
		return err
	}
	return insertIntent(ctx, tx, *in)
}

// writeLog writes the audit entry, in a transaction of the store that it belongs to.
func (in intent) writeLog(ctx context.Context, tx *db.Tx) error {
	sc := scope.Scope{Tenant: in.Home, Actor: in.Line.Actor, RequestID: in.Line.RequestID}
	return audit.Append(ctx, tx, sc, in.At, audit.Entry{
		Type: in.Line.Type, Object: "tenant", ObjectID: string(in.Tenant), ObjectName: in.Line.Name, Changes: in.Line.Changes,
	})
}

// forget deletes a completed intent. It ignores errors: Recover sees that the entry exists, and
// deletes the intent.
func (s *Service) forget(ctx context.Context, in intent) {
	_ = s.Stores.System().Write(ctx, func(tx *db.Tx) error {
		_, err := deleteIntent(ctx, tx, in.Seq)
		return err
	})
}

// undo removes a tenant whose creation failed halfway. Otherwise it would occupy its id forever. If
// this server was frozen meanwhile, another one may have completed the tenant, or removed it and
// given its id to a new one. Then the intent is gone, and nothing is removed.
func (s *Service) undo(ctx context.Context, in intent, t Tenant) error {
	var ours int64
	err := s.Stores.System().Write(ctx, func(tx *db.Tx) (err error) {
		if ours, err = deleteIntent(ctx, tx, in.Seq); err == nil && ours > 0 {
			ours, err = undoTenant(ctx, tx, t)
		}
		return err
	})
	if err != nil || ours == 0 {
		return err
	}
	return s.Stores.DropTenant(ctx, in.Tenant)
}

// Recover completes changes that began before a time and whose server was killed: the audit entry,
// the copy of the settings, the end of a purge. It returns their number. It can be repeated, and
// may run on several replicas at once: an entry is written only once.
func (s *Service) Recover(ctx context.Context, until time.Time) (int, error) {
	list, err := db.ReadStore(ctx, s.Stores.System(), func(tx *db.Tx) ([]intent, error) { return selectIntents(ctx, tx, until) })
	if err != nil {
		return 0, err
	}
	for n, in := range list {
		if err := s.applyIntent(ctx, in); err != nil {
			return n, fmt.Errorf("%s of tenant %s: %w", in.Line.Type, in.Tenant, err)
		}
	}
	return len(list), nil
}

// applyIntent completes an intent.
func (s *Service) applyIntent(ctx context.Context, in intent) error {
	t, err := db.ReadStore(ctx, s.Stores.System(), func(tx *db.Tx) (Tenant, error) { return selectTenant(ctx, tx, in.Tenant) })
	gone := errors.Is(err, db.ErrNoRows)
	if err != nil && !gone {
		return err
	}
	if in.purges() || !gone && t.Status != purging {
		if err := s.recordChange(ctx, in, t); err != nil {
			return err
		}
	}
	switch {
	case gone:
	case in.purges():
		err = s.purge(ctx, in.Tenant)
	case t.Status == purging: // created, and discarded since
		err = s.Stores.DropTenant(ctx, in.Tenant)
	}
	if err != nil && !gone {
		return err
	}
	return s.Stores.System().Write(ctx, func(tx *db.Tx) error {
		_, err := deleteIntent(ctx, tx, in.Seq)
		return err
	})
}

// recordChange writes the audit entry, and the settings of t if the log is in t's own store, unless
// the entry exists.
func (s *Service) recordChange(ctx context.Context, in intent, t Tenant) error {
	return s.Stores.WriteUnder(ctx, in.Home, "tenant", func(tx *db.Tx) error {
		there, err := audit.WasRecorded(ctx, tx, in.Line.Type, string(in.Tenant), in.At)
		if err != nil || there {
			return err
		}
		if !in.purges() {
			if err := putSettings(ctx, tx, t.Settings); err != nil {
				return err
			}
		}
		if in.Line.Type == created {
			for _, f := range s.OnCreate {
				if err := f(ctx, tx, t); err != nil {
					return err
				}
			}
		}
		return in.writeLog(ctx, tx)
	})
}
