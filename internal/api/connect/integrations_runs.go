package connect

import (
	"context"
	"net/http"
	"reflect"
	"strconv"

	"github.com/gatehouse-dev/gatehouse/internal/integration"
	"github.com/gatehouse-dev/gatehouse/internal/rest"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

type integrationRunsIn struct {
	IntegrationPath
	rest.Page
	Status string `query:"status" enum:"pending,running,succeeded,failed,approved,denied,expired,superseded" doc:"Only runs in this state"`
}

type integrationAnswerIn struct {
	IntegrationPath
	Run  int64 `path:"run_id" minimum:"1" doc:"Id of the run"`
	Body integration.Answer
}

type integrationAnswerOut struct {
	Body struct {
		RunID  int64  `json:"run_id" doc:"Id of the run."`
		Status string `json:"status" doc:"State of the run now."`
	}
}

// bridgeIn documents how a break-glass system signs.
type bridgeIn struct {
	IntegrationPath
	MessageID string `header:"Webhook-Id" maxLength:"200" required:"true" doc:"Identifies the message. Each is taken once"`
	Timestamp string `header:"Webhook-Timestamp" maxLength:"20" required:"true" doc:"When it was signed, in seconds since 1970; at most 5 minutes from the server's time"`
	Signature string `header:"Webhook-Signature" maxLength:"500" required:"true" doc:"v1, and the base64 HMAC-SHA256 of id, time and raw body with dots between them (Standard Webhooks); the key is hmac_secret of the integration"`
}

// breakGlass registers the operation that receives the messages of break-glass systems.
func (h *Handler) breakGlass(r *rest.Router) {
	rest.Raw(r, rest.Op{
		ID: "break-glass-message", Method: http.MethodPost, Path: "/integrations/{integration_id}/break-glass", Public: true, Tags: []string{"Integrations"},
		Errors:      []int{http.StatusUnauthorized, http.StatusNotFound, http.StatusConflict},
		Summary:     "Open or end a grant in an emergency",
		Description: "For the system of a `break_glass_bridge`: the signature replaces the credential. A request of a tenant other than the default one names it by its host, by X-Tenant-ID or by `tenant_id`. A grant begins at once, ends by itself, and is in /access/v1/requests. 401 `invalid_signature`: the signature or its time is wrong, or there is no such bridge. 409 `already_received`: the message came before.",
	}, rest.RawDocs{Params: reflect.TypeFor[bridgeIn](), Request: reflect.TypeFor[integration.BridgeMessage](), Response: reflect.TypeFor[integration.BridgeResult]()}, h.takeBridge)
}

func (h *Handler) takeBridge(w http.ResponseWriter, req *http.Request, sc scope.Scope) {
	body, err := rest.Body(w, req)
	if err == nil {
		_, err = rest.Parse(body) // refuses duplicate members
	}
	id, _ := strconv.ParseInt(req.PathValue("integration_id"), 10, 64) // checked
	var out integration.BridgeResult
	if err == nil {
		out, err = h.Integrations.TakeBridge(req.Context(), sc, id, integration.Inbound{
			ID: req.Header.Get("Webhook-Id"), Timestamp: req.Header.Get("Webhook-Timestamp"), Signature: req.Header.Get("Webhook-Signature"), Body: body,
		})
	}
	if err != nil {
		rest.Fail(w, err)
		return
	}
	rest.WriteJSON(w, http.StatusOK, out)
}

// integrationRuns registers the runs of integrations, and the answers of their systems.
func (h *Handler) integrationRuns(r *rest.Router) {
	rest.Register(r, integrationOp("list-integration-runs", http.MethodGet, "/integrations/{integration_id}/runs", "List what an integration was started with",
		"Newest first: each message to a system that answers back, and how it ended. Tokens are never returned. Runs are kept for 90 days after their end."),
		func(ctx context.Context, sc scope.Scope, in *integrationRunsIn) (*rest.JSON[integration.RunPage], error) {
			return rest.Answer(h.Integrations.Runs(ctx, sc, in.ID, in.Status, int64(in.Skip), int64(in.Limit)))
		})
	rest.Register(r, rest.Op{
		ID: "answer-integration-run", Method: http.MethodPost, Path: "/integrations/{integration_id}/runs/{run_id}/answer", Public: true, Tags: []string{"Integrations"},
		Errors:  []int{http.StatusUnauthorized, http.StatusForbidden, http.StatusConflict},
		Summary: "Answer back to a run",
		Description: "For the system that got the callback: its token replaces the credential and is good for one answer. The callback's URL names the tenant. 401 `invalid_callback`: there is no such run, or the token is wrong. " +
			"409 `already_answered`, `callback_expired`, or `integration_disabled`. The answer of an `approval_queue` decides the request for access: 409 `already_decided`, 403 `own_request`, and 422 for a longer grant than was requested or may be given.",
	}, func(ctx context.Context, sc scope.Scope, in *integrationAnswerIn) (*integrationAnswerOut, error) {
		run, err := h.Integrations.Answer(ctx, sc, in.ID, in.Run, in.Body)
		out := &integrationAnswerOut{}
		out.Body.RunID, out.Body.Status = run.ID, run.Status
		return out, err
	})
}
