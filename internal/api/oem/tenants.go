package oem

import (
	"context"
	"net/http"
	"reflect"

	"github.com/gatehouse-dev/gatehouse/internal/rest"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
	"github.com/gatehouse-dev/gatehouse/internal/tenant"
	"github.com/gatehouse-dev/gatehouse/internal/vendor"
)

// TenantPath names a tenant: embed it in an input.
type TenantPath struct {
	ID scope.TenantID `path:"id" maxLength:"63" doc:"Id of the tenant"`
}

type changeIn struct {
	TenantPath
	Body tenant.Change
}

type deleteIn struct {
	TenantPath
	HardDelete bool `query:"hard_delete" doc:"Purge now instead of in 30 days"`
}

// tags are the tags of all operations of the family.
var tags = []string{"OEM"}

// tenants registers the tenants of a vendor.
func (h *Handler) tenants(r *rest.Router) {
	rest.Register(r, rest.Op{
		ID: "oem-create-tenant", Method: http.MethodPost, Family: Family, Path: "/tenants", Caller: scope.Vendor, Tags: tags,
		Status: http.StatusCreated, Creates: true,
		Summary:     "Provision a tenant",
		Description: "Creates the tenant with its administrator, API keys and first bouncer, all or nothing: the server removes what an interrupted request leaves within a few minutes, or at a repetition with the same Idempotency-Key. A repetition within 24 hours gets the first answer, secrets included. Over the vendor's `max_tenants`, or a limit in `settings`: 403 `limit_exceeded`. A domain that another tenant has: 409.",
	}, func(ctx context.Context, sc scope.Scope, in *rest.JSON[vendor.Request]) (*rest.JSON[vendor.Provisioned], error) {
		rest.LiftDeadlines(ctx)
		return rest.Answer(h.Vendors.Provision(ctx, sc, rest.IdempotencyKey(ctx), in.Body))
	})
	rest.Register(r, rest.Op{
		ID: "oem-list-tenants", Method: http.MethodGet, Family: Family, Path: "/tenants", Caller: scope.Vendor, Tags: tags,
		Summary: "List the vendor's tenants", Description: "Sorted by id, deleted ones included until they are purged. The status operation has the usage.",
	}, func(ctx context.Context, sc scope.Scope, in *rest.Page) (*rest.JSON[tenant.Page], error) {
		return rest.Answer(h.Vendors.ListTenants(ctx, sc, in.Skip, in.Limit))
	})
	rest.Register(r, rest.Op{
		ID: "oem-get-tenant-status", Method: http.MethodGet, Family: Family, Path: "/tenants/{id}/status", Caller: scope.Vendor, Tags: tags,
		Summary: "Read the status of a tenant", Description: "The tenant with its usage, its bouncers and the number of open alerts. A tenant that the vendor did not create: 404 `tenant_not_found`, as if it did not exist.",
	}, func(ctx context.Context, sc scope.Scope, in *TenantPath) (*rest.JSON[vendor.Status], error) {
		return rest.Answer(h.Vendors.Status(ctx, sc, in.ID))
	})
	rest.Register(r, rest.Op{
		ID: "oem-update-tenant", Method: http.MethodPut, Family: Family, Path: "/tenants/{id}", Caller: scope.Vendor, Tags: tags,
		Record: reflect.TypeFor[tenant.Tenant](), Errors: []int{http.StatusConflict},
		Summary:     "Change a tenant",
		Description: "Members that are not sent keep their value, within settings too; null removes a setting. `status` suspends a tenant, which takes effect at once, and makes a suspended or deleted one active again. A deleted tenant that becomes active counts against `max_tenants` (403 `limit_exceeded`); its credentials do not come back.",
	}, func(ctx context.Context, sc scope.Scope, in *changeIn) (*rest.JSON[tenant.Tenant], error) {
		return rest.Answer(h.Vendors.Change(ctx, sc, in.ID, in.Body))
	})
	rest.Register(r, rest.Op{
		ID: "oem-delete-tenant", Method: http.MethodDelete, Family: Family, Path: "/tenants/{id}", Caller: scope.Vendor, Tags: tags,
		Summary:     "Delete a tenant",
		Description: "The tenant's credentials stop working at once. Its data is kept for 30 days, or purged now with `hard_delete`.",
	}, func(ctx context.Context, sc scope.Scope, in *deleteIn) (*rest.JSON[tenant.Deletion], error) {
		return rest.Answer(h.Vendors.Remove(ctx, sc, in.ID, in.HardDelete))
	})
}
