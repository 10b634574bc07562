package policy

import (
	"context"

	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

// Figures counts the controls of an environment, or of both. Libraries and deleted controls
// are not counted.
type Figures struct {
	Total  int64 `db:"total"`
	Active int64 `db:"active"`
	Draft  int64 `db:"draft"`
	// Protecting counts the active controls that are bound to a resource.
	Protecting int64 `db:"protecting"`
}

// LoadFigures returns the figures of an environment, or of both for AnyEnv, in the caller's
// transaction.
func LoadFigures(ctx context.Context, tx *db.Tx, env scope.Env) (Figures, error) {
	return figures(ctx, tx, env)
}
