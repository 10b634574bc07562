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

// intent is a change of a tenant's record that a log is to tell of. The record
// stands in the system store and the log in a tenant's own, and no transaction
// spans the two: so the record's transaction keeps the intent, the log's makes
// it good, and then it is forgotten. What a killed server leaves, Recover ends.
type intent struct {
	// Seq is the revision of the tenants that the change made.
	Seq    int64          `db:"seq"`
	Tenant scope.TenantID `db:"tenant"`
	// Home is the tenant whose log tells of it: another one for a purge, which
	// takes the log along.
	Home    scope.TenantID `db:"home"`
	At      time.Time      `db:"at"`
	Telling telling        `db:"telling"`
}

// telling is what the log is told.
type telling struct {
	Type      string         `json:"type"`
	Name      string         `json:"name"`
	Changes   map[string]any `json:"changes"`
	Actor     scope.Actor    `json:"actor"`
	RequestID string         `json:"request_id"`
}

// created is the type of the log's line on a new tenant.
const created = "TENANT_CREATED"

// newIntent makes the intent of a change of t.
func newIntent(sc scope.Scope, t Tenant, at time.Time, kind string, changes map[string]any) intent {
	return intent{Tenant: t.ID, Home: t.ID, At: db.Stamp(at), Telling: telling{kind, t.Name, changes, sc.Actor, sc.RequestID}}
}

// purges reports whether the tenant's store is to go.
func (in intent) purges() bool { return in.Home != in.Tenant }

// store writes the intent and tells all replicas, in the record's transaction.
func (in *intent) store(ctx context.Context, tx *db.Tx) (err error) {
	if in.Seq, err = tx.Bump(ctx, Revision); err != nil {
		return err
	}
	return insertIntent(ctx, tx, *in)
}

// writeLog writes the log's line, in a transaction of the store it belongs to.
func (in intent) writeLog(ctx context.Context, tx *db.Tx) error {
	sc := scope.Scope{Tenant: in.Home, Actor: in.Telling.Actor, RequestID: in.Telling.RequestID}
	return audit.Append(ctx, tx, sc, in.At, audit.Entry{
		Type: in.Telling.Type, Object: "tenant", ObjectID: string(in.Tenant), ObjectName: in.Telling.Name, Changes: in.Telling.Changes,
	})
}

// forget ends an intent that was made good. Where that fails nothing is amiss:
// Recover sees that it is told, and ends it.
func (s *Service) forget(ctx context.Context, in intent) {
	_ = s.Stores.System().Write(ctx, func(tx *db.Tx) error { return deleteIntent(ctx, tx, in.Seq) })
}

// Recover makes good what was begun up to a time and not ended, because its
// server was killed: the line in the log, the settings' copy, the end of a purge.
// It says how many. It can be repeated and may run beside others: what was
// told is not told twice.
func (s *Service) Recover(ctx context.Context, until time.Time) (int, error) {
	var list []intent
	err := s.Stores.System().Read(ctx, func(tx *db.Tx) (err error) {
		list, err = selectIntents(ctx, tx, until)
		return err
	})
	if err != nil {
		return 0, err
	}
	for n, in := range list {
		if err := s.applyIntent(ctx, in); err != nil {
			return n, fmt.Errorf("%s of tenant %s: %w", in.Telling.Type, in.Tenant, err)
		}
	}
	return len(list), nil
}

// applyIntent makes an intent good, as far as it is not.
func (s *Service) applyIntent(ctx context.Context, in intent) error {
	var t Tenant
	err := s.Stores.System().Read(ctx, func(tx *db.Tx) (err error) {
		t, err = selectTenant(ctx, tx, in.Tenant)
		return err
	})
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
	case t.Status == purging: // made, and taken back
		err = s.Stores.DropTenant(ctx, in.Tenant)
	}
	if err != nil && !gone {
		return err
	}
	return s.Stores.System().Write(ctx, func(tx *db.Tx) error { return deleteIntent(ctx, tx, in.Seq) })
}

// recordChange writes the line, and the settings of t where the log is its own, unless
// the line is there.
func (s *Service) recordChange(ctx context.Context, in intent, t Tenant) error {
	return s.Stores.WriteUnder(ctx, in.Home, "tenant", func(tx *db.Tx) error {
		there, err := audit.WasRecorded(ctx, tx, in.Telling.Type, string(in.Tenant), in.At)
		if err != nil || there {
			return err
		}
		if !in.purges() {
			if err := putSettings(ctx, tx, t.Settings); err != nil {
				return err
			}
		}
		if in.Telling.Type == created {
			for _, f := range s.OnCreate {
				if err := f(ctx, tx, t); err != nil {
					return err
				}
			}
		}
		return in.writeLog(ctx, tx)
	})
}
