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
		Summary: "List a tenant's domains", Description: "The tenant's subdomain first, if the deployment has a base domain; then its own domains, oldest first. Verified domains are listed as active.",
	}, func(ctx context.Context, sc scope.Scope, in *TenantPath) (*rest.JSON[[]domain.Domain], error) {
		return rest.Answer(h.Domains.List(ctx, sc, in.ID))
	})
	rest.Register(r, rest.Op{
		ID: "add-tenant-domain", Method: http.MethodPost, Path: "/tenants/{tenant_id}/domains", Permission: "tenants:write", Tags: tags, Status: http.StatusCreated, Creates: true, Record: record,
		Summary:     "Add a domain",
		Description: "The domain is pending and not routed until it is verified: create the records in `dns_instructions`, then verify. Several tenants may claim a domain, but only one can verify it; a domain that another tenant has verified is a 409. A certificate needs its key. Both are checked at once: they must belong together, cover the domain and not have expired (422). Without one, the server orders a certificate by ACME once the domain is verified, if the deployment does so and `acme` is not false.",
	}, func(ctx context.Context, sc scope.Scope, in *domainCreateIn) (*rest.JSON[domain.Domain], error) {
		return rest.Answer(h.Domains.Add(ctx, sc, in.ID, in.Body))
	})
	rest.Register(r, rest.Op{
		ID: "get-tenant-domain", Method: http.MethodGet, Path: "/tenants/{tenant_id}/domains/{domain}", Permission: "tenants:read", Tags: tags,
		Summary: "Read a domain", Description: "Includes the DNS records to create. The key of a certificate is never returned.",
	}, func(ctx context.Context, sc scope.Scope, in *DomainPath) (*rest.JSON[domain.Domain], error) {
		return rest.Answer(h.Domains.Get(ctx, sc, in.ID, in.Domain))
	})
	rest.Register(r, rest.Op{
		ID: "update-tenant-domain", Method: http.MethodPut, Path: "/tenants/{tenant_id}/domains/{domain}", Permission: "tenants:write", Tags: tags, Record: record,
		Summary: "Change a domain", Description: "Only members that are sent change. A certificate is sent with its key; null for both removes them. The checks are the same as when a domain is added (422). With `acme` true, the server also retries a failed order at once.",
	}, func(ctx context.Context, sc scope.Scope, in *domainUpdateIn) (*rest.JSON[domain.Domain], error) {
		return rest.Answer(h.Domains.Update(ctx, sc, in.ID, in.Domain, in.Body))
	})
	rest.Register(r, rest.Op{
		ID: "remove-tenant-domain", Method: http.MethodDelete, Path: "/tenants/{tenant_id}/domains/{domain}", Permission: "tenants:write", Tags: tags,
		Errors:  []int{http.StatusConflict},
		Summary: "Remove a domain", Description: "From then on, requests to the domain belong to no tenant. The tenant's subdomain cannot be removed (409).",
	}, func(ctx context.Context, sc scope.Scope, in *DomainPath) (*rest.JSON[domain.Removal], error) {
		return rest.Answer(h.Domains.Remove(ctx, sc, in.ID, in.Domain))
	})
	rest.Register(r, rest.Op{
		ID: "verify-tenant-domain", Method: http.MethodPost, Path: "/tenants/{tenant_id}/domains/{domain}/verify", Permission: "tenants:write", Tags: tags,
		Errors:      []int{http.StatusConflict, http.StatusUnprocessableEntity, http.StatusServiceUnavailable},
		Summary:     "Verify a domain",
		Description: "Looks up both DNS records. If both are correct, the domain is verified and routes to the tenant within seconds; otherwise 422 `verification_failed`, with the expected and found values. A domain that another tenant has verified: 409. A resolver that does not answer: 503 `dns_unavailable`. The call can be repeated.",
	}, func(ctx context.Context, sc scope.Scope, in *DomainPath) (*rest.JSON[domain.Domain], error) {
		return rest.Answer(h.Domains.Verify(ctx, sc, in.ID, in.Domain))
	})
}
