// Package events serves the stream of changes that an open console reads.
package events

import (
	"log/slog"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/live"
	"github.com/gatehouse-dev/gatehouse/internal/rest"
)

// Handler serves the operations of this package.
type Handler struct {
	Live *live.Service
	// Authenticate turns a stream's credential into its scope, again and again.
	Authenticate rest.Authenticator
	Log          *slog.Logger
	// Ticks is the clock that sets deadlines of connections.
	Ticks func() time.Time

	times times // zero: ordinaryTimes
}

func (h *Handler) waitTimes() times {
	if h.times == (times{}) {
		return ordinaryTimes
	}
	return h.times
}

// Mount registers the operations.
func (h *Handler) Mount(r *rest.Router) { h.stream(r) }
