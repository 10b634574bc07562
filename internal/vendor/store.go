package vendor

import (
	"context"
	"errors"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/audit"
	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/fault"
	"github.com/gatehouse-dev/gatehouse/internal/patch"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

const columns = `id, name, max_tenants, requests_per_hour, version, created_by, created_at, updated_at`

func insertVendor(ctx context.Context, tx *db.Tx, v Vendor) error {
	return tx.Do(ctx, `INSERT INTO vendors (`+columns+`) VALUES ($1, $2, $3, $4, $5, $6, $7, $8)`,
		v.ID, v.Name, v.MaxTenants, v.RequestsPerHour, v.Version, v.CreatedBy, v.CreatedAt, v.UpdatedAt)
}

func updateVendor(ctx context.Context, tx *db.Tx, v Vendor) error {
	return tx.Do(ctx, `UPDATE vendors SET name = $2, max_tenants = $3, requests_per_hour = $4, version = $5, updated_at = $6 WHERE id = $1`,
		v.ID, v.Name, v.MaxTenants, v.RequestsPerHour, v.Version, v.UpdatedAt)
}

func deleteVendor(ctx context.Context, tx *db.Tx, id string) error {
	return tx.Do(ctx, `DELETE FROM vendors WHERE id = $1`, id)
}

func selectVendor(ctx context.Context, tx *db.Tx, id string) (Vendor, error) {
	v, err := db.One[Vendor](ctx, tx, `SELECT `+columns+` FROM vendors WHERE id = $1`, id)
	if errors.Is(err, db.ErrNoRows) {
		return Vendor{}, fault.NotFoundf("there is no such vendor")
	}
	return v, err
}

// lockVendor reads a vendor for a change and locks it until the transaction ends.
func lockVendor(ctx context.Context, tx *db.Tx, id string) (Vendor, error) {
	if err := tx.Lock(ctx, "vendor:"+id); err != nil {
		return Vendor{}, err
	}
	return selectVendor(ctx, tx, id)
}

func selectVendors(ctx context.Context, tx *db.Tx, skip, limit int) (Page, error) {
	var p Page
	var err error
	if p.Vendors, err = db.All[Vendor](ctx, tx, `SELECT `+columns+` FROM vendors ORDER BY id LIMIT $1 OFFSET $2`, limit, skip); err != nil {
		return Page{}, err
	}
	p.Total, err = db.One[int64](ctx, tx, `SELECT count(*) FROM vendors`)
	return p, err
}

// record writes a vendor's change to the administrative log.
func (s *Service) record(ctx context.Context, tx *db.Tx, sc scope.Scope, v Vendor, kind string, changes map[string]any) error {
	return audit.Append(ctx, tx, sc, s.Now(), audit.Entry{Type: kind, Object: "vendor", ObjectID: v.ID, ObjectName: v.Name, Changes: changes})
}

// changesOf returns the differences between two states of a vendor, for the audit.
func changesOf(old, v Vendor) map[string]any {
	out := patch.Differences{}
	out.Note("name", old.Name, v.Name)
	out.Note("max_tenants", old.MaxTenants, v.MaxTenants)
	out.Note("requests_per_hour", old.RequestsPerHour, v.RequestsPerHour)
	return out
}

// provisioning is a tenant that a vendor is creating, or has created within keepAnswers.
type provisioning struct {
	Attempt string `db:"attempt"`
	Vendor  string `db:"vendor"`
	// Request is the hash of the Idempotency-Key; empty for none.
	Request   string         `db:"request"`
	Tenant    scope.TenantID `db:"tenant"`
	CreatedAt time.Time      `db:"created_at"`
	// Until is when an unfinished provisioning counts as abandoned.
	Until time.Time `db:"until"`
	// Answer is the sealed answer; empty until the tenant is complete.
	Answer []byte `db:"answer"`
	// begun is set once the tenant's record is known to be stored.
	begun bool
}

const provisioningColumns = `attempt, vendor, request, tenant, created_at, until, answer`

func insertProvisioning(ctx context.Context, tx *db.Tx, p provisioning) error {
	return tx.Do(ctx, `INSERT INTO provisionings (`+provisioningColumns+`) VALUES ($1, $2, $3, $4, $5, $6, $7)`,
		p.Attempt, p.Vendor, p.Request, p.Tenant, p.CreatedAt, p.Until, []byte{})
}

func putAnswer(ctx context.Context, tx *db.Tx, attempt string, answer []byte) error {
	return tx.Do(ctx, `UPDATE provisionings SET answer = $2 WHERE attempt = $1`, attempt, answer)
}

func deleteProvisioning(ctx context.Context, tx *db.Tx, attempt string) error {
	return tx.Do(ctx, `DELETE FROM provisionings WHERE attempt = $1`, attempt)
}

func deleteProvisioningsOf(ctx context.Context, tx *db.Tx, id scope.TenantID) error {
	return tx.Do(ctx, `DELETE FROM provisionings WHERE tenant = $1 AND length(answer) > 0`, id)
}

func deleteAnswersBefore(ctx context.Context, tx *db.Tx, at time.Time) error {
	return tx.Do(ctx, `DELETE FROM provisionings WHERE length(answer) > 0 AND created_at < $1`, at)
}

// selectRequest lists the provisionings of a request since a time.
func selectRequest(ctx context.Context, tx *db.Tx, vendor, request string, since time.Time) ([]provisioning, error) {
	return db.All[provisioning](ctx, tx, `SELECT `+provisioningColumns+` FROM provisionings
		WHERE vendor = $1 AND request = $2 AND created_at >= $3 ORDER BY created_at, attempt`, vendor, request, since)
}

// selectAbandoned lists the unfinished provisionings that count as abandoned at a time.
func selectAbandoned(ctx context.Context, tx *db.Tx, at time.Time) ([]provisioning, error) {
	return db.All[provisioning](ctx, tx, `SELECT `+provisioningColumns+` FROM provisionings WHERE length(answer) = 0 AND (until < $1 OR until > $2) ORDER BY created_at, attempt`,
		at, db.MaxLeaseEnd(at, abandonedAfter))
}
