package ide

import (
	"context"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

const sessionColumns = `session_id, file_path, content, version, updated_at, expires_at`

func session(ctx context.Context, tx *db.Tx, actor, id string, now time.Time) (Session, error) {
	return db.One[Session](ctx, tx, `SELECT `+sessionColumns+` FROM ide_sessions WHERE actor = $1 AND session_id = $2 AND expires_at > $3`, actor, id, now)
}

func putSession(ctx context.Context, tx *db.Tx, actor string, s Session) (Session, error) {
	return db.One[Session](ctx, tx, `INSERT INTO ide_sessions (actor, session_id, file_path, content, version, updated_at, expires_at)
		VALUES ($1, $2, $3, $4, 1, $5, $6)
		ON CONFLICT (actor, session_id) DO UPDATE SET file_path = excluded.file_path, content = excluded.content,
			version = ide_sessions.version + 1, updated_at = excluded.updated_at, expires_at = excluded.expires_at
		RETURNING `+sessionColumns, actor, s.ID, s.FilePath, s.Content, s.UpdatedAt, s.ExpiresAt)
}

// dropSessions deletes all expired sessions, and all but the newest sessions of actor.
func dropSessions(ctx context.Context, tx *db.Tx, actor string, now time.Time) error {
	if err := tx.Do(ctx, `DELETE FROM ide_sessions WHERE expires_at <= $1`, now); err != nil {
		return err
	}
	return tx.Do(ctx, `DELETE FROM ide_sessions WHERE actor = $1 AND session_id NOT IN
		(SELECT session_id FROM ide_sessions WHERE actor = $1 ORDER BY updated_at DESC, session_id DESC LIMIT $2)`, actor, maxSessions)
}

// Forget deletes the documents and settings of a removed user or key, because the id may be given
// to somebody else later. It is one of user.Service.ForgetHooks.
func Forget(ctx context.Context, tx *db.Tx, who scope.Actor) error {
	if err := tx.Do(ctx, `DELETE FROM ide_sessions WHERE actor = $1`, nameOf(who)); err != nil {
		return err
	}
	return tx.Do(ctx, `DELETE FROM ide_settings WHERE actor = $1`, nameOf(who))
}

func selectSettings(ctx context.Context, tx *db.Tx, actor, editor string) (map[string]any, error) {
	row, err := db.One[struct {
		Settings map[string]any `db:"settings"`
	}](ctx, tx, `SELECT settings FROM ide_settings WHERE actor = $1 AND editor = $2`, actor, editor)
	return row.Settings, err
}

func putSettings(ctx context.Context, tx *db.Tx, actor, editor string, v map[string]any, now time.Time) error {
	return tx.Do(ctx, `INSERT INTO ide_settings (actor, editor, settings, updated_at) VALUES ($1, $2, $3, $4)
		ON CONFLICT (actor, editor) DO UPDATE SET settings = excluded.settings, updated_at = excluded.updated_at`, actor, editor, v, now)
}

// DisableWebhooks disables the webhooks of the tenant's repositories until each is enabled again.
// It is one of tenant.Service.RevokeHooks.
func DisableWebhooks(ctx context.Context, tx *db.Tx) error {
	return tx.Do(ctx, `UPDATE ide_repositories SET enabled = FALSE, change_no = change_no + 1`)
}
