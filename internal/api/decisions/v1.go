package decisions

import (
	"bytes"
	"net/http"
	"reflect"

	"github.com/gatehouse-dev/gatehouse/internal/decision"
	"github.com/gatehouse-dev/gatehouse/internal/rego"
	"github.com/gatehouse-dev/gatehouse/internal/rego/masking"
	"github.com/gatehouse-dev/gatehouse/internal/rego/value"
	"github.com/gatehouse-dev/gatehouse/internal/rest"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

// OPAInput documents the body of OPA's REST query.
type OPAInput struct {
	Input map[string]any `json:"input,omitempty" doc:"A decision request: user, resource, action, context. Controls also read any further members, unchanged"`
}

// OPAResult documents the answer of OPA's REST query.
type OPAResult struct {
	DecisionID string      `json:"decision_id" doc:"Identifies this decision in the audit"`
	Result     OPADecision `json:"result" doc:"The value of data.gatehouse.decision in a bouncer's bundle"`
}

// OPADecision is the result of the generated entry point, as a stock OPA returns it from a
// bouncer's bundle.
type OPADecision struct {
	Decision   string             `json:"decision" enum:"PERMIT,DENY"`
	Allow      bool               `json:"allow"`
	Effect     string             `json:"effect" enum:"ALLOW,MASK,DENY,NO_MATCH"`
	Reason     string             `json:"reason"`
	Mask       []masking.MaskRule `json:"mask"`
	PolicyID   *int64             `json:"policy_id" nullable:"true"`
	PolicyName *string            `json:"policy_name" nullable:"true"`
	Version    *int64             `json:"policy_version" nullable:"true"`
	ResourceID *int64             `json:"resource_id" nullable:"true"`
	// RequestAccess is absent unless this is a denial that can be requested, in a bundle too.
	RequestAccess *decision.RequestAccess `json:"request_access,omitempty" doc:"After a denial that can be requested: what to send to /access/v1/requests, with a reason"`
}

// opa registers the query of OPA's REST API, which OPA's client libraries send. It serves our
// decision only.
func (h *Handler) opa(r *rest.Router) {
	rest.Raw(r, rest.Op{
		ID: "opa-decision", Method: http.MethodPost, Path: "/v1/data/gatehouse/decision", Reach: rest.ReachEnvironment, Root: true, Permission: "decisions:read",
		Tags: []string{"Decisions"}, Summary: "Decide one request in OPA's format",
		Description: "Makes the same decision as /decisions/evaluate in the format of OPA's REST API, so that any OPA client library works unchanged.",
		Lenient:     true,
		Brief:       true,
	}, rest.RawDocs{Request: reflect.TypeFor[OPAInput](), Response: reflect.TypeFor[OPAResult]()}, h.opaDecision)
}

func (h *Handler) opaDecision(w http.ResponseWriter, req *http.Request, sc scope.Scope) {
	input, err := h.readInput(w, req, sc)
	if err != nil {
		rest.Fail(w, err)
		return
	}
	d, id, ask, err := h.Decisions.DecideAnyInput(req.Context(), sc, input)
	if err != nil {
		rest.Fail(w, err)
		return
	}
	out := OPAResult{DecisionID: id, Result: opaDecision(&d)}
	out.Result.RequestAccess = ask
	rest.WriteJSON(w, http.StatusOK, out)
}

// readInput reads the input of a query. As in OPA, an empty body, null and an object without input
// are queries without input; any other document is a 400.
func (h *Handler) readInput(w http.ResponseWriter, req *http.Request, sc scope.Scope) (value.Value, error) {
	none := value.Object()
	data, err := rest.Body(w, req)
	if err != nil || len(bytes.TrimSpace(data)) == 0 {
		return none, err
	}
	body, err := h.parseInShare(req, sc, data)
	if err != nil {
		return none, err
	}
	if kind := body.Kind(); kind != value.ObjectKind && kind != value.NullKind {
		return none, rest.BadRequest("invalid_json", "body contains malformed input document: expected an object with the member input")
	}
	if input := body.Get("input"); input.Defined() && !input.IsNull() {
		return input, nil
	}
	return none, nil
}

func opaDecision(d *rego.Decision) OPADecision {
	out := OPADecision{Decision: "DENY", Allow: d.Permit, Effect: d.Effect.String(), Reason: d.Reason, Mask: d.Mask}
	if d.Permit {
		out.Decision = "PERMIT"
	}
	if out.Mask == nil {
		out.Mask = []masking.MaskRule{}
	}
	if d.PolicyID != 0 {
		out.PolicyID, out.PolicyName, out.Version = &d.PolicyID, &d.PolicyName, &d.PolicyVersion
	}
	if d.Resource != nil {
		out.ResourceID = &d.Resource.ID
	}
	return out
}
