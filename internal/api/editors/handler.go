// Package editors serves editors and repositories: checks and deployments, sessions,
// webhooks, and the editors' WebSocket.
package editors

import (
	"log/slog"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/fault"
	"github.com/gatehouse-dev/gatehouse/internal/ide"
	"github.com/gatehouse-dev/gatehouse/internal/rest"
)

// Handler serves the operations of this package.
type Handler struct {
	IDE *ide.Service
	// Authenticate checks the credential of a socket again while it is open.
	Authenticate rest.Authenticator
	// Now is the clock.
	Now func() time.Time
	Log *slog.Logger
	// Panics counts recovered panics.
	Panics *fault.Panics

	sockets sockets
}

// Mount registers the operations.
func (h *Handler) Mount(r *rest.Router) {
	h.ide(r)
	h.repositories(r)
	h.webhook(r)
	h.socket(r)
}
