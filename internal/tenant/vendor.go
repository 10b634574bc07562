package tenant

import (
	"context"
	"errors"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/fault"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

// Begin starts to create a tenant for a vendor in several steps. Until Complete, the tenant is
// invisible. Discard removes it. admit runs in the transaction of the record and may refuse it.
func (s *Service) Begin(ctx context.Context, sc scope.Scope, d Draft, vendor, attempt string, admit func(ctx context.Context, tx *db.Tx, t Tenant) error) (Tenant, error) {
	t, err := s.draft(d)
	if err != nil {
		return Tenant{}, err
	}
	t.Vendor, t.Attempt = vendor, attempt
	return s.create(ctx, sc, t, admit)
}

// Complete ends an attempt within tx, a transaction of the system store. From then on, the tenant
// exists. Fault: Conflict if the attempt was discarded.
func Complete(ctx context.Context, tx *db.Tx, id scope.TenantID, attempt string) error {
	n, err := completeTenant(ctx, tx, id, attempt)
	if err != nil {
		return err
	}
	if n == 0 {
		return TakenOver()
	}
	_, err = tx.Bump(ctx, Revision)
	return err
}

// TakenOver returns the fault for an attempt that was discarded while it still ran, because its
// server was frozen or cut off from the store.
func TakenOver() *fault.Error {
	return fault.New(fault.Conflict, "request_in_progress", "another request with this Idempotency-Key has taken over").After(time.Second)
}

// IsAttemptOf reports whether a tenant still belongs to an attempt.
func (s *Service) IsAttemptOf(ctx context.Context, id scope.TenantID, attempt string) (bool, error) {
	t, err := db.ReadStore(ctx, s.Stores.System(), func(tx *db.Tx) (Tenant, error) { return selectTenant(ctx, tx, id) })
	if errors.Is(err, db.ErrNoRows) {
		return false, nil
	}
	return t.Attempt == attempt && t.Status != purging, err
}

// Discard removes everything that an attempt has created of a tenant, and frees the id. It can be
// repeated. It does not change a tenant that is complete or belongs to another attempt.
func (s *Service) Discard(ctx context.Context, id scope.TenantID, attempt string) error {
	var ours int64
	err := s.Stores.System().Write(ctx, func(tx *db.Tx) (err error) {
		if ours, err = discardTenant(ctx, tx, id, attempt); err == nil && ours > 0 {
			err = deleteIntentsFor(ctx, tx, id)
		}
		return err
	})
	if err != nil || ours == 0 {
		return err
	}
	return s.drop(ctx, id)
}

// OfVendor returns a tenant of a vendor, without its usage. Fault: NotFound for any other tenant.
func (s *Service) OfVendor(ctx context.Context, vendor string, id scope.TenantID) (Tenant, error) {
	t, err := db.ReadStore(ctx, s.Stores.System(), func(tx *db.Tx) (Tenant, error) { return selectTenant(ctx, tx, id) })
	if errors.Is(err, db.ErrNoRows) || err == nil && (t.Vendor != vendor || vendor == "" || t.Attempt != "" || t.Status == purging) {
		return Tenant{}, notFound(id)
	}
	return t, err
}

// ListOfVendor returns a page of a vendor's tenants, by id.
func (s *Service) ListOfVendor(ctx context.Context, vendor string, f Filter) (Page, error) {
	return db.ReadStore(ctx, s.Stores.System(), func(tx *db.Tx) (Page, error) { return selectPage(ctx, tx, "", vendor, f) })
}
