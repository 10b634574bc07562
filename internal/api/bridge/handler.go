// Package bridge serves bouncers: OPA's management protocols, and the additions of our own bouncer.
package bridge

import (
	"github.com/gatehouse-dev/gatehouse/internal/bridge"
	"github.com/gatehouse-dev/gatehouse/internal/rest"
)

// Handler serves the operations of this package.
type Handler struct {
	Bridge *bridge.Service
}

// Mount registers the operations.
func (h *Handler) Mount(r *rest.Router) {
	h.bridge(r)
	h.reports(r)
}
