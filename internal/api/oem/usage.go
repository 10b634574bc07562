package oem

import (
	"context"
	"net/http"

	"github.com/gatehouse-dev/gatehouse/internal/rest"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
	"github.com/gatehouse-dev/gatehouse/internal/vendor"
)

type usageIn struct {
	rest.Page
	From string `query:"from" maxLength:"7" doc:"First month, such as 2026-11; absent: the last one"`
	To   string `query:"to" maxLength:"7" doc:"Last month, included; absent: the current one"`
}

// usage registers the usage of a vendor's tenants.
func (h *Handler) usage(r *rest.Router) {
	rest.Register(r, rest.Op{
		ID: "oem-get-usage", Method: http.MethodGet, Family: Family, Path: "/usage", Caller: scope.Vendor, Tags: tags,
		Summary:     "Read the usage of the vendor's tenants",
		Description: "By tenant and month, at most 24 months. Calls are counted in UTC; policies, people, bouncers and storage are current numbers. Deleted tenants are included until they are purged. Calls that other replicas served in the last 15 seconds may be missing.",
	}, func(ctx context.Context, sc scope.Scope, in *usageIn) (*rest.JSON[vendor.Usage], error) {
		return rest.Answer(h.Vendors.MonthlyUsage(ctx, sc, in.From, in.To, in.Skip, in.Limit))
	})
}
