package region

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/db/tablecopy"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
	"github.com/gatehouse-dev/gatehouse/internal/tenant"
)

const columns = `id, tenant, region, from_region, source, target, leftovers, migrate_data, begins_at, phase, token, attempts, reason, rows_total, rows_done,
	changes, pause_ms, started_at, estimated_at, switched_at, completed_at, keep_until, purged_at, new_domain, actor, request_id`

func insert(ctx context.Context, tx *db.Tx, d Deployment) error {
	return tx.Do(ctx, `INSERT INTO deployments (`+columns+`) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18,
		$19, $20, $21, $22, $23, $24, $25, $26)`,
		d.ID, d.Tenant, d.Region, d.FromRegion, d.Source, d.Target, d.Leftovers, d.MigrateData, d.BeginsAt, d.Phase, d.Token, d.Attempts, d.ReasonText, d.RowsTotal, d.RowsCopied,
		d.ChangesCopied, d.WritePauseMS, d.StartedAt, d.Estimated, d.SwitchedAt, d.CompletedAt, d.SourceUntil, d.SourcePurgedAt, d.Domain, d.Actor, d.RequestID)
}

func selectOpenOf(ctx context.Context, tx *db.Tx, id scope.TenantID) (Deployment, error) {
	return db.One[Deployment](ctx, tx, `SELECT `+columns+` FROM deployments WHERE tenant = $1 AND completed_at IS NULL`, id)
}

func find(ctx context.Context, tx *db.Tx, id scope.TenantID, deployment string) (Deployment, error) {
	return db.One[Deployment](ctx, tx, `SELECT `+columns+` FROM deployments WHERE tenant = $1 AND id = $2`, id, deployment)
}

// endDeployments ends a tenant's deployments, and takes them away from the process that works on
// them.
func endDeployments(ctx context.Context, tx *db.Tx, id scope.TenantID) error {
	token, err := tx.Bump(ctx, tokens)
	if err != nil {
		return err
	}
	return tx.Do(ctx, `UPDATE deployments SET token = $2, phase = 'failed', completed_at = COALESCE(completed_at, $3) WHERE tenant = $1 AND phase <> 'done'`, id, token, tx.Now())
}

// tokens is the name of the revision from which tokens are taken.
const tokens = "deployments.token"

func page(ctx context.Context, tx *db.Tx, id scope.TenantID, skip, limit int) (p Page, err error) {
	p.Deployments, err = db.All[Deployment](ctx, tx, `SELECT `+columns+` FROM deployments WHERE tenant = $1 ORDER BY started_at DESC, id DESC LIMIT $2 OFFSET $3`, id, limit, skip)
	if err == nil {
		p.Total, err = db.One[int64](ctx, tx, `SELECT count(*) FROM deployments WHERE tenant = $1`, id)
	}
	return p, err
}

// selectOpen lists the deployments that have not ended.
func selectOpen(ctx context.Context, tx *db.Tx) ([]Deployment, error) {
	return db.All[Deployment](ctx, tx, `SELECT `+columns+` FROM deployments WHERE completed_at IS NULL ORDER BY begins_at, id`)
}

// selectUnkept lists the complete deployments whose source is no longer kept.
func selectUnkept(ctx context.Context, tx *db.Tx, now time.Time) ([]Deployment, error) {
	return db.All[Deployment](ctx, tx, `SELECT `+columns+` FROM deployments WHERE phase = 'done' AND purged_at IS NULL AND keep_until <= $1 ORDER BY keep_until`, now)
}

func cancel(ctx context.Context, tx *db.Tx, deployment, reason string) (int64, error) {
	return tx.Exec(ctx, `UPDATE deployments SET phase = 'rolling_back', reason = $2 WHERE id = $1 AND phase IN ('waiting', 'copying', 'catching_up')`, deployment, reason)
}

func regionOf(ctx context.Context, tx *db.Tx, id scope.TenantID) (string, error) {
	return db.One[string](ctx, tx, `SELECT region FROM tenants WHERE id = $1`, id)
}

// claim makes this process the owner of a deployment. It returns ErrLost if another process has
// claimed it since it was read.
func (s *Service) claim(ctx context.Context, read Deployment, phase string) (Deployment, error) {
	d := read
	err := s.Stores.System().Write(ctx, func(tx *db.Tx) error {
		d = read
		token, err := tx.Bump(ctx, tokens)
		if err != nil {
			return err
		}
		was := d.Phase
		if phase == copying {
			if d.Attempts++; d.Attempts > 1 {
				d.Leftovers = strings.TrimSpace(d.Leftovers + " " + d.Target)
			}
			d.Target = db.NewStore(d.Target)
		}
		n, err := tx.Exec(ctx, `UPDATE deployments SET token = $4, phase = $5, attempts = $6, target = $7, leftovers = $8 WHERE id = $1 AND token = $2 AND phase = $3`,
			d.ID, d.Token, was, token, phase, d.Attempts, d.Target, d.Leftovers)
		if err == nil && n != 1 {
			err = tablecopy.ErrLost
		}
		if err != nil {
			return err
		}
		d.Token, d.Phase = token, phase
		if phase == copying {
			d.RowsTotal, d.RowsCopied, d.ChangesCopied = 0, 0, 0
		}
		if phase != copying {
			return nil
		}
		at, err := s.Stores.PlaceOf(ctx, tx, d.Tenant)
		if err == nil && at != d.Source {
			err = errors.New("the tenant is no longer where it was")
		}
		return err
	})
	return d, err
}

// saveProgress stores the progress and phase of a deployment. It returns ErrLost if this process no
// longer owns it.
func (s *Service) saveProgress(ctx context.Context, d *Deployment, next string) error {
	return s.Stores.System().Write(ctx, func(tx *db.Tx) error {
		n, err := tx.Exec(ctx, `UPDATE deployments SET phase = $4, rows_total = $5, rows_done = $6, changes = $7 WHERE id = $1 AND token = $2 AND phase = $3`,
			d.ID, d.Token, d.Phase, next, d.RowsTotal, d.RowsCopied, d.ChangesCopied)
		if err == nil && n != 1 {
			err = tablecopy.ErrLost
		}
		return err
	})
}

// switchStore commits the switch: from then on, the tenant is in the target.
func (s *Service) switchStore(ctx context.Context, d *Deployment, pause time.Duration) error {
	now := db.Stamp(s.Now())
	d.SwitchedAt = &now
	return s.Stores.System().Write(ctx, func(tx *db.Tx) error {
		n, err := tx.Exec(ctx, `UPDATE deployments SET phase = 'switched', switched_at = $3, pause_ms = $4, changes = $5 WHERE id = $1 AND token = $2 AND phase = 'paused'`,
			d.ID, d.Token, now, pause.Milliseconds(), d.ChangesCopied)
		if err == nil && n != 1 {
			err = tablecopy.ErrLost
		}
		if err != nil {
			return err
		}
		known, err := s.Stores.Place(ctx, tx, d.Tenant, d.Target)
		if err == nil && !known {
			err = errors.New("the tenant was purged meanwhile")
		}
		if err != nil {
			return err
		}
		if err := tx.Do(ctx, `UPDATE tenants SET region = $2, updated_at = $3 WHERE id = $1`, d.Tenant, d.Region, now); err != nil {
			return err
		}
		if !d.MigrateData {
			if err := tx.Do(ctx, `DELETE FROM credentials WHERE tenant = $1`, d.Tenant); err != nil {
				return err
			}
		}
		_, err = tx.Bump(ctx, tenant.Revision)
		return err
	})
}

// requestRollBack marks a deployment for rollback. It returns false if this process no longer owns
// it, or if it has switched.
func (s *Service) requestRollBack(ctx context.Context, d Deployment, reason string) (bool, error) {
	var n int64
	err := s.Stores.System().Write(ctx, func(tx *db.Tx) (err error) {
		n, err = tx.Exec(ctx, `UPDATE deployments SET phase = 'rolling_back', reason = $3 WHERE id = $1 AND token = $2 AND phase IN ('copying', 'catching_up', 'paused')`, d.ID, d.Token, reason)
		return err
	})
	return n == 1, err
}

// finish stores the end of a deployment.
func (s *Service) finish(ctx context.Context, d Deployment, phase string) error {
	return s.Stores.System().Write(ctx, func(tx *db.Tx) error {
		now := db.Stamp(s.Now())
		var until *time.Time
		domain := ""
		if phase == done {
			end := now.Add(s.Keep)
			until = &end
			var err error
			if domain, err = db.One[string](ctx, tx, `SELECT domain FROM tenants WHERE id = $1`, d.Tenant); err != nil {
				return err
			}
			if domain == "" {
				domain = s.Host
			}
		}
		return tx.Do(ctx, `UPDATE deployments SET phase = $3, completed_at = $4, keep_until = $5, new_domain = $6 WHERE id = $1 AND token = $2`,
			d.ID, d.Token, phase, now, until, domain)
	})
}

func (s *Service) markPurged(ctx context.Context, d Deployment) error {
	return s.Stores.System().Write(ctx, func(tx *db.Tx) error {
		return tx.Do(ctx, `UPDATE deployments SET purged_at = $2 WHERE id = $1`, d.ID, s.Now())
	})
}

// isTargetNamed reports whether the target of an attempt is still in use: as the tenant's store, or
// by a deployment that will drop it.
func isTargetNamed(ctx context.Context, tx *db.Tx, d Deployment) (bool, error) {
	n, err := db.One[int64](ctx, tx, `SELECT (SELECT count(*) FROM tenants WHERE id = $1 AND store = $2 AND status <> 'purging')
		+ (SELECT count(*) FROM deployments WHERE id = $3 AND target = $2 AND phase NOT IN ('failed', 'done'))`, d.Tenant, d.Target, d.ID)
	return n > 0, err
}

// clearLeftovers records that the copies of earlier attempts were dropped.
func (s *Service) clearLeftovers(ctx context.Context, d Deployment) error {
	return s.Stores.System().Write(ctx, func(tx *db.Tx) error {
		return tx.Do(ctx, `UPDATE deployments SET leftovers = '' WHERE id = $1 AND leftovers = $2`, d.ID, d.Leftovers)
	})
}

func revisions(ctx context.Context, tx *db.Tx) ([]string, error) {
	return db.All[string](ctx, tx, `SELECT name FROM revisions`)
}
