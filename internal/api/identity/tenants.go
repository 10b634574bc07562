package identity

import (
	"context"
	"net/http"
	"reflect"

	"github.com/gatehouse-dev/gatehouse/internal/auth"
	"github.com/gatehouse-dev/gatehouse/internal/rest"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
	"github.com/gatehouse-dev/gatehouse/internal/tenant"
)

// TenantPath identifies a tenant: embed it in an input.
type TenantPath struct {
	ID scope.TenantID `path:"tenant_id" doc:"Id of the tenant"`
}

func (p *TenantPath) tenant() scope.TenantID { return p.ID }

type tenantUpdateIn struct {
	TenantPath
	Body tenant.Change
}

type tenantDeleteIn struct {
	TenantPath
	HardDelete bool `query:"hard_delete" doc:"Purge now instead of in 30 days"`
}

type keyListIn struct {
	TenantPath
	rest.Page
}

type keyCreateIn struct {
	TenantPath
	Body auth.KeyDraft
}

// KeyPath names an API key of a tenant: embed it in an input.
type KeyPath struct {
	TenantPath
	KeyID string `path:"key_id" maxLength:"64" pattern:"^[-0-9a-zA-Z_]+$" doc:"Id of the API key"`
}

type keyUpdateIn struct {
	KeyPath
	Body auth.KeyChange
}

type keyRotateIn struct {
	KeyPath
	Body *auth.RotateRequest
}

// tenants registers the tenants of the deployment.
func (h *Handler) tenants(r *rest.Router) {
	tags, record := []string{"Tenants"}, reflect.TypeFor[tenant.Tenant]()
	rest.Register(r, rest.Op{
		ID: "list-tenants", Method: http.MethodGet, Path: "/tenants", Permission: "tenants:read", Tags: tags,
		Summary: "List tenants", Description: "Sorted by id. Platform administrators see all tenants, others only their own. Only the answer for a single tenant includes usage.",
	}, func(ctx context.Context, sc scope.Scope, in *rest.Page) (*rest.JSON[tenant.Page], error) {
		return rest.Answer(h.Tenants.List(ctx, sc, tenant.Filter{Skip: in.Skip, Limit: in.Limit}))
	})
	rest.Register(r, rest.Op{
		ID: "create-tenant", Method: http.MethodPost, Path: "/tenants", Permission: "tenants:write", Only: rest.PlatformAdmins, Tags: tags, Status: http.StatusCreated, Creates: true, Record: record,
		Summary:     "Create a tenant",
		Description: "Only for platform administrators. The id is derived from the name; if it is or was ever taken, a number is appended. A domain that another tenant has: 409.",
	}, func(ctx context.Context, sc scope.Scope, in *rest.JSON[tenant.Draft]) (*rest.JSON[tenant.Tenant], error) {
		return rest.Answer(h.Tenants.Create(ctx, sc, in.Body))
	})
	rest.Register(r, rest.Op{
		ID: "get-tenant", Method: http.MethodGet, Path: "/tenants/{tenant_id}", Permission: "tenants:read", Tags: tags,
		Summary: "Read a tenant", Description: "Includes the usage. A tenant other than the credential's: 403 `tenant_access_denied`, whether it exists or not.",
	}, func(ctx context.Context, sc scope.Scope, in *TenantPath) (*rest.JSON[tenant.Tenant], error) {
		return rest.Answer(h.Tenants.Get(ctx, sc, in.ID))
	})
	rest.Register(r, rest.Op{
		ID: "update-tenant", Method: http.MethodPut, Path: "/tenants/{tenant_id}", Permission: "tenants:write", Tags: tags, Record: record,
		Errors:      []int{http.StatusConflict},
		Summary:     "Change a tenant",
		Description: "Members that are not sent keep their value, within settings too; null removes a setting. Only a platform administrator may change limits, plan and status (422). A suspended tenant is refused at once.",
	}, func(ctx context.Context, sc scope.Scope, in *tenantUpdateIn) (*rest.JSON[tenant.Tenant], error) {
		return rest.Answer(h.Tenants.Update(ctx, sc, in.ID, in.Body))
	})
	rest.Register(r, rest.Op{
		ID: "delete-tenant", Method: http.MethodDelete, Path: "/tenants/{tenant_id}", Permission: "tenants:write", Tags: tags,
		Errors:      []int{http.StatusConflict},
		Summary:     "Delete a tenant",
		Description: "The tenant's credentials stop working at once. Its data is kept for 30 days, or a platform administrator purges it now. The default tenant cannot be deleted (409).",
	}, func(ctx context.Context, sc scope.Scope, in *tenantDeleteIn) (*rest.JSON[tenant.Deletion], error) {
		return rest.Answer(h.Tenants.Delete(ctx, sc, in.ID, in.HardDelete))
	})
	rest.Register(r, rest.Op{
		ID: "list-tenant-alerts", Method: http.MethodGet, Path: "/tenants/{tenant_id}/alerts", Permission: "tenants:read", Tags: tags,
		Summary: "List a tenant's alerts", Description: "Newest first. usage_limit opens at 80 % (warning) and 100 % (critical) of a limit, and is resolved when usage falls.",
	}, func(ctx context.Context, sc scope.Scope, in *TenantPath) (*rest.JSON[[]tenant.Alert], error) {
		return rest.Answer(h.Tenants.Alerts(ctx, sc, in.ID))
	})
	h.tenantKeys(r, tags)
}

// tenantKeys registers the tenant's API keys.
func (h *Handler) tenantKeys(r *rest.Router, tags []string) {
	record := reflect.TypeFor[auth.Key]()
	rest.Register(r, rest.Op{
		ID: "list-api-keys", Method: http.MethodGet, Path: "/tenants/{tenant_id}/api-keys", Permission: "tenants:read", Tags: tags,
		Summary: "List API keys", Description: "Oldest first; the keys themselves are never returned.",
	}, inTenant(h, func(ctx context.Context, sc scope.Scope, in *keyListIn) (*rest.JSON[auth.KeyPage], error) {
		return rest.Answer(h.Auth.Keys(ctx, sc, in.Skip, in.Limit))
	}))
	rest.Register(r, rest.Op{
		ID: "create-api-key", Method: http.MethodPost, Path: "/tenants/{tenant_id}/api-keys", Permission: "tenants:write", Tags: tags, Status: http.StatusCreated, Creates: true, Record: record,
		Summary:     "Create an API key",
		Description: "A key of the tenant's own, for both environments, or with `environment` for one. Only this answer contains the key. A scope that the caller does not hold, or an end later than that of the calling key: 403; an unknown scope: 422.",
	}, inTenant(h, func(ctx context.Context, sc scope.Scope, in *keyCreateIn) (*rest.JSON[auth.Key], error) {
		return rest.Answer(h.Auth.CreateKey(ctx, sc, in.Body))
	}))
	rest.Register(r, rest.Op{
		ID: "get-api-key", Method: http.MethodGet, Path: "/tenants/{tenant_id}/api-keys/{key_id}", Permission: "tenants:read", Tags: tags,
		Summary: "Read an API key", Description: "The key itself is never returned.",
	}, inTenant(h, func(ctx context.Context, sc scope.Scope, in *KeyPath) (*rest.JSON[auth.Key], error) {
		return rest.Answer(h.Auth.Key(ctx, sc, in.KeyID))
	}))
	h.tenantKeyChanges(r, tags)
}

// tenantKeyChanges registers the operations that change, rotate and revoke an API key.
func (h *Handler) tenantKeyChanges(r *rest.Router, tags []string) {
	record := reflect.TypeFor[auth.Key]()
	rest.Register(r, rest.Op{
		ID: "update-api-key", Method: http.MethodPut, Path: "/tenants/{tenant_id}/api-keys/{key_id}", Permission: "tenants:write", Tags: tags, Record: record,
		Errors:      []int{http.StatusConflict},
		Summary:     "Change an API key",
		Description: "Members that are not sent keep their value; null as expires_at means that the key never expires. The change takes effect at once, also for tokens that were created from the key; the key itself stays the same. The caller must be able to create a key like the result: a scope that the caller does not hold, or an end later than that of the calling key: 403. An expired key cannot be changed: 409 `key_expired`.",
	}, inTenant(h, func(ctx context.Context, sc scope.Scope, in *keyUpdateIn) (*rest.JSON[auth.Key], error) {
		return rest.Answer(h.Auth.UpdateKey(ctx, sc, in.KeyID, in.Body))
	}))
	rest.Register(r, rest.Op{
		ID: "revoke-api-key", Method: http.MethodDelete, Path: "/tenants/{tenant_id}/api-keys/{key_id}", Permission: "tenants:write", Tags: tags,
		Summary: "Revoke an API key", Description: "The key ends at once, and so do the tokens that were created from it.",
	}, inTenant(h, func(ctx context.Context, sc scope.Scope, in *KeyPath) (*rest.JSON[Revoked], error) {
		k, err := h.Auth.RevokeKey(ctx, sc, in.KeyID)
		return rest.Answer(Revoked{"API key revoked", k.ID}, err)
	}))
	rest.Register(r, rest.Op{
		ID: "rotate-api-key", Method: http.MethodPost, Path: "/tenants/{tenant_id}/api-keys/{key_id}/rotate", Permission: "tenants:write", Tags: tags, Status: http.StatusCreated, Creates: true,
		Errors:      []int{http.StatusConflict},
		Summary:     "Replace an API key",
		Description: "Creates a new key with the same name, scopes and end. The old key works for another grace_seconds; by default it ends at once. An expired key cannot be replaced: 409 `key_expired`.",
	}, inTenant(h, func(ctx context.Context, sc scope.Scope, in *keyRotateIn) (*rest.JSON[auth.Key], error) {
		return rest.Answer(h.Auth.RotateKey(ctx, sc, in.KeyID, in.Body.Grace()))
	}))
}
