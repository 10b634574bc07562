package main

import (
	"context"
	"os"

	"github.com/gatehouse-dev/gatehouse/internal/app"
)

// backupCommand copies what a server on SQLite stores.
type backupCommand struct {
	app.Config
	To string `arg:"" help:"Directory to copy into; new or empty."`
}

// Run copies and lists the files.
func (c *backupCommand) Run(ctx context.Context) error {
	return app.Backup(ctx, c.Config, c.To, os.Stdout)
}
