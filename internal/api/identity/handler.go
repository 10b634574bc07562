// Package identity serves sign-in, sessions, API keys, tenants and people.
package identity

import (
	"github.com/gatehouse-dev/gatehouse/internal/auth"
	"github.com/gatehouse-dev/gatehouse/internal/domain"
	"github.com/gatehouse-dev/gatehouse/internal/metering"
	"github.com/gatehouse-dev/gatehouse/internal/region"
	"github.com/gatehouse-dev/gatehouse/internal/rest"
	"github.com/gatehouse-dev/gatehouse/internal/scim"
	"github.com/gatehouse-dev/gatehouse/internal/signon"
	"github.com/gatehouse-dev/gatehouse/internal/tenant"
	"github.com/gatehouse-dev/gatehouse/internal/user"
	"github.com/gatehouse-dev/gatehouse/internal/vendor"
)

// Handler serves the operations of this package.
type Handler struct {
	Auth    *auth.Service
	Users   *user.Service
	Tenants *tenant.Service
	// Metering reports the usage of tenants.
	Metering *metering.Service
	Domains  *domain.Service
	SignOn   *signon.Service
	Vendors  *vendor.Service
	// Deployments moves tenants between regions.
	Deployments *region.Service
	SCIM        *scim.Service
	SCIMTokens  *scim.Tokens
}

// Mount registers the operations.
func (h *Handler) Mount(r *rest.Router) {
	h.auth(r)
	h.authSessions(r)
	h.authFactor(r)
	h.authSSO(r)
	h.wellKnown(r)
	h.developerPortal(r)
	h.tenants(r)
	h.tenantBilling(r)
	h.tenantDomains(r)
	h.tenantDeployments(r)
	h.tenantSignOn(r)
	h.tenantSCIM(r)
	h.scim(r)
	h.users(r)
	h.userIdentities(r)
	h.userSessions(r)
	h.userFactor(r)
	h.vendors(r)
}
