package domain

import (
	"context"
	"errors"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

// selectRoutes lists what replicas know of verified domains.
func selectRoutes(ctx context.Context, tx *db.Tx) ([]Route, error) {
	return db.All[Route](ctx, tx, `SELECT r.domain, r.tenant, r.pair, r.acme, r.hsts, COALESCE(t.status, '') AS status,
		COALESCE(c.fingerprint, '') AS issued, COALESCE(c.challenge, '') AS challenge
		FROM domain_routes r LEFT JOIN tenants t ON t.id = r.tenant LEFT JOIN acme_certificates c ON c.domain = r.domain`)
}

// selectRoute is the route of a domain; the zero Route for none.
func selectRoute(ctx context.Context, tx *db.Tx, name string) (Route, error) {
	r, err := db.One[Route](ctx, tx, `SELECT domain, tenant, pair, acme, hsts, '' AS status, '' AS issued, '' AS challenge FROM domain_routes WHERE domain = $1`, name)
	if errors.Is(err, db.ErrNoRows) {
		return Route{}, nil
	}
	return r, err
}

// ownerOf is the tenant that a domain is verified for; empty for none.
func ownerOf(ctx context.Context, tx *db.Tx, name string) (scope.TenantID, error) {
	r, err := selectRoute(ctx, tx, name)
	return r.Tenant, err
}

// putRoute adds a route, or changes the tenant's own; one of another tenant stays.
func putRoute(ctx context.Context, tx *db.Tx, r Route, at time.Time) error {
	_, err := tx.Exec(ctx, `INSERT INTO domain_routes (domain, tenant, created_at, pair, acme, hsts) VALUES ($1, $2, $3, $4, $5, $6)
		ON CONFLICT (domain) DO UPDATE SET pair = excluded.pair, acme = excluded.acme, hsts = excluded.hsts WHERE domain_routes.tenant = excluded.tenant`,
		r.Domain, r.Tenant, at, r.Pair, r.ACME, r.HSTS)
	return err
}

// deleteRoute takes a tenant's domain away, and no other tenant's, with what was ordered
// for it.
func deleteRoute(ctx context.Context, tx *db.Tx, name string, tenant scope.TenantID) error {
	if err := deleteIssued(ctx, tx, name, tenant); err != nil {
		return err
	}
	_, err := tx.Exec(ctx, `DELETE FROM domain_routes WHERE domain = $1 AND tenant = $2`, name, tenant)
	return err
}

// deleteRoutes takes all domains of a tenant away, with what was ordered for them.
func deleteRoutes(ctx context.Context, tx *db.Tx, tenant scope.TenantID) error {
	for _, table := range []string{`DELETE FROM acme_certificates WHERE tenant = $1`, `DELETE FROM acme_orders WHERE tenant = $1`, `DELETE FROM domain_routes WHERE tenant = $1`} {
		if _, err := tx.Exec(ctx, table, tenant); err != nil {
			return err
		}
	}
	return nil
}
