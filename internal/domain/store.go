package domain

import (
	"context"
	"errors"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/fault"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

const columns = `domain, token, certificate, sealed_key, not_after, created_at, verified_at`

func insertDomain(ctx context.Context, tx *db.Tx, r record) error {
	_, err := tx.Exec(ctx, `INSERT INTO domains (`+columns+`) VALUES ($1, $2, $3, $4, $5, $6, $7)`,
		r.Domain, r.Token, r.Certificate, r.Key, r.NotAfter, r.CreatedAt, r.VerifiedAt)
	return err
}

func updateDomain(ctx context.Context, tx *db.Tx, r record) error {
	_, err := tx.Exec(ctx, `UPDATE domains SET certificate = $2, sealed_key = $3, not_after = $4, verified_at = $5 WHERE domain = $1`,
		r.Domain, r.Certificate, r.Key, r.NotAfter, r.VerifiedAt)
	return err
}

func deleteDomain(ctx context.Context, tx *db.Tx, name string) error {
	_, err := tx.Exec(ctx, `DELETE FROM domains WHERE domain = $1`, name)
	return err
}

func selectDomain(ctx context.Context, tx *db.Tx, name string) (record, error) {
	r, err := db.One[record](ctx, tx, `SELECT `+columns+` FROM domains WHERE domain = $1`, name)
	if errors.Is(err, db.ErrNoRows) {
		return r, fault.NotFoundf("the tenant has no such domain")
	}
	return r, err
}

func selectDomains(ctx context.Context, tx *db.Tx) ([]record, error) {
	return db.All[record](ctx, tx, `SELECT `+columns+` FROM domains ORDER BY created_at, domain`)
}

func countDomains(ctx context.Context, tx *db.Tx) (int64, error) {
	return db.One[int64](ctx, tx, `SELECT count(*) FROM domains`)
}

// route says whose a verified domain is. It stands in the system store.
type route struct {
	Domain string         `db:"domain"`
	Tenant scope.TenantID `db:"tenant"`
}

func selectRoutes(ctx context.Context, tx *db.Tx) ([]route, error) {
	return db.All[route](ctx, tx, `SELECT domain, tenant FROM domain_routes`)
}

// ownerOf is the tenant that a domain is verified for; empty for none.
func ownerOf(ctx context.Context, tx *db.Tx, name string) (scope.TenantID, error) {
	owner, err := db.One[scope.TenantID](ctx, tx, `SELECT tenant FROM domain_routes WHERE domain = $1`, name)
	if errors.Is(err, db.ErrNoRows) {
		return "", nil
	}
	return owner, err
}

func insertRoute(ctx context.Context, tx *db.Tx, name string, tenant scope.TenantID, at time.Time) error {
	_, err := tx.Exec(ctx, `INSERT INTO domain_routes (domain, tenant, created_at) VALUES ($1, $2, $3) ON CONFLICT (domain) DO NOTHING`, name, tenant, at)
	return err
}

// deleteRoute takes a tenant's domain away, and no other tenant's.
func deleteRoute(ctx context.Context, tx *db.Tx, name string, tenant scope.TenantID) error {
	_, err := tx.Exec(ctx, `DELETE FROM domain_routes WHERE domain = $1 AND tenant = $2`, name, tenant)
	return err
}

func deleteRoutes(ctx context.Context, tx *db.Tx, tenant scope.TenantID) error {
	_, err := tx.Exec(ctx, `DELETE FROM domain_routes WHERE tenant = $1`, tenant)
	return err
}
