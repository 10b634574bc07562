// Package estate serves protected resources and their protection: bouncers, and the enforcement
// mode and revisions of an environment.
package estate

import (
	"github.com/gatehouse-dev/gatehouse/internal/bouncer"
	"github.com/gatehouse-dev/gatehouse/internal/bridge"
	"github.com/gatehouse-dev/gatehouse/internal/resource"
	"github.com/gatehouse-dev/gatehouse/internal/rest"
	"github.com/gatehouse-dev/gatehouse/internal/tenant"
)

// Handler serves the operations of this package.
type Handler struct {
	Resources *resource.Service
	Bouncers  *bouncer.Service
	// Tenants stores the enforcement modes.
	Tenants *tenant.Service
	// Bridge knows which revision each bouncer runs.
	Bridge *bridge.Service
}

// Mount registers the operations.
func (h *Handler) Mount(r *rest.Router) {
	h.environments(r)
	h.resources(r)
	h.classification(r)
	h.bouncers(r)
	h.peps(r)
	h.deployments(r)
}
