package app

import (
	"context"
	"io"
	"testing"

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
			s, stop := newServer(t, "eight or more", io.Discard)
			defer stop()
			if err := s.ready(t.Context()); err == nil || s.snapshots.Loaded(scope.DefaultTenant, scope.Production) {
				t.Errorf("before the warm-up: ready gives %v, want an error, and no snapshot loaded", err)
			}
			s.warm(ctx())
			if err := s.ready(t.Context()); err != nil {
				t.Error(err)
			}
			if got := s.snapshots.Loaded(scope.DefaultTenant, scope.Production); got != (name == "loaded") {
				t.Errorf("after the warm-up that was %s: snapshot loaded %v", name, got)
			}
		})
	}
}
