package tenant

import (
	"context"
	"errors"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/fault"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

const columns = `id, name, domain, custom_domain, status, region, plan_type, created_at, updated_at, expires_at, deleted_at, settings, vendor, attempt`

// settingsRow is the name of the copy in the tenant's store.
const settingsRow = "tenant"

func insertTenant(ctx context.Context, tx *db.Tx, t Tenant) error {
	return tx.Do(ctx, `INSERT INTO tenants (`+columns+`) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14)`,
		t.ID, t.Name, t.Domain, t.CustomDomain, t.Status, t.Region, t.PlanType, t.CreatedAt, t.UpdatedAt, t.ExpiresAt, t.DeletedAt, t.Settings, t.Vendor, t.Attempt)
}

// insertDefault also completes a row with default values.
func insertDefault(ctx context.Context, tx *db.Tx, t Tenant) error {
	return tx.Do(ctx, `INSERT INTO tenants (`+columns+`) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14)
		ON CONFLICT (id) DO UPDATE SET
			region = CASE WHEN tenants.region = '' THEN excluded.region ELSE tenants.region END,
			domain = CASE WHEN tenants.domain = '' THEN excluded.domain ELSE tenants.domain END`,
		t.ID, t.Name, t.Domain, t.CustomDomain, t.Status, t.Region, t.PlanType, t.CreatedAt, t.UpdatedAt, t.ExpiresAt, t.DeletedAt, t.Settings, t.Vendor, t.Attempt)
}

func updateTenant(ctx context.Context, tx *db.Tx, t Tenant) error {
	n, err := tx.Exec(ctx, `UPDATE tenants SET name = $2, status = $3, plan_type = $4, updated_at = $5, expires_at = $6, deleted_at = $7,
		settings = $8 WHERE id = $1`, t.ID, t.Name, t.Status, t.PlanType, t.UpdatedAt, t.ExpiresAt, t.DeletedAt, t.Settings)
	if err == nil && n == 0 {
		return notFound(t.ID)
	}
	return err
}

func selectTenant(ctx context.Context, tx *db.Tx, id scope.TenantID) (Tenant, error) {
	return db.One[Tenant](ctx, tx, `SELECT `+columns+` FROM tenants WHERE id = $1`, id)
}

func selectFacts(ctx context.Context, tx *db.Tx, id scope.TenantID) (Facts, error) {
	row, err := db.One[struct {
		Facts
		Settings Settings `db:"settings"`
	}](ctx, tx, `SELECT status, plan_type, settings FROM tenants WHERE id = $1`, id)
	row.RequireFactor = row.Settings.RequireFactor()
	return row.Facts, err
}

// selectPage lists all complete tenants; with only, that one; with a vendor, those of the vendor.
func selectPage(ctx context.Context, tx *db.Tx, only scope.TenantID, vendor string, f Filter) (Page, error) {
	const where = ` FROM tenants WHERE attempt = '' AND status <> '` + purging + `' AND ($1 = '' OR id = $1) AND ($2 = '' OR vendor = $2)`
	var p Page
	var err error
	p.Tenants, err = db.All[Tenant](ctx, tx, `SELECT `+columns+where+` ORDER BY id LIMIT $3 OFFSET $4`, string(only), vendor, f.Limit, f.Skip)
	if err != nil {
		return Page{}, err
	}
	p.Total, err = db.One[int64](ctx, tx, `SELECT count(*)`+where, string(only), vendor)
	return p, err
}

// selectExpired also lists tenants whose purge is not complete.
func selectExpired(ctx context.Context, tx *db.Tx, now time.Time) ([]scope.TenantID, error) {
	return db.All[scope.TenantID](ctx, tx, `SELECT id FROM tenants WHERE status = $1 AND expires_at <= $2 OR status = $3 ORDER BY id`, Deleted, now, purging)
}

// freeID returns the first id for a name that no tenant has or ever had.
func freeID(ctx context.Context, tx *db.Tx, base string) (scope.TenantID, error) {
	taken, err := db.All[scope.TenantID](ctx, tx, `SELECT id FROM tenants WHERE id = $1 OR id LIKE $2
		UNION SELECT id FROM retired_tenants WHERE id = $1 OR id LIKE $2`, base, base+"-%")
	if err != nil {
		return "", err
	}
	known := make(map[scope.TenantID]bool, len(taken))
	for _, id := range taken {
		known[id] = true
	}
	for n := 1; ; n++ {
		if id := numbered(base, n); !known[id] && !reserved(id) {
			return id, nil
		}
	}
}

// checkDomainsFree returns 409 if another tenant has one of the domains.
func checkDomainsFree(ctx context.Context, tx *db.Tx, t Tenant) error {
	custom := ""
	if t.CustomDomain != nil {
		custom = *t.CustomDomain
	}
	_, err := db.One[string](ctx, tx, `SELECT id FROM tenants WHERE id <> $1 AND
		(($2 <> '' AND (domain = $2 OR custom_domain = $2)) OR ($3 <> '' AND (domain = $3 OR custom_domain = $3))) LIMIT 1`,
		t.ID, t.Domain, custom)
	if errors.Is(err, db.ErrNoRows) {
		return nil
	}
	if err != nil {
		return err
	}
	return fault.New(fault.Conflict, "already_exists", "another tenant has this domain")
}

func markDeleted(ctx context.Context, tx *db.Tx, id scope.TenantID, at time.Time) error {
	return tx.Do(ctx, `INSERT INTO retired_tenants (id, retired_at) VALUES ($1, $2) ON CONFLICT (id) DO NOTHING`, id, at)
}

// selectPurged lists the tenants that are completely purged, since a time.
func selectPurged(ctx context.Context, tx *db.Tx, since time.Time) ([]scope.TenantID, error) {
	return db.All[scope.TenantID](ctx, tx, `SELECT id FROM retired_tenants WHERE retired_at >= $1 AND NOT EXISTS (SELECT 1 FROM tenants WHERE tenants.id = retired_tenants.id) ORDER BY id`, since)
}

// putSettings writes the tenant's own copy of its settings. If bouncers must learn of the change,
// it increments BouncerRevision. The caller holds the lock "tenant".
func putSettings(ctx context.Context, tx *db.Tx, s Settings) error {
	before, err := SettingsIn(ctx, tx)
	if err != nil {
		return err
	}
	if before.Replay().Off != s.Replay().Off {
		if _, err := tx.Bump(ctx, BouncerRevision); err != nil {
			return err
		}
	}
	return tx.Do(ctx, `INSERT INTO settings (name, value) VALUES ($1, $2)
		ON CONFLICT (name) DO UPDATE SET value = excluded.value`, settingsRow, s)
}

// SettingsIn reads the tenant's settings inside the caller's transaction.
func SettingsIn(ctx context.Context, tx *db.Tx) (Settings, error) {
	row, err := db.OneOrZero[struct {
		Value Settings `db:"value"`
	}](ctx, tx, `SELECT value FROM settings WHERE name = $1`, settingsRow)
	return row.Value, err
}

func insertAlert(ctx context.Context, tx *db.Tx, a Alert) error {
	return tx.Do(ctx, `INSERT INTO tenant_alerts (type, severity, subject, message, created_at) VALUES ($1, $2, $3, $4, $5)`,
		a.Type, a.Severity, a.Subject, a.Message, a.CreatedAt)
}

// resolveAlert ends an alert; false: it has ended already.
func resolveAlert(ctx context.Context, tx *db.Tx, a Alert, at time.Time) (bool, error) {
	n, err := tx.Exec(ctx, `UPDATE tenant_alerts SET resolved_at = $2, message = $3 WHERE id = $1 AND resolved_at IS NULL`, a.ID, at, a.Message)
	return n > 0, err
}

// selectOpenOf returns the open alerts of a type.
func selectOpenOf(ctx context.Context, tx *db.Tx, kind string) ([]Alert, error) {
	return db.All[Alert](ctx, tx, `SELECT id, type, severity, subject, message, created_at, resolved_at FROM tenant_alerts
		WHERE type = $1 AND resolved_at IS NULL ORDER BY id`, kind)
}

func selectOpen(ctx context.Context, tx *db.Tx, kind, subject string) ([]Alert, error) {
	return db.All[Alert](ctx, tx, `SELECT id, type, severity, subject, message, created_at, resolved_at FROM tenant_alerts
		WHERE type = $1 AND subject = $2 AND resolved_at IS NULL ORDER BY id`, kind, subject)
}

// selectAlerts returns all open alerts and the newest 1,000 others, newest first. Alerts that come and
// go do not hide one that stays.
func selectAlerts(ctx context.Context, tx *db.Tx) ([]Alert, error) {
	return db.All[Alert](ctx, tx, `SELECT id, type, severity, subject, message, created_at, resolved_at FROM tenant_alerts
		WHERE resolved_at IS NULL OR id IN (SELECT id FROM tenant_alerts WHERE resolved_at IS NOT NULL ORDER BY id DESC LIMIT 1000) ORDER BY id DESC`)
}

func selectEnforcement(ctx context.Context, tx *db.Tx, env scope.Env) (Enforcement, error) {
	return db.One[Enforcement](ctx, tx, `SELECT environment, mode, updated_at, updated_by FROM enforcement WHERE environment = $1`, env)
}

func putEnforcement(ctx context.Context, tx *db.Tx, e Enforcement) error {
	return tx.Do(ctx, `INSERT INTO enforcement (environment, mode, updated_at, updated_by) VALUES ($1, $2, $3, $4)
		ON CONFLICT (environment) DO UPDATE SET mode = excluded.mode, updated_at = excluded.updated_at, updated_by = excluded.updated_by`,
		e.Environment, e.Mode, e.UpdatedAt, e.UpdatedBy)
}

// completeTenant ends an attempt, and returns the number of tenants that it completed.
func completeTenant(ctx context.Context, tx *db.Tx, id scope.TenantID, attempt string) (int64, error) {
	return tx.Exec(ctx, `UPDATE tenants SET attempt = '' WHERE id = $1 AND attempt = $2 AND status <> $3`, id, attempt, purging)
}

// discardTenant marks an incomplete tenant for deletion, so that its attempt can no longer complete it.
func discardTenant(ctx context.Context, tx *db.Tx, id scope.TenantID, attempt string) (int64, error) {
	return tx.Exec(ctx, `UPDATE tenants SET status = $3 WHERE id = $1 AND attempt = $2`, id, attempt, purging)
}

// undoTenant marks a tenant that was just created for deletion, unless its id now belongs to another.
func undoTenant(ctx context.Context, tx *db.Tx, t Tenant) (int64, error) {
	return tx.Exec(ctx, `UPDATE tenants SET status = $4 WHERE id = $1 AND attempt = $2 AND created_at = $3`, t.ID, t.Attempt, t.CreatedAt, purging)
}

// CountDeletedOfVendor counts the deleted tenants of a vendor whose data is kept, within tx,
// a transaction of the system store.
func CountDeletedOfVendor(ctx context.Context, tx *db.Tx, vendor string) (int64, error) {
	return db.One[int64](ctx, tx, `SELECT count(*) FROM tenants WHERE vendor = $1 AND status = $2`, vendor, Deleted)
}

// CountOfVendor counts the tenants of a vendor within tx, a transaction of the system store. It
// includes incomplete tenants and excludes deleted ones.
func CountOfVendor(ctx context.Context, tx *db.Tx, vendor string) (int64, error) {
	return db.One[int64](ctx, tx, `SELECT count(*) FROM tenants WHERE vendor = $1 AND status IN ($2, $3)`, vendor, Active, Suspended)
}
