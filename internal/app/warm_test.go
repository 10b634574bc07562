package app

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"testing"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

// TestReadyOnceWarm: the service is not ready before it has loaded the snapshots, and is ready
// afterwards even if loading failed.
func TestReadyOnceWarm(t *testing.T) {
	for name, ctx := range map[string]func() context.Context{
		"loaded":      t.Context,
		"interrupted": func() context.Context { ctx, cancel := context.WithCancel(t.Context()); cancel(); return ctx },
	} {
		t.Run(name, func(t *testing.T) {
			cfg := Config{
				Listen: "127.0.0.1:0", DataDir: t.TempDir(), Demo: true, SimulationDeadline: 30 * time.Second,
				AuditSync: "interval", DecisionCache: "on", AdminPassword: "eight or more",
			}
			s, err := startServer(t.Context(), cfg, "test", slog.New(slog.NewTextHandler(io.Discard, nil)))
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = errors.Join(s.listeners.plain.Close(), s.closers.close()) }()
			if err := s.ready(t.Context()); err == nil || s.snapshots.Loaded(scope.DefaultTenant, scope.Production) {
				t.Errorf("ready before anything was loaded: %v", err)
			}
			s.warm(ctx())
			if err := s.ready(t.Context()); err != nil {
				t.Error(err)
			}
			if got := s.snapshots.Loaded(scope.DefaultTenant, scope.Production); got != (name == "loaded") {
				t.Errorf("the snapshot is loaded: %v", got)
			}
		})
	}
}
