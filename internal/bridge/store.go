package bridge

import (
	"context"
	"errors"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/bouncer"
	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/rego/masking"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
	"github.com/gatehouse-dev/gatehouse/internal/secret/reseal"
)

func loadKey(ctx context.Context, tx *db.Tx) (storedKey, bool, error) {
	k, err := db.One[storedKey](ctx, tx, `SELECT kid, public, sealed FROM bridge_keys ORDER BY created_at DESC, kid LIMIT 1`)
	if errors.Is(err, db.ErrNoRows) {
		return storedKey{}, false, nil
	}
	return k, err == nil, err
}

func insertKey(ctx context.Context, tx *db.Tx, k storedKey, now time.Time) error {
	return tx.Do(ctx, `INSERT INTO bridge_keys (kid, public, sealed, created_at) VALUES ($1, $2, $3, $4)`, k.ID, k.Public, k.Sealed, now)
}

// storedMaskKey is a row of mask_keys.
type storedMaskKey struct {
	ID     string `db:"kid"`
	Sealed []byte `db:"sealed"`
}

func loadMaskKey(ctx context.Context, tx *db.Tx) (storedMaskKey, bool, error) {
	k, err := db.One[storedMaskKey](ctx, tx, `SELECT kid, sealed FROM mask_keys ORDER BY created_at DESC, kid DESC LIMIT 1`)
	if errors.Is(err, db.ErrNoRows) {
		return storedMaskKey{}, false, nil
	}
	return k, err == nil, err
}

func insertMaskKey(ctx context.Context, tx *db.Tx, k storedMaskKey, now time.Time) error {
	return tx.Do(ctx, `INSERT INTO mask_keys (kid, sealed, created_at) VALUES ($1, $2, $3)`, k.ID, k.Sealed, now)
}

// missedPolls is how many poll intervals a bouncer may miss before it counts as lost.
const missedPolls = 3

// recordPresence stores when a bouncer was seen and, from the interval of its polls, when it will
// count as lost. Interval 0 leaves the stored interval unchanged: logs and reports do not change
// it.
func recordPresence(ctx context.Context, tx *db.Tx, id int64, seen time.Time, interval time.Duration) error {
	if interval > 0 {
		return tx.Do(ctx, `INSERT INTO bridge_presence (bouncer_id, seen_at, due_at) VALUES ($1, $2, $3)
			ON CONFLICT (bouncer_id) DO UPDATE SET seen_at = excluded.seen_at, due_at = excluded.due_at
			WHERE excluded.seen_at >= bridge_presence.seen_at`, id, seen, seen.Add(missedPolls*interval))
	}
	return tx.Do(ctx, `INSERT INTO bridge_presence (bouncer_id, seen_at, due_at) VALUES ($1, $2, $3)
		ON CONFLICT (bouncer_id) DO UPDATE SET seen_at = excluded.seen_at, due_at = excluded.seen_at + bridge_presence.due_at - bridge_presence.seen_at
		WHERE excluded.seen_at >= bridge_presence.seen_at`, id, seen, seen.Add(missedPolls*maxPollInterval))
}

// overdueBouncer is a connected bouncer that has not reported in time.
type overdueBouncer struct {
	ID   int64     `db:"bouncer_id"`
	Seen time.Time `db:"seen_at"`
}

// listOverdue returns bouncers that count as connected but did not report in time.
func listOverdue(ctx context.Context, tx *db.Tx, now time.Time, n int) ([]overdueBouncer, error) {
	return db.All[overdueBouncer](ctx, tx, `SELECT p.bouncer_id, p.seen_at FROM bridge_presence p JOIN bouncers b ON b.id = p.bouncer_id
		WHERE p.due_at < $1 AND b.status <> $2 ORDER BY p.bouncer_id LIMIT $3`, now, bouncer.Disconnected, n)
}

// lockOverdue reports whether a bouncer is still overdue. Until the transaction ends, its reports
// wait.
func lockOverdue(ctx context.Context, tx *db.Tx, id int64, now time.Time) (bool, error) {
	n, err := tx.Exec(ctx, `UPDATE bridge_presence SET due_at = due_at WHERE bouncer_id = $1 AND due_at < $2`, id, now)
	return n > 0, err
}

// presenceCounts are the numbers of connected bouncers, and of those that do not run their newest
// bundle yet.
type presenceCounts struct {
	InTouch int64 `db:"in_touch"`
	Behind  int64 `db:"behind"`
}

func countPresence(ctx context.Context, tx *db.Tx) (presenceCounts, error) {
	return db.One[presenceCounts](ctx, tx, `SELECT
			COALESCE(SUM(CASE WHEN b.status <> $1 THEN 1 ELSE 0 END), 0) AS in_touch,
			COALESCE(SUM(CASE WHEN b.status <> $1 AND COALESCE(u.revision, 0) <> COALESCE(u.active_revision, 0) THEN 1 ELSE 0 END), 0) AS behind
		FROM bouncers b LEFT JOIN bouncer_bundles u ON u.bouncer_id = b.id`, bouncer.Disconnected)
}

// Secrets declares the keys that sign bundles and those that masks hash with, for package reseal.
func (s *Service) Secrets() []reseal.Column {
	masks := func(t scope.TenantID, id string) string { return masking.KeyPlace(string(t), id) }
	return []reseal.Column{
		{Table: "bridge_keys", Name: "sealed", Key: "kid", Box: s.cfg.Box, Place: reseal.ByName(sealedFor)},
		{Table: "mask_keys", Name: "sealed", Key: "kid", Box: s.cfg.Box, Place: reseal.ByName(masks)},
	}
}
