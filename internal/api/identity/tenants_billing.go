package identity

import (
	"context"
	"net/http"
	"reflect"

	"github.com/gatehouse-dev/gatehouse/internal/metering"
	"github.com/gatehouse-dev/gatehouse/internal/rest"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

type billingUpdateIn struct {
	TenantPath
	Body metering.Change
}

type tenantMetricsIn struct {
	TenantPath
	rest.Window
	Granularity string `query:"granularity" enum:"hour,day,week,month" default:"day" doc:"Length of a point of the series"`
}

// tenantBilling registers the usage and the bills of a tenant.
func (h *Handler) tenantBilling(r *rest.Router) {
	tags := []string{"Tenants"}
	rest.Register(r, rest.Op{
		ID: "get-tenant-billing", Method: http.MethodGet, Path: "/tenants/{tenant_id}/billing", Permission: "billing:read", Tags: tags,
		Summary:     "Read a tenant's bill",
		Description: "Usage of the tenant in the current period, and its cost so far. Calls are counted as they happen; policies, people, bouncers and storage are current numbers. The operator sets the prices; without prices, costs are 0.",
	}, func(ctx context.Context, sc scope.Scope, in *TenantPath) (*rest.JSON[metering.Billing], error) {
		return rest.Answer(h.Metering.Billing(ctx, sc, in.ID))
	})
	rest.Register(r, rest.Op{
		ID: "update-tenant-billing", Method: http.MethodPut, Path: "/tenants/{tenant_id}/billing", Permission: "billing:write", Tags: tags,
		Record:      reflect.TypeFor[metering.Billing](),
		Summary:     "Change how a tenant pays",
		Description: "Members that are not sent keep their value; null removes one. `payment_method` is a token of your payment provider. It is encrypted at rest and never returned. A value that looks like a card number is refused (422). The answer is the bill.",
	}, func(ctx context.Context, sc scope.Scope, in *billingUpdateIn) (*rest.JSON[metering.Billing], error) {
		return rest.Answer(h.Metering.Update(ctx, sc, in.ID, in.Body))
	})
	rest.Register(r, rest.Op{
		ID: "get-tenant-metrics", Method: http.MethodGet, Path: "/tenants/{tenant_id}/metrics", Permission: "tenants:read", Tags: tags,
		Summary:     "Read what a tenant uses",
		Description: "API calls in a period by operation, and as a series; current numbers of policies, bouncers and people. Without dates, the last 30 days. Calls are counted by the hour; calls older than 62 days are kept by the day. A series has at most 2000 points; a longer one is a 400. Calls that other replicas served in the last 15 seconds may be missing.",
	}, func(ctx context.Context, sc scope.Scope, in *tenantMetricsIn) (*rest.JSON[metering.Metrics], error) {
		start, end, err := in.Period()
		if err != nil {
			return nil, err
		}
		return rest.Answer(h.Metering.Metrics(ctx, sc, in.ID, start, end, in.Granularity))
	})
}
