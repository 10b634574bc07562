package main

import (
	"context"
	"os"

	"github.com/gatehouse-dev/gatehouse/internal/worker"
)

// workerCommand is the child in which authors' Rego runs.
type workerCommand struct {
	Memory int64 `default:"268435456" help:"Memory cap in bytes."`
}

// Run answers requests on standard input until it ends.
func (c *workerCommand) Run(ctx context.Context) error {
	return worker.Main(ctx, os.Stdin, os.Stdout, c.Memory)
}
