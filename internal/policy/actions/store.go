package actions

import (
	"context"

	"github.com/gatehouse-dev/gatehouse/internal/db"
)

// actingIDs selects the controls that have actions. The partial index policies_acting contains
// exactly those.
const actingIDs = `SELECT id FROM policies WHERE substr(actions, 1, 2) = '[{' ORDER BY id`

func listActing(ctx context.Context, tx *db.Tx, ids []int64) ([]Control, error) {
	return db.AllIn[Control](ctx, tx, `SELECT id, name, environment, actions FROM policies WHERE id IN ($in)`, ids)
}
