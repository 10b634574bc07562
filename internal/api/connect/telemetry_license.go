package connect

import (
	"context"
	"net/http"
	"reflect"

	"github.com/gatehouse-dev/gatehouse/internal/rest"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
	"github.com/gatehouse-dev/gatehouse/internal/telemetry"
)

// license registers the license, and the messages of the license server.
func (h *Handler) license(r *rest.Router) {
	tags := []string{"License"}
	status := telemetryOp("get-license-status", http.MethodGet, "/telemetry/license-status", "Get what the license allows",
		"Asks the license server; after a failed call, it is not asked again for a minute. Without a configuration the tier is community and nothing is gated. While the server cannot be reached, policies cannot be tested, and the last license that it confirmed decides on promotions. Decisions never depend on the license.")
	status.Tags = tags
	rest.Register(r, status, func(ctx context.Context, sc scope.Scope, _ *struct{}) (*rest.JSON[telemetry.LicenseStatus], error) {
		return rest.Answer(h.Telemetry.LicenseStatus(ctx, sc))
	})
	tests := telemetryOp("check-license-for-tests", http.MethodGet, "/telemetry/license-check/test-policies", "Check whether policies may be tested",
		"403 without a connection to the license server; 404 without a license server. POST /policies/{policy_id}/test and the tests of policies as code ask the same.")
	tests.Tags = tags
	rest.Register(r, tests, func(ctx context.Context, sc scope.Scope, _ *struct{}) (*rest.JSON[telemetry.Check], error) {
		return rest.Answer(h.Telemetry.CheckTests(ctx, sc))
	})
	promote := telemetryOp("check-license-for-promotion", http.MethodGet, "/telemetry/license-check/promote-production", "Check whether policies may be promoted",
		"POST /policies/{policy_id}/promote checks the license, and so does a switch of production to enforce. 404 without a license server.")
	promote.Tags = tags
	rest.Register(r, promote, func(ctx context.Context, sc scope.Scope, _ *struct{}) (*rest.JSON[telemetry.Check], error) {
		return rest.Answer(h.Telemetry.CheckPromotion(ctx, sc))
	})
	rest.Raw(r, rest.Op{
		ID: "update-license", Method: http.MethodPost, Path: "/telemetry/webhook/license-update", Public: true, Tags: tags,
		Errors:      []int{http.StatusUnauthorized, http.StatusNotFound},
		Summary:     "Receive a license update",
		Description: "For the license server only: `webhook_signature` replaces the credential. A request of a tenant other than the default one names it by its host, by X-Tenant-ID or by `tenant_id`. The signature is checked on the values as the body spells them, or in the shortest spelling. 401: the signature is wrong, or the customer is another. 404: no license server is configured. A repeated update gets the first answer again; an update that is older than the newest one is ignored.",
	},
		rest.RawDocs{Request: reflect.TypeFor[telemetry.Update](), Response: reflect.TypeFor[telemetry.Updated]()}, h.takeLicense)
}

func (h *Handler) takeLicense(w http.ResponseWriter, req *http.Request, sc scope.Scope) {
	body, err := rest.Body(w, req)
	if err == nil {
		_, err = rest.Parse(body) // refuses duplicate members
	}
	var out telemetry.Updated
	if err == nil {
		out, err = h.Telemetry.ApplyUpdate(req.Context(), sc.Tenant, rest.RequestID(w), body)
	}
	if err != nil {
		rest.Fail(w, err)
		return
	}
	rest.WriteJSON(w, http.StatusOK, out)
}
