// Package connect serves what ties gatehouse to other systems: webhooks.
package connect

import (
	"github.com/gatehouse-dev/gatehouse/internal/rest"
	"github.com/gatehouse-dev/gatehouse/internal/webhook"
)

// Handler serves the operations of this package.
type Handler struct {
	Webhooks *webhook.Service
}

// Mount registers the operations.
func (h *Handler) Mount(r *rest.Router) {
	h.webhooks(r)
	h.webhookDeliveries(r)
}
