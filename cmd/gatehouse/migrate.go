package main

import (
	"context"
	"fmt"
	"os"
	"runtime"

	"github.com/gatehouse-dev/gatehouse/internal/app"
)

// migrateCommand migrates all tenants ahead of an upgrade.
type migrateCommand struct {
	app.Config
}

// Run opens each tenant's store, which brings it to this version.
func (c *migrateCommand) Run(ctx context.Context) error {
	return app.Migrate(ctx, c.Config, os.Stdout)
}

// versionCommand prints what this binary is.
type versionCommand struct{}

// Run prints the version, the toolchain and the platform.
func (versionCommand) Run() error {
	_, err := fmt.Printf("gatehouse %s (%s, %s/%s)\n", version, runtime.Version(), runtime.GOOS, runtime.GOARCH)
	return err
}
