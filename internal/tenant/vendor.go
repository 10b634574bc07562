package tenant

import (
	"context"
	"errors"

	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/fault"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

// Found begins a tenant that a vendor makes in several steps. Until Complete it is in no
// list and nobody finds it; Discard takes it back. admit runs in the transaction of the
// record and may refuse it.
func (s *Service) Found(ctx context.Context, sc scope.Scope, d Draft, vendor, attempt string, admit func(ctx context.Context, tx *db.Tx, t Tenant) error) (Tenant, error) {
	t, err := s.draft(d)
	if err != nil {
		return Tenant{}, err
	}
	t.Vendor, t.Attempt = vendor, attempt
	return s.create(ctx, sc, t, admit)
}

// Complete ends an attempt within tx, a transaction of the system store: the tenant exists
// from then on. Fault: Conflict where the attempt was discarded.
func Complete(ctx context.Context, tx *db.Tx, id scope.TenantID, attempt string) error {
	n, err := completeTenant(ctx, tx, id, attempt)
	if err != nil {
		return err
	}
	if n == 0 {
		return fault.New(fault.Conflict, "request_in_progress", "another request with this Idempotency-Key has taken over")
	}
	_, err = tx.Bump(ctx, Revision)
	return err
}

// Discard removes what an attempt has made of a tenant. It can be repeated, and touches no
// tenant that is complete or of another attempt. The id is free again.
func (s *Service) Discard(ctx context.Context, id scope.TenantID, attempt string) error {
	var t Tenant
	err := s.Stores.System().Read(ctx, func(tx *db.Tx) (err error) {
		t, err = selectTenant(ctx, tx, id)
		return err
	})
	if errors.Is(err, db.ErrNoRows) || err == nil && t.Attempt != attempt {
		return nil
	}
	if err != nil {
		return err
	}
	return s.drop(ctx, id)
}

// OfVendor reads a tenant that a vendor has made, without its usage. A tenant that is not
// the vendor's is unknown to it.
func (s *Service) OfVendor(ctx context.Context, vendor string, id scope.TenantID) (Tenant, error) {
	var t Tenant
	err := s.Stores.System().Read(ctx, func(tx *db.Tx) (err error) {
		t, err = selectTenant(ctx, tx, id)
		return err
	})
	if errors.Is(err, db.ErrNoRows) || err == nil && (t.Vendor != vendor || vendor == "" || t.Attempt != "" || t.Status == purging) {
		return Tenant{}, notFound(id)
	}
	return t, err
}

// ListOfVendor gives a page of the tenants that a vendor has made, by id.
func (s *Service) ListOfVendor(ctx context.Context, vendor string, f Filter) (Page, error) {
	var p Page
	err := s.Stores.System().Read(ctx, func(tx *db.Tx) (err error) {
		p, err = selectPage(ctx, tx, "", vendor, f)
		return err
	})
	return p, err
}

// CountOfVendor counts the tenants of a vendor within tx, a transaction of the system
// store: those that it is making too, and no deleted ones.
func CountOfVendor(ctx context.Context, tx *db.Tx, vendor string) (int64, error) {
	return countOfVendor(ctx, tx, vendor)
}

// CountDeletedOfVendor counts the deleted tenants of a vendor whose data is kept, within tx,
// a transaction of the system store.
func CountDeletedOfVendor(ctx context.Context, tx *db.Tx, vendor string) (int64, error) {
	return countDeletedOfVendor(ctx, tx, vendor)
}
