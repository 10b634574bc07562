package stats

import (
	"context"

	"github.com/gatehouse-dev/gatehouse/internal/db"
)

const seriesColumns = `environment, resource_key, policy_id, bouncer_id, user_id`

// Counted returns the series that are counted in addition to whole environments.
func Counted(ctx context.Context, tx *db.Tx) ([]Series, error) {
	return db.All[Series](ctx, tx, `SELECT `+seriesColumns+` FROM decision_series`)
}

func replaceSeries(ctx context.Context, tx *db.Tx, all map[Series]bool) error {
	if err := tx.Do(ctx, `DELETE FROM decision_series`); err != nil {
		return err
	}
	rows := make([][]any, 0, len(all))
	for s := range all {
		rows = append(rows, []any{string(s.Environment), s.Resource, s.Control, s.Bouncer, s.Subject})
	}
	return db.DoRows(ctx, tx, `INSERT INTO decision_series (`+seriesColumns+`) VALUES `, rows, "")
}
