package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/app"
	"github.com/gatehouse-dev/gatehouse/internal/lsp"
	"github.com/gatehouse-dev/gatehouse/internal/outbound"
	"github.com/gatehouse-dev/gatehouse/internal/rego/lang"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
	"github.com/gatehouse-dev/gatehouse/internal/worker"
)

// lspCommand is the language server that editors start.
type lspCommand struct {
	URL    string `env:"GATEHOUSE_URL" help:"Server that provides libraries and the attributes of resources; absent: none."`
	APIKey string `env:"GATEHOUSE_API_KEY" help:"API key for it, with resources:read, and policies:read for its libraries."`
	Stdio  bool   `hidden:"" help:"Accepted because editors pass it; stdio is always used."`
}

// Run speaks the Language Server Protocol on the standard streams.
func (c *lspCommand) Run(ctx context.Context) error {
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find this program, for its worker: %w", err)
	}
	cfg := worker.Defaults(self, "worker")
	cfg.Size, cfg.PerTenant = 1, 1
	pool := worker.NewPool(cfg)
	defer pool.Close()

	s := &lsp.Server{
		Version: version, Log: slog.New(slog.NewTextHandler(os.Stderr, nil)),
		Validate: func(ctx context.Context, source string, libs ...lang.Library) (worker.Validation, error) {
			return pool.Validate(ctx, scope.DefaultTenant, source, libs...)
		},
	}
	if s.Templates, err = app.Templates(); err != nil {
		return err
	}
	if c.URL != "" {
		client := outbound.Trusted(outbound.Config{Timeout: 10 * time.Second, MaxReply: 16 << 20})
		defer client.Close()
		s.Remote = lsp.Remote(client, c.URL, c.APIKey)
	}
	return s.Run(ctx, os.Stdin, os.Stdout)
}
