package bouncer

import (
	"context"

	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

// Tally counts the bouncers of an environment, or of both, and the deliveries to them.
type Tally struct {
	// Connected, Degraded and Disconnected add up to all bouncers.
	Connected    int64 `db:"connected"`
	Degraded     int64 `db:"degraded"`
	Disconnected int64 `db:"disconnected"`
	// Deliveries are pairs of a bouncer and a control in its bundle: Delivered are those that it
	// runs, Awaited those in progress.
	Deliveries int64 `db:"deliveries"`
	Delivered  int64 `db:"delivered"`
	Awaited    int64 `db:"awaited"`
}

// LoadTally counts within the caller's transaction.
func LoadTally(ctx context.Context, tx *db.Tx, env scope.Env) (Tally, error) {
	t, err := tallyBouncers(ctx, tx, env)
	if err != nil {
		return t, err
	}
	d, err := tallyDeliveries(ctx, tx, env)
	t.Deliveries, t.Delivered, t.Awaited = d.Deliveries, d.Delivered, d.Awaited
	return t, err
}
