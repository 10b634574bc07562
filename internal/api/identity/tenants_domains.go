package identity

import (
	"context"
	"net/http"
	"reflect"

	"github.com/gatehouse-dev/gatehouse/internal/domain"
	"github.com/gatehouse-dev/gatehouse/internal/rest"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

// DomainPath names a domain of a tenant: embed it in an input.
type DomainPath struct {
	TenantPath
	Domain string `path:"domain" maxLength:"254" doc:"The domain"`
}

type domainsOut struct{ Body []domain.Domain }

type domainOut struct{ Body domain.Domain }

type domainRemovedOut struct{ Body domain.Removal }

type domainCreateIn struct {
	TenantPath
	Body domain.Draft
}

type domainUpdateIn struct {
	DomainPath
	Body domain.Change
}

// tenantDomains registers the domains of tenants.
func (h *Handler) tenantDomains(r *rest.Router) {
	tags, record := []string{"Tenants"}, reflect.TypeFor[domain.Domain]()
	rest.Register(r, rest.Op{
		ID: "list-tenant-domains", Method: http.MethodGet, Path: "/tenants/{tenant_id}/domains", Permission: "tenants:read", Tags: tags,
		Summary: "List a tenant's domains", Description: "The tenant's subdomain first, where the deployment has a base domain; then its own domains, oldest first. Verified ones are listed as active.",
	},
		func(ctx context.Context, sc scope.Scope, in *TenantPath) (*domainsOut, error) {
			list, err := h.Domains.List(ctx, sc, in.ID)
			return &domainsOut{list}, err
		})
	rest.Register(r, rest.Op{
		ID: "add-tenant-domain", Method: http.MethodPost, Path: "/tenants/{tenant_id}/domains", Permission: "tenants:write", Tags: tags, Status: http.StatusCreated, Creates: true, Record: record,
		Summary:     "Add a domain",
		Description: "The domain is pending and routes nowhere until it is verified: make the records of `dns_instructions`, then verify. Several tenants may claim a domain, and one can verify it; a domain that another tenant has verified is 409. A certificate goes with its key; both are checked now: they belong together, cover the domain and have not ended (422).",
	},
		func(ctx context.Context, sc scope.Scope, in *domainCreateIn) (*domainOut, error) {
			d, err := h.Domains.Add(ctx, sc, in.ID, in.Body)
			return &domainOut{d}, err
		})
	rest.Register(r, rest.Op{
		ID: "get-tenant-domain", Method: http.MethodGet, Path: "/tenants/{tenant_id}/domains/{domain}", Permission: "tenants:read", Tags: tags,
		Summary: "Read a domain", Description: "With the DNS records to make. The key of a certificate is never shown.",
	},
		func(ctx context.Context, sc scope.Scope, in *DomainPath) (*domainOut, error) {
			d, err := h.Domains.Get(ctx, sc, in.ID, in.Domain)
			return &domainOut{d}, err
		})
	rest.Register(r, rest.Op{
		ID: "update-tenant-domain", Method: http.MethodPut, Path: "/tenants/{tenant_id}/domains/{domain}", Permission: "tenants:write", Tags: tags, Record: record,
		Summary: "Replace a domain's certificate", Description: "Send the new certificate with its key, or null for both to remove them. They are checked as when a domain is added (422).",
	},
		func(ctx context.Context, sc scope.Scope, in *domainUpdateIn) (*domainOut, error) {
			d, err := h.Domains.Update(ctx, sc, in.ID, in.Domain, in.Body)
			return &domainOut{d}, err
		})
	rest.Register(r, rest.Op{
		ID: "remove-tenant-domain", Method: http.MethodDelete, Path: "/tenants/{tenant_id}/domains/{domain}", Permission: "tenants:write", Tags: tags,
		Errors:  []int{http.StatusConflict},
		Summary: "Remove a domain", Description: "Requests to it belong to no tenant from then on. The tenant's subdomain stays (409).",
	},
		func(ctx context.Context, sc scope.Scope, in *DomainPath) (*domainRemovedOut, error) {
			d, err := h.Domains.Remove(ctx, sc, in.ID, in.Domain)
			return &domainRemovedOut{d}, err
		})
	rest.Register(r, rest.Op{
		ID: "verify-tenant-domain", Method: http.MethodPost, Path: "/tenants/{tenant_id}/domains/{domain}/verify", Permission: "tenants:write", Tags: tags,
		Errors:      []int{http.StatusConflict, http.StatusUnprocessableEntity, http.StatusServiceUnavailable},
		Summary:     "Verify a domain",
		Description: "Looks for both DNS records. With both, the domain is verified and routes to the tenant within seconds; else 422 `verification_failed`, with what was expected and found of each. A domain that another tenant has verified: 409. A resolver that does not answer: 503 `dns_unavailable`. It can be repeated.",
	},
		func(ctx context.Context, sc scope.Scope, in *DomainPath) (*domainOut, error) {
			d, err := h.Domains.Verify(ctx, sc, in.ID, in.Domain)
			return &domainOut{d}, err
		})
}
