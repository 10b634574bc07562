package main

import (
	"context"
	"os"

	"github.com/gatehouse-dev/gatehouse/internal/app"
)

// devCommand starts the whole product on this machine, with an example.
type devCommand struct {
	app.Config
	Ports app.DevAddresses `embed:"" prefix:"dev-"`
}

// Run serves until the context ends.
func (c *devCommand) Run(ctx context.Context) error {
	return app.RunDev(ctx, c.Config, c.Ports, version, os.Stdout)
}
