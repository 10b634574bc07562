package action

import (
	"context"

	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/integration"
	"github.com/gatehouse-dev/gatehouse/internal/notify"
	"github.com/gatehouse-dev/gatehouse/internal/policy/actions"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

// TargetExists reports whether an environment has the target of an action. It is
// policy.Links.DestinationExists.
func TargetExists(ctx context.Context, tx *db.Tx, env scope.Env, a actions.Action) (bool, error) {
	kind, id := a.Destination()
	switch {
	case kind == "integration" && integration.Called(a.Type):
		return integration.Exists(ctx, tx, env, a.Type, id)
	case kind != "channel" || a.Type != actions.Notification:
		return false, nil
	}
	missing, err := notify.Missing(ctx, tx, env, []int64{id})
	return err == nil && len(missing) == 0, err
}
