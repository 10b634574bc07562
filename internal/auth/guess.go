package auth

import (
	"context"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/pause"
)

// wait waits for d, or until ctx ends; then it returns the context's error.
func wait(ctx context.Context, d time.Duration) error {
	if d > 0 && !pause.For(ctx, d) {
		return ctx.Err()
	}
	return nil
}
