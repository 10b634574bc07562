package domain

import (
	"context"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
	"github.com/gatehouse-dev/gatehouse/internal/secret/reseal"
)

// issued is the certificate that was ordered for a domain, and the state of its orders.
type issued struct {
	Domain      string         `db:"domain"`
	Tenant      scope.TenantID `db:"tenant"`
	Certificate string         `db:"certificate"`
	Key         []byte         `db:"sealed_key"`
	Fingerprint string         `db:"fingerprint"`
	NotAfter    *time.Time     `db:"not_after"`
	Method      string         `db:"method"`
	Challenge   string         `db:"challenge"`
	Attempts    int64          `db:"attempts"`
	NextAt      time.Time      `db:"next_at"`
	Failure     string         `db:"failure"`
}

const issuedColumns = `domain, tenant, certificate, sealed_key, fingerprint, not_after, method, challenge, attempts, next_at, failure`

// selectIssued returns the row of a domain's orders. If there is none, only Domain is set.
func selectIssued(ctx context.Context, tx *db.Tx, name string) (issued, error) {
	c, err := db.One[issued](ctx, tx, `SELECT `+issuedColumns+` FROM acme_certificates WHERE domain = $1`, name)
	return db.FoundOr(c, err, issued{Domain: name, Key: []byte{}})
}

// selectIssuedOf returns the rows of the orders of a tenant's domains.
func selectIssuedOf(ctx context.Context, tx *db.Tx, tenant scope.TenantID) ([]issued, error) {
	return db.All[issued](ctx, tx, `SELECT `+issuedColumns+` FROM acme_certificates WHERE tenant = $1`, tenant)
}

// putIssued adds or replaces the row of a domain's orders.
func putIssued(ctx context.Context, tx *db.Tx, c issued) error {
	return tx.Do(ctx, `INSERT INTO acme_certificates (`+issuedColumns+`) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)
		ON CONFLICT (domain) DO UPDATE SET tenant = excluded.tenant, certificate = excluded.certificate, sealed_key = excluded.sealed_key,
		fingerprint = excluded.fingerprint, not_after = excluded.not_after, method = excluded.method, challenge = excluded.challenge,
		attempts = excluded.attempts, next_at = excluded.next_at, failure = excluded.failure`,
		c.Domain, c.Tenant, c.Certificate, c.Key, c.Fingerprint, c.NotAfter, c.Method, c.Challenge, c.Attempts, c.NextAt, c.Failure)
}

func deleteIssued(ctx context.Context, tx *db.Tx, name string, tenant scope.TenantID) error {
	return tx.Do(ctx, `DELETE FROM acme_certificates WHERE domain = $1 AND tenant = $2`, name, tenant)
}

// makeOrderDue makes a domain's order due, if the last one failed.
func makeOrderDue(ctx context.Context, tx *db.Tx, name string, tenant scope.TenantID, now time.Time) error {
	return tx.Do(ctx, `UPDATE acme_certificates SET next_at = $3 WHERE domain = $1 AND tenant = $2 AND failure <> ''`, name, tenant, now)
}

// wanted selects the domains of active tenants for which certificates are ordered, with the time of
// their next order. $1 is the status of active tenants.
const wanted = ` FROM domain_routes r JOIN tenants t ON t.id = r.tenant AND t.status = $1
	LEFT JOIN acme_certificates c ON c.domain = r.domain WHERE r.acme AND r.pair = ''`

// selectDue returns the orders that are due, those that wait longest first.
func selectDue(ctx context.Context, tx *db.Tx, active string, now time.Time, limit int) ([]Order, error) {
	return db.All[Order](ctx, tx, `SELECT r.domain, r.tenant, COALESCE(c.method, '') AS method, COALESCE(c.attempts, 0) AS attempts`+wanted+`
		AND COALESCE(c.next_at, 0) <= $2 ORDER BY COALESCE(c.next_at, 0), r.domain LIMIT $3`, active, now, limit)
}

// countOrders counts the orders of a tenant after a time, and deletes all older orders.
func countOrders(ctx context.Context, tx *db.Tx, tenant scope.TenantID, since time.Time) (int64, error) {
	if err := tx.Do(ctx, `DELETE FROM acme_orders WHERE at <= $1`, since); err != nil {
		return 0, err
	}
	return db.One[int64](ctx, tx, `SELECT count(*) FROM acme_orders WHERE tenant = $1`, tenant)
}

// firstOrder returns the time of a tenant's oldest order that still counts.
func firstOrder(ctx context.Context, tx *db.Tx, tenant scope.TenantID) (time.Time, error) {
	return db.One[time.Time](ctx, tx, `SELECT min(at) FROM acme_orders WHERE tenant = $1`, tenant)
}

func insertOrder(ctx context.Context, tx *db.Tx, tenant scope.TenantID, at time.Time) error {
	return tx.Do(ctx, `INSERT INTO acme_orders (tenant, at) VALUES ($1, $2)`, tenant, at)
}

// deleteOrder deletes one order of a tenant that was counted at a time.
func deleteOrder(ctx context.Context, tx *db.Tx, tenant scope.TenantID, at time.Time) error {
	return tx.Do(ctx, `DELETE FROM acme_orders WHERE id = (SELECT min(id) FROM acme_orders WHERE tenant = $1 AND at = $2)`, tenant, at)
}

// selectAccount returns the sealed key of the account at a directory; nil: there is none.
func selectAccount(ctx context.Context, tx *db.Tx, directory string) ([]byte, error) {
	return db.OneOrZero[[]byte](ctx, tx, `SELECT sealed_key FROM acme_accounts WHERE directory = $1`, directory)
}

// insertAccount stores the key of the account at a directory, unless there is one already.
func insertAccount(ctx context.Context, tx *db.Tx, directory string, key []byte, at time.Time) error {
	return tx.Do(ctx, `INSERT INTO acme_accounts (directory, sealed_key, created_at) VALUES ($1, $2, $3) ON CONFLICT (directory) DO NOTHING`, directory, key, at)
}

// Secrets declares the keys of certificates and of accounts at ACME servers, for package reseal.
func (s *Service) Secrets() []reseal.Column {
	account := func(_ scope.TenantID, directory string) string { return accountPlace(directory) }
	return []reseal.Column{
		{Table: "domains", Name: "sealed_key", Key: "domain", Box: s.Box, Place: reseal.ByName(keyPlace)},
		{Table: "acme_certificates", Name: "sealed_key", Key: "domain", Tenant: "tenant", Box: s.Box, Place: reseal.ByName(issuedPlace)},
		{Table: "acme_accounts", Name: "sealed_key", Key: "directory", System: true, Box: s.Box, Place: reseal.ByName(account)},
	}
}
