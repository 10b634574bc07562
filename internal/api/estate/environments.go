package estate

import (
	"context"
	"net/http"
	"reflect"

	"github.com/gatehouse-dev/gatehouse/internal/rest"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
	"github.com/gatehouse-dev/gatehouse/internal/tenant"
)

// EnvironmentPath identifies an environment: embed it in an input.
type EnvironmentPath struct {
	Environment scope.Env `path:"environment" enum:"sandbox,production" doc:"Environment"`
}

type enforcementSetIn struct {
	EnvironmentPath
	Body tenant.ModeChange
}

// environments registers the enforcement mode of an environment.
func (h *Handler) environments(r *rest.Router) {
	tags := []string{"Environments"}
	rest.Register(r, rest.Op{
		ID: "get-enforcement", Method: http.MethodGet, Path: "/environments/{environment}/enforcement", Reach: rest.ReachEnvironment, Permission: "bouncers:read", Tags: tags,
		Summary: "Read an environment's enforcement mode",
	}, func(ctx context.Context, sc scope.Scope, in *EnvironmentPath) (*rest.JSON[tenant.Enforcement], error) {
		return rest.Answer(h.Tenants.Enforcement(ctx, sc, in.Environment))
	})
	rest.Register(r, rest.Op{
		ID: "set-enforcement", Method: http.MethodPut, Path: "/environments/{environment}/enforcement", Reach: rest.ReachEnvironment, Permission: "bouncers:write", Tags: tags,
		Errors: []int{http.StatusConflict}, Record: reflect.TypeFor[tenant.Enforcement](),
		Summary:     "Set an environment's enforcement mode",
		Description: "shadow allows every request and records what would have been denied; enforce denies. production accepts enforce only while sandbox is in enforce (409) and the license allows it (403). To roll back one bouncer, set its configuration.enforcement_mode.",
	}, func(ctx context.Context, sc scope.Scope, in *enforcementSetIn) (*rest.JSON[tenant.Enforcement], error) {
		return rest.Answer(h.Tenants.SetEnforcement(ctx, sc, in.Environment, in.Body.Mode))
	})
}
