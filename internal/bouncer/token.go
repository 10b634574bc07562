package bouncer

import (
	"context"

	"github.com/gatehouse-dev/gatehouse/internal/db"
)

// tokenHead is the head of a bouncer's token (secret.NewToken).
const tokenHead = "gh_bouncer"

// RevokeTokens makes the tokens of all bouncers of a tenant void within tx: each needs a
// new one (rotate). It is one of tenant.Service.RevokeHooks.
func RevokeTokens(ctx context.Context, tx *db.Tx) error { return dropTokens(ctx, tx) }
