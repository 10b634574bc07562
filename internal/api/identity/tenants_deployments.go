package identity

import (
	"context"
	"net/http"

	"github.com/gatehouse-dev/gatehouse/internal/region"
	"github.com/gatehouse-dev/gatehouse/internal/rest"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

type tenantDeployIn struct {
	TenantPath
	Body region.Request
}

// DeploymentPath names a deployment of a tenant: embed it in an input.
type DeploymentPath struct {
	TenantPath
	Deployment string `path:"deployment_id" maxLength:"64" pattern:"^[-0-9a-zA-Z]+$" doc:"Id of the deployment"`
}

type deploymentListIn struct {
	TenantPath
	rest.Page
}

// tenantDeployments registers the moves of tenants between regions.
func (h *Handler) tenantDeployments(r *rest.Router) {
	tags := []string{"Tenants"}
	rest.Register(r, rest.Op{
		ID: "deploy-tenant", Method: http.MethodPost, Path: "/tenants/{tenant_id}/deploy", Permission: "tenants:write", Tags: tags, Status: http.StatusAccepted, Creates: true,
		Errors:      []int{http.StatusConflict},
		Summary:     "Move a tenant to another region",
		Description: "Only for platform administrators. The tenant's data is copied to the store of the region while the tenant is in use, and compared. Then writes wait for a moment, and the tenant is switched to the copy; reads and decisions go on. If anything fails before the switch, the tenant stays where it is. A tenant that is in the region already gets a new store there in the same way. A tenant that is being moved: 409. A region that the deployment does not serve: 422.",
	}, func(ctx context.Context, sc scope.Scope, in *tenantDeployIn) (*rest.JSON[region.Deployment], error) {
		return rest.Answer(h.Deployments.Start(ctx, sc, in.ID, in.Body))
	})
	rest.Register(r, rest.Op{
		ID: "list-tenant-deployments", Method: http.MethodGet, Path: "/tenants/{tenant_id}/deployments", Permission: "tenants:read", Tags: tags,
		Summary: "List a tenant's deployments", Description: "The newest first.",
	}, func(ctx context.Context, sc scope.Scope, in *deploymentListIn) (*rest.JSON[region.Page], error) {
		return rest.Answer(h.Deployments.List(ctx, sc, in.ID, in.Skip, in.Limit))
	})
	rest.Register(r, rest.Op{
		ID: "get-tenant-deployment", Method: http.MethodGet, Path: "/tenants/{tenant_id}/deployments/{deployment_id}", Permission: "tenants:read", Tags: tags,
		Summary: "Read a deployment", Description: "How far the move is. completed: the tenant is in its new region. failed: the tenant is where it was, and `reason` says why.",
	}, func(ctx context.Context, sc scope.Scope, in *DeploymentPath) (*rest.JSON[region.Deployment], error) {
		return rest.Answer(h.Deployments.Get(ctx, sc, in.ID, in.Deployment))
	})
	rest.Register(r, rest.Op{
		ID: "stop-tenant-deployment", Method: http.MethodDelete, Path: "/tenants/{tenant_id}/deployments/{deployment_id}", Permission: "tenants:write", Tags: tags,
		Errors:  []int{http.StatusConflict},
		Summary: "Stop a deployment", Description: "Only for platform administrators. The tenant stays where it is, and the deployment ends as failed. A deployment that is complete, or too far to be stopped: 409.",
	}, func(ctx context.Context, sc scope.Scope, in *DeploymentPath) (*rest.JSON[region.Deployment], error) {
		return rest.Answer(h.Deployments.Cancel(ctx, sc, in.ID, in.Deployment))
	})
}
