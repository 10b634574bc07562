package policy

import (
	"context"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/db"
)

func timeline(ctx context.Context, tx *db.Tx, from time.Time) ([]Moment, error) {
	return db.All[Moment](ctx, tx, `SELECT `+versionColumns+`, sandbox_revision, production_revision,
			(SELECT p.kind FROM policies p WHERE p.id = v.policy_id) AS kind FROM policy_versions v
		WHERE v.created_at >= $1 OR v.version = (SELECT max(w.version) FROM policy_versions w WHERE w.policy_id = v.policy_id AND w.created_at < $2)
		ORDER BY v.created_at, v.policy_id, v.version`, from, from)
}
