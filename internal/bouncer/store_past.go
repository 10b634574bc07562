package bouncer

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

// keepBundles records the content of the newest bundles of bouncers.
func keepBundles(ctx context.Context, tx *db.Tx, list []Content, now time.Time) error {
	var text strings.Builder
	args := []any{now}
	text.WriteString(`INSERT INTO bouncer_bundles_past (bouncer_id, environment, revision, env_revision, published_at, resources, denies) VALUES `)
	for i, c := range list {
		if i > 0 {
			text.WriteString(", ")
		}
		args = append(args, c.BouncerID, c.EnvRevision, c.Resources, c.Denies)
		n := len(args)
		fmt.Fprintf(&text, "($%d, (SELECT environment FROM bouncers WHERE id = $%d), (SELECT revision FROM bouncer_bundles WHERE bouncer_id = $%d), $%d, $1, $%d, $%d)",
			n-3, n-3, n-3, n-2, n-1, n)
	}
	text.WriteString(` ON CONFLICT (bouncer_id, revision) DO NOTHING`)
	return tx.Do(ctx, text.String(), args...)
}

// PastBundles returns, by bouncer and newest first, the bundles that may have decided something
// since a time: those published since, the newest one before that, and those from the one on that a
// bouncer still runs. Bundles of deleted bouncers are included.
func PastBundles(ctx context.Context, tx *db.Tx, env scope.Env, from time.Time) ([]PastBundle, error) {
	return db.All[PastBundle](ctx, tx, `SELECT p.bouncer_id, p.revision, p.env_revision, p.published_at, p.resources, p.denies
		FROM bouncer_bundles_past p LEFT JOIN bouncer_bundles u ON u.bouncer_id = p.bouncer_id AND u.active_revision > 0
		WHERE p.environment = $1 AND (p.published_at >= $2 OR p.revision >= u.active_revision
			OR p.revision = (SELECT max(o.revision) FROM bouncer_bundles_past o WHERE o.bouncer_id = p.bouncer_id AND o.published_at < $3))
		ORDER BY p.bouncer_id, p.revision DESC`, string(env), from, from)
}

func forgetBundles(ctx context.Context, tx *db.Tx, before time.Time) (int64, error) {
	return tx.Exec(ctx, `DELETE FROM bouncer_bundles_past WHERE published_at < $1 AND revision <
		(SELECT max(o.revision) FROM bouncer_bundles_past o WHERE o.bouncer_id = bouncer_bundles_past.bouncer_id AND o.published_at < $2)`, before, before)
}
