package usertest

import (
	"context"

	"github.com/gatehouse-dev/gatehouse/internal/db"
)

func insertSession(ctx context.Context, tx *db.Tx, id, user string) error {
	_, err := tx.Exec(ctx, `INSERT INTO sessions (id, user_id, root, limited, created_at, expires_at) VALUES ($1, $2, $1, FALSE, 0, 0)`, id, user)
	return err
}

func endSessions(ctx context.Context, tx *db.Tx, user string) error {
	_, err := tx.Exec(ctx, `DELETE FROM sessions WHERE user_id = $1`, user)
	return err
}

// countBlocked counts the transactions of a PostgreSQL database that wait for a lock (db.Tx.Lock).
func countBlocked(ctx context.Context, tx *db.Tx) (int64, error) {
	return db.One[int64](ctx, tx, `SELECT count(*) FROM pg_locks WHERE NOT granted AND locktype = 'advisory' AND database = (SELECT oid FROM pg_database WHERE datname = current_database())`)
}
