package identity

import (
	"context"
	"net/http"
	"reflect"

	"github.com/gatehouse-dev/gatehouse/internal/rest"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
	"github.com/gatehouse-dev/gatehouse/internal/signon"
)

type signOnOut struct{ Body signon.SignOn }

type signOnIn struct {
	TenantPath
	Body signon.Change
}

// tenantSignOn registers the identity providers of tenants.
func (h *Handler) tenantSignOn(r *rest.Router) {
	tags, path := []string{"Tenants"}, "/tenants/{tenant_id}/sign-on"
	rest.Register(r, rest.Op{
		ID: "get-tenant-sign-on", Method: http.MethodGet, Path: path, Permission: "tenants:read", Tags: tags,
		Summary: "Read the sign-on of a tenant", Description: "The tenant's identity provider, and what to register there. Without a provider: 404 `not_configured`.",
	},
		func(ctx context.Context, sc scope.Scope, in *TenantPath) (*signOnOut, error) {
			sc, err := h.within(ctx, sc, in.ID)
			if err != nil {
				return nil, err
			}
			s, err := h.SignOn.Get(ctx, sc)
			return &signOnOut{s}, err
		})
	rest.Register(r, rest.Op{
		ID: "update-tenant-sign-on", Method: http.MethodPut, Path: path, Permission: "tenants:write", Tags: tags, Record: reflect.TypeFor[signon.SignOn](),
		Errors:      []int{http.StatusConflict, http.StatusBadGateway},
		Summary:     "Set the sign-on of a tenant",
		Description: "Sets the identity provider (OpenID Connect) that the tenant's people sign in at. The first call needs issuer and client_id; later calls change the members that are sent. The provider's configuration is read at once: 422 `provider_unfit` where it cannot be used, 422 `target_refused` where its address may not be called. The caller must hold everything that the roles in the record allow, since whoever chooses the provider chooses who gets them (403). An issuer on another host needs the client secret again: 422 `credential_required`.",
	},
		func(ctx context.Context, sc scope.Scope, in *signOnIn) (*signOnOut, error) {
			sc, err := h.within(ctx, sc, in.ID)
			if err != nil {
				return nil, err
			}
			s, err := h.SignOn.Put(ctx, sc, in.Body)
			return &signOnOut{s}, err
		})
	rest.Register(r, rest.Op{
		ID: "delete-tenant-sign-on", Method: http.MethodDelete, Path: path, Permission: "tenants:write", Tags: tags,
		Summary: "Remove the sign-on of a tenant", Description: "People sign in with passwords again. Sessions that the provider vouched for go on; links of people to the provider are kept.",
	},
		func(ctx context.Context, sc scope.Scope, in *TenantPath) (*struct{}, error) {
			sc, err := h.within(ctx, sc, in.ID)
			if err != nil {
				return nil, err
			}
			return nil, h.SignOn.Delete(ctx, sc)
		})
}
