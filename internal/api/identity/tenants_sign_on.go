package identity

import (
	"context"
	"net/http"
	"reflect"

	"github.com/gatehouse-dev/gatehouse/internal/rest"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
	"github.com/gatehouse-dev/gatehouse/internal/signon"
)

type signOnIn struct {
	TenantPath
	Body signon.Change
}

// IssuerToCheck identifies an identity provider.
type IssuerToCheck struct {
	Issuer string `json:"issuer,omitempty" maxLength:"512" doc:"The provider's issuer identifier; absent: that of the tenant's record."`
}

type signOnCheckIn struct {
	TenantPath
	Body IssuerToCheck
}

// tenantSignOn registers the identity providers of tenants.
func (h *Handler) tenantSignOn(r *rest.Router) {
	tags, path := []string{"Tenants"}, "/tenants/{tenant_id}/sign-on"
	rest.Register(r, rest.Op{
		ID: "get-tenant-sign-on", Method: http.MethodGet, Path: path, Permission: "tenants:read", Tags: tags,
		Summary: "Read the sign-on of a tenant", Description: "The tenant's identity provider, and what to register there. Without a provider: 404 `not_configured`.",
	}, inTenant(h, func(ctx context.Context, sc scope.Scope, in *TenantPath) (*rest.JSON[signon.SignOn], error) {
		return rest.Answer(h.SignOn.Get(ctx, sc))
	}))
	rest.Register(r, rest.Op{
		ID: "update-tenant-sign-on", Method: http.MethodPut, Path: path, Permission: "tenants:write", Tags: tags, Record: reflect.TypeFor[signon.SignOn](),
		Errors:      []int{http.StatusConflict, http.StatusBadGateway},
		Summary:     "Set the sign-on of a tenant",
		Description: "Sets the identity provider (OpenID Connect) with which the tenant's people sign in. The first call needs issuer and client_id; later calls change the members that are sent. The server reads the provider's configuration at once: 422 `provider_unfit` if it cannot be used, 422 `target_refused` if its address may not be called. The caller must hold everything that the roles in the record allow, since whoever chooses the provider chooses who gets them (403). Another issuer needs the client secret again: 422 `credential_required`.",
	}, inTenant(h, func(ctx context.Context, sc scope.Scope, in *signOnIn) (*rest.JSON[signon.SignOn], error) {
		return rest.Answer(h.SignOn.Put(ctx, sc, in.Body))
	}))
	rest.Register(r, rest.Op{
		ID: "check-tenant-sign-on", Method: http.MethodPost, Path: path + "/check", Permission: "tenants:write", Tags: tags,
		Summary: "Check an identity provider", Description: "Reads the provider's configuration and stores nothing. 422 `provider_unfit`: it cannot be used; 422 `target_refused`: its address may not be called.",
	}, inTenant(h, func(ctx context.Context, sc scope.Scope, in *signOnCheckIn) (*rest.JSON[signon.Endpoints], error) {
		return rest.Answer(h.SignOn.CheckIssuer(ctx, sc, in.Body.Issuer))
	}))
	rest.Register(r, rest.Op{
		ID: "delete-tenant-sign-on", Method: http.MethodDelete, Path: path, Permission: "tenants:write", Tags: tags,
		Summary: "Remove the sign-on of a tenant", Description: "People sign in with passwords again. Sessions that began at the provider continue, and the links of people to the provider stay.",
	}, inTenant(h, func(ctx context.Context, sc scope.Scope, in *TenantPath) (*struct{}, error) {
		return nil, h.SignOn.Delete(ctx, sc)
	}))
}
