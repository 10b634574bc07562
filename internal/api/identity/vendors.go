package identity

import (
	"context"
	"net/http"
	"reflect"

	"github.com/gatehouse-dev/gatehouse/internal/auth"
	"github.com/gatehouse-dev/gatehouse/internal/rest"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
	"github.com/gatehouse-dev/gatehouse/internal/vendor"
)

// VendorPath names a vendor: embed it in an input.
type VendorPath struct {
	ID string `path:"vendor_id" maxLength:"64" pattern:"^[-0-9a-zA-Z]+$" doc:"Id of the vendor"`
}

type vendorIssuedOut struct {
	ETag string `header:"ETag" doc:"Version of the vendor"`
	Body vendor.Issued
}

type vendorOut struct {
	ETag string `header:"ETag" doc:"Version of the vendor"`
	Body vendor.Vendor
}

type vendorUpdateIn struct {
	VendorPath
	rest.IfMatch
	Body vendor.Change
}

type vendorDeleteIn struct {
	VendorPath
	rest.IfMatch
}

type vendorRotateIn struct {
	VendorPath
	Body *auth.RotateRequest
}

// vendors registers the embedding vendors of the deployment.
func (h *Handler) vendors(r *rest.Router) {
	tags, record := []string{"Vendors"}, reflect.TypeFor[vendor.Issued]()
	rest.Register(r, rest.Op{
		ID: "list-vendors", Method: http.MethodGet, Path: "/vendors", Permission: "tenants:read", Only: rest.PlatformAdmins, Tags: tags,
		Summary: "List vendors", Description: "Only for platform administrators. Sorted by id.",
	}, func(ctx context.Context, sc scope.Scope, in *rest.Page) (*rest.JSON[vendor.Page], error) {
		return rest.Answer(h.Vendors.List(ctx, sc, in.Skip, in.Limit))
	})
	rest.Register(r, rest.Op{
		ID: "create-vendor", Method: http.MethodPost, Path: "/vendors", Permission: "tenants:write", Only: rest.PlatformAdmins, Tags: tags, Status: http.StatusCreated, Creates: true, Record: record,
		Summary:     "Register a vendor",
		Description: "Only for platform administrators. A vendor embeds the product and creates tenants through the OEM API, which has a document of its own. Only this answer contains the vendor's key. The key works with the OEM API alone.",
	}, func(ctx context.Context, sc scope.Scope, in *rest.JSON[vendor.Draft]) (*vendorIssuedOut, error) {
		made, err := h.Vendors.Create(ctx, sc, in.Body)
		return &vendorIssuedOut{rest.ETag(made.Version), made}, err
	})
	rest.Register(r, rest.Op{
		ID: "get-vendor", Method: http.MethodGet, Path: "/vendors/{vendor_id}", Permission: "tenants:read", Only: rest.PlatformAdmins, Tags: tags,
		Summary: "Read a vendor", Description: "Only for platform administrators.",
	}, func(ctx context.Context, sc scope.Scope, in *VendorPath) (*vendorOut, error) {
		v, err := h.Vendors.Get(ctx, sc, in.ID)
		return &vendorOut{rest.ETag(v.Version), v}, err
	})
	rest.RegisterChange(r, rest.Op{
		ID: "update-vendor", Method: http.MethodPut, Path: "/vendors/{vendor_id}", Permission: "tenants:write", Only: rest.PlatformAdmins, Tags: tags, Record: record,
		Errors:      []int{http.StatusPreconditionFailed},
		Summary:     "Change a vendor",
		Description: "Only for platform administrators. Members that are not sent keep their value. Tenants above a lower limit stay.",
	}, func(ctx context.Context, sc scope.Scope, in *vendorUpdateIn, version int64) (*vendorOut, error) {
		v, err := h.Vendors.Update(ctx, sc, in.ID, in.Body, version)
		return &vendorOut{rest.ETag(v.Version), v}, err
	})
	rest.RegisterChange(r, rest.Op{
		ID: "delete-vendor", Method: http.MethodDelete, Path: "/vendors/{vendor_id}", Permission: "tenants:write", Only: rest.PlatformAdmins, Tags: tags,
		Errors:      []int{http.StatusPreconditionFailed},
		Summary:     "Remove a vendor",
		Description: "Only for platform administrators. The vendor's keys end at once. Its tenants stay as they are.",
	}, func(ctx context.Context, sc scope.Scope, in *vendorDeleteIn, version int64) (*rest.JSON[Revoked], error) {
		v, err := h.Vendors.Delete(ctx, sc, in.ID, version)
		return rest.Answer(Revoked{"Vendor removed", v.ID}, err)
	})
	rest.Register(r, rest.Op{
		ID: "rotate-vendor-key", Method: http.MethodPost, Path: "/vendors/{vendor_id}/rotate", Permission: "tenants:write", Only: rest.PlatformAdmins, Tags: tags, Status: http.StatusCreated, Creates: true,
		Summary:     "Replace a vendor's key",
		Description: "Only for platform administrators. Only this answer contains the new key. The old key works for another grace_seconds; by default it ends at once.",
	}, func(ctx context.Context, sc scope.Scope, in *vendorRotateIn) (*vendorIssuedOut, error) {
		made, err := h.Vendors.Rotate(ctx, sc, in.ID, in.Body.Grace())
		return &vendorIssuedOut{rest.ETag(made.Version), made}, err
	})
}
