package api

import (
	"github.com/gatehouse-dev/gatehouse/internal/auth"
	"github.com/gatehouse-dev/gatehouse/internal/rest"
	"github.com/gatehouse-dev/gatehouse/internal/tenant"
	"github.com/gatehouse-dev/gatehouse/internal/user"
)

// identity serves sign-in, keys, tenants and people.
type identity struct {
	Auth    *auth.Service
	Users   *user.Service
	Tenants *tenant.Service
}

// Mount registers the operations.
func (h *identity) Mount(r *rest.Router) {
	h.auth(r)
	h.authSessions(r)
	h.developerPortal(r)
	h.tenants(r)
	h.users(r)
}
