package main

import (
	"context"
	"os"

	"github.com/gatehouse-dev/gatehouse/internal/app"
)

// bouncerCommand starts an enforcement point.
type bouncerCommand struct {
	app.BouncerConfig
}

// Run enforces until the context ends.
func (c *bouncerCommand) Run(ctx context.Context) error {
	return app.RunBouncer(ctx, c.BouncerConfig, version, os.Stdout)
}
