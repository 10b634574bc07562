package main

import (
	"context"
	"os"

	"github.com/gatehouse-dev/gatehouse/internal/app"
)

// serverCommand starts the control plane.
type serverCommand struct {
	app.Config
}

// Run serves until the context ends.
func (c *serverCommand) Run(ctx context.Context) error {
	return app.Serve(ctx, c.Config, version, os.Stdout)
}
