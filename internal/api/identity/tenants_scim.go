package identity

import (
	"context"
	"net/http"
	"reflect"

	"github.com/gatehouse-dev/gatehouse/internal/auth"
	"github.com/gatehouse-dev/gatehouse/internal/rest"
	"github.com/gatehouse-dev/gatehouse/internal/scim"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

type directoryOut struct {
	ETag string `header:"ETag" doc:"Version of the settings"`
	Body scim.Directory
}

type directoryIn struct {
	TenantPath
	rest.IfMatch
	Body scim.Change
}

type scimTokensIn struct {
	TenantPath
	rest.Page
}

type scimTokenIn struct {
	TenantPath
	Body scim.TokenDraft
}

// SCIMTokenPath names a token of a tenant's directory: embed it in an input.
type SCIMTokenPath struct {
	TenantPath
	TokenID string `path:"token_id" maxLength:"64" pattern:"^[-0-9a-zA-Z_]+$" doc:"Id of the token"`
}

type scimRotateIn struct {
	SCIMTokenPath
	Body *auth.RotateRequest
}

func directoryAnswer(d scim.Directory, err error) (*directoryOut, error) {
	return &directoryOut{rest.ETag(d.Version), d}, err
}

// tenantSCIM registers the settings and tokens of tenants' directories.
func (h *Handler) tenantSCIM(r *rest.Router) {
	tags, path := []string{"Tenants"}, "/tenants/{tenant_id}/scim"
	rest.Register(r, rest.Op{
		ID: "get-tenant-scim", Method: http.MethodGet, Path: path, Permission: "tenants:read", Tags: tags,
		Summary: "Read the settings of a tenant's directory", Description: "What a directory that provisions people by SCIM may grant, and the address to enter there.",
	}, inTenant(h, func(ctx context.Context, sc scope.Scope, in *TenantPath) (*directoryOut, error) {
		return directoryAnswer(h.SCIM.Get(ctx, sc))
	}))
	rest.Register(r, rest.Op{
		ID: "update-tenant-scim", Method: http.MethodPut, Path: path, Permission: "tenants:write", Also: "users:write", Tags: tags, Record: reflect.TypeFor[scim.Directory](),
		Errors:      []int{http.StatusPreconditionFailed},
		Summary:     "Change the settings of a tenant's directory",
		Description: "Members that are not sent keep their value; null gives the default. The roles of everybody whom the directory manages change at once; people who may do more than the settings allow keep theirs. The caller must hold everything that the roles allow, before and after (403), since the directory grants them.",
	}, inTenant(h, func(ctx context.Context, sc scope.Scope, in *directoryIn) (*directoryOut, error) {
		return directoryAnswer(rest.Matching(in.IfMatch.IfMatch, func(version int64) (scim.Directory, error) {
			return h.SCIM.Put(ctx, sc, version, in.Body)
		}))
	}))
	h.tenantSCIMTokens(r, tags, path+"/tokens")
}

// tenantSCIMTokens registers the tokens with which directories provision.
func (h *Handler) tenantSCIMTokens(r *rest.Router, tags []string, path string) {
	rest.Register(r, rest.Op{
		ID: "list-tenant-scim-tokens", Method: http.MethodGet, Path: path, Permission: "tenants:read", Tags: tags,
		Summary: "List the tokens of a tenant's directories", Description: "Oldest first; the tokens themselves are never returned.",
	}, inTenant(h, func(ctx context.Context, sc scope.Scope, in *scimTokensIn) (*rest.JSON[scim.TokenPage], error) {
		return rest.Answer(h.SCIMTokens.List(ctx, sc, in.Skip, in.Limit))
	}))
	rest.Register(r, rest.Op{
		ID: "create-tenant-scim-token", Method: http.MethodPost, Path: path, Permission: "tenants:write", Also: "users:write", Tags: tags, Status: http.StatusCreated, Creates: true,
		Summary:     "Create a token for a tenant's directory",
		Description: "The token works with the SCIM operations of this tenant, and with nothing else. Only this answer contains it. The caller must hold everything that the directory can grant (403). At most 20 tokens.",
	}, inTenant(h, func(ctx context.Context, sc scope.Scope, in *scimTokenIn) (*rest.JSON[scim.Token], error) {
		return rest.Answer(h.SCIMTokens.Create(ctx, sc, in.Body))
	}))
	rest.Register(r, rest.Op{
		ID: "rotate-tenant-scim-token", Method: http.MethodPost, Path: path + "/{token_id}/rotate", Permission: "tenants:write", Also: "users:write", Tags: tags, Status: http.StatusCreated, Creates: true,
		Summary:     "Replace a token of a tenant's directory",
		Description: "The old value works for another grace_seconds; by default it ends at once. Only this answer contains the new one. The caller must hold everything that the directory can grant (403).",
	}, inTenant(h, func(ctx context.Context, sc scope.Scope, in *scimRotateIn) (*rest.JSON[scim.Token], error) {
		return rest.Answer(h.SCIMTokens.Rotate(ctx, sc, in.TokenID, in.Body.Grace()))
	}))
	rest.Register(r, rest.Op{
		ID: "revoke-tenant-scim-token", Method: http.MethodDelete, Path: path + "/{token_id}", Permission: "tenants:write", Tags: tags,
		Summary: "Revoke a token of a tenant's directory", Description: "The token ends at once. The people and groups that it added stay.",
	}, inTenant(h, func(ctx context.Context, sc scope.Scope, in *SCIMTokenPath) (*rest.JSON[Revoked], error) {
		t, err := h.SCIMTokens.Revoke(ctx, sc, in.TokenID)
		return rest.Answer(Revoked{"Token revoked", t.ID}, err)
	}))
}
