package bouncer

import (
	"context"

	"github.com/gatehouse-dev/gatehouse/internal/db"
)

// tokenHead is the prefix of bouncer tokens (secret.NewToken).
const tokenHead = "gh_bouncer"

// RevokeTokens revokes the tokens of all bouncers of a tenant within tx: each bouncer needs a new
// one (rotate). It is one of tenant.Service.RevokeHooks.
func RevokeTokens(ctx context.Context, tx *db.Tx) error { return dropTokens(ctx, tx) }
