package domain

import (
	"context"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

// selectRoutes returns the routes of all verified domains.
func selectRoutes(ctx context.Context, tx *db.Tx) ([]Route, error) {
	return db.All[Route](ctx, tx, `SELECT r.domain, r.tenant, r.pair, r.acme, r.hsts, COALESCE(t.status, '') AS status,
		COALESCE(c.fingerprint, '') AS issued, COALESCE(c.challenge, '') AS challenge
		FROM domain_routes r LEFT JOIN tenants t ON t.id = r.tenant LEFT JOIN acme_certificates c ON c.domain = r.domain`)
}

// selectRoute returns the stored route of a domain, without Status, Issued and Challenge; the zero
// Route: there is none.
func selectRoute(ctx context.Context, tx *db.Tx, name string) (Route, error) {
	return db.OneOrZero[Route](ctx, tx, `SELECT domain, tenant, pair, acme, hsts, '' AS status, '' AS issued, '' AS challenge FROM domain_routes WHERE domain = $1`, name)
}

// ownerOf returns the tenant that has verified a domain; empty: none.
func ownerOf(ctx context.Context, tx *db.Tx, name string) (scope.TenantID, error) {
	r, err := selectRoute(ctx, tx, name)
	return r.Tenant, err
}

// putRoute adds a route, or changes it if it is the same tenant's. It leaves routes of other tenants
// alone.
func putRoute(ctx context.Context, tx *db.Tx, r Route, at time.Time) error {
	return tx.Do(ctx, `INSERT INTO domain_routes (domain, tenant, created_at, pair, acme, hsts) VALUES ($1, $2, $3, $4, $5, $6)
		ON CONFLICT (domain) DO UPDATE SET pair = excluded.pair, acme = excluded.acme, hsts = excluded.hsts WHERE domain_routes.tenant = excluded.tenant`,
		r.Domain, r.Tenant, at, r.Pair, r.ACME, r.HSTS)
}

// deleteRoute deletes a domain's route and ordered certificate, if they are the tenant's.
func deleteRoute(ctx context.Context, tx *db.Tx, name string, tenant scope.TenantID) error {
	if err := deleteIssued(ctx, tx, name, tenant); err != nil {
		return err
	}
	return tx.Do(ctx, `DELETE FROM domain_routes WHERE domain = $1 AND tenant = $2`, name, tenant)
}

// deleteRoutes deletes the routes, ordered certificates and counted orders of a tenant.
func deleteRoutes(ctx context.Context, tx *db.Tx, tenant scope.TenantID) error {
	for _, table := range []string{`DELETE FROM acme_certificates WHERE tenant = $1`, `DELETE FROM acme_orders WHERE tenant = $1`, `DELETE FROM domain_routes WHERE tenant = $1`} {
		if err := tx.Do(ctx, table, tenant); err != nil {
			return err
		}
	}
	return nil
}
