package action

import (
	"context"
	"errors"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/policy/actions"
)

// loadMinute returns what the actions of a control did in a minute so far.
func loadMinute(ctx context.Context, tx *db.Tx, c actions.Control, at time.Time) (*minute, error) {
	m, err := db.One[minute](ctx, tx, `SELECT minute, sent, folded FROM policy_action_minutes WHERE policy_id = $1 AND minute = $2`, c.ID, at)
	if errors.Is(err, db.ErrNoRows) {
		m, err = minute{At: at, Folded: []folded{}}, nil
	}
	m.control = c
	return &m, err
}

// saveMinute stores a minute, and removes the earlier ones that need no report.
func saveMinute(ctx context.Context, tx *db.Tx, m *minute) error {
	err := tx.Do(ctx, `INSERT INTO policy_action_minutes (policy_id, minute, sent, folded) VALUES ($1, $2, $3, $4)
		ON CONFLICT (policy_id, minute) DO UPDATE SET sent = excluded.sent, folded = excluded.folded`, m.control.ID, m.At, m.Sent, m.Folded)
	if err != nil {
		return err
	}
	return tx.Do(ctx, `DELETE FROM policy_action_minutes WHERE policy_id = $1 AND minute < $2 AND folded = '[]'`, m.control.ID, m.At)
}

// takeMinute reads a minute and removes it.
func takeMinute(ctx context.Context, tx *db.Tx, control int64, at time.Time) (minute, error) {
	return db.One[minute](ctx, tx, `DELETE FROM policy_action_minutes WHERE policy_id = $1 AND minute = $2 RETURNING minute, sent, folded`, control, at)
}
