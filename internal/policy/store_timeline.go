package policy

import (
	"context"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/db"
)

func timeline(ctx context.Context, tx *db.Tx, from time.Time) ([]Version, error) {
	return db.All[Version](ctx, tx, `SELECT `+versionColumns+` FROM policy_versions v
		WHERE v.policy_id NOT IN (SELECT id FROM policies WHERE kind = 'library') AND
			(v.created_at >= $1 OR v.version = (SELECT max(w.version) FROM policy_versions w WHERE w.policy_id = v.policy_id AND w.created_at < $2))
		ORDER BY v.created_at, v.policy_id, v.version`, from, from)
}
