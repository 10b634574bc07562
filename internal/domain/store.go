package domain

import (
	"context"
	"errors"

	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/fault"
)

const columns = `domain, token, certificate, sealed_key, not_after, created_at, verified_at, acme, hsts`

func insertDomain(ctx context.Context, tx *db.Tx, r record) error {
	return tx.Do(ctx, `INSERT INTO domains (`+columns+`) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)`,
		r.Domain, r.Token, r.Certificate, r.Key, r.NotAfter, r.CreatedAt, r.VerifiedAt, r.ACME, r.HSTS)
}

func updateDomain(ctx context.Context, tx *db.Tx, r record) error {
	return tx.Do(ctx, `UPDATE domains SET certificate = $2, sealed_key = $3, not_after = $4, verified_at = $5, acme = $6, hsts = $7 WHERE domain = $1`,
		r.Domain, r.Certificate, r.Key, r.NotAfter, r.VerifiedAt, r.ACME, r.HSTS)
}

func deleteDomain(ctx context.Context, tx *db.Tx, name string) error {
	return tx.Do(ctx, `DELETE FROM domains WHERE domain = $1`, name)
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
