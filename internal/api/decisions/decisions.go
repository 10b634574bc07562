package decisions

import (
	"net/http"
	"reflect"
	"sync"

	"github.com/gatehouse-dev/gatehouse/internal/decision"
	"github.com/gatehouse-dev/gatehouse/internal/fault"
	"github.com/gatehouse-dev/gatehouse/internal/rego/value"
	"github.com/gatehouse-dev/gatehouse/internal/rest"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

// maxBulkBody is the largest body of a bulk call, in bytes.
const maxBulkBody = 10 << 20

// DecisionParts documents the parts of a request for a decision, which are open objects. The handler
// reads them without reflection.
type DecisionParts struct {
	User     map[string]any `json:"user,omitempty" doc:"Subject: id, email, roles, department, attributes. Missing members are filled in from the stored user with the same id" example:"{\"id\":\"ada\",\"roles\":[\"hr\"]}"`
	Resource map[string]any `json:"resource,omitempty" doc:"The resource: id (a registered resource's integer id), type, path, attributes" example:"{\"type\":\"api\",\"path\":\"/employees/1\"}"`
	Action   map[string]any `json:"action,omitempty" doc:"The action: name, method" example:"{\"name\":\"read\",\"method\":\"GET\"}"`
	Context  map[string]any `json:"context,omitempty" doc:"Environment of the request: ip_address, timestamp, request_id"`
	Request  map[string]any `json:"request,omitempty" doc:"The HTTP request, as a bouncer fills it in: method, path, host, query, headers"`
	MCP      map[string]any `json:"mcp,omitempty" doc:"An MCP call, as a bouncer parses it: method, tool, arguments, session"`
	LLM      map[string]any `json:"llm,omitempty" doc:"A request to a model, as a bouncer parses it: provider, model, messages, max_tokens, estimated_tokens, stream"`
	Usage    map[string]any `json:"usage,omitempty" doc:"The subject's usage, as a bouncer counts it: requests and tokens by minute, hour and day"`
}

// DecisionRequest documents the body of an evaluation.
type DecisionRequest struct {
	DecisionParts
	Environment string `json:"environment,omitempty" enum:"sandbox,production" doc:"Environment to decide in; the same as the query or X-Environment, if they are set. A different one: 400 environment_conflict. One that the key is not valid in: 403 environment_denied"`
	DecisionID  string `json:"decision_id,omitempty" maxLength:"200" doc:"Accepted so that an item of a bulk call can be sent alone; the answer has its own id"`
}

// BulkItem documents one item of a bulk evaluation.
type BulkItem struct {
	DecisionID string `json:"decision_id,omitempty" maxLength:"200" doc:"The caller's name for this item; generated when absent"`
	DecisionParts
	Environment string `json:"environment,omitempty" enum:"sandbox,production" doc:"May repeat the environment of the call; another: 422"`
}

// BulkRequest documents the body of a bulk evaluation.
type BulkRequest struct {
	Decisions []BulkItem `json:"decisions" maxItems:"1000" doc:"Decision requests"`
}

type environmentParams struct {
	Environment string `query:"environment" enum:"sandbox,production" doc:"Environment to decide in; production when absent"`
}

// decisions registers the hot path: single and bulk evaluation.
func (h *Handler) decisions(r *rest.Router) {
	tags := []string{"Decisions"}
	rest.Raw(r, rest.Op{
		ID: "evaluate-decision", Method: http.MethodPost, Path: "/decisions/evaluate", Reach: rest.ReachEnvironment, Permission: "decisions:read", Agents: true, Tags: tags,
		Summary:     "Decide one request",
		Description: "Evaluates the active controls of the environment against subject, action, resource and environment. ALLOW and MASK give PERMIT (MASK adds `mask`); DENY and no matching control give DENY. The audit record is stored safely before the answer is sent. When the request names no environment and no control gives a reason, the reason says that production decided.",
		Brief:       true,
		Errors:      []int{http.StatusServiceUnavailable, http.StatusInsufficientStorage},
	}, rest.RawDocs{Params: reflect.TypeFor[environmentParams](), Request: reflect.TypeFor[DecisionRequest](), Response: reflect.TypeFor[decision.Result]()}, h.evaluate)
	rest.Raw(r, rest.Op{
		ID: "evaluate-decisions-bulk", Method: http.MethodPost, Path: "/decisions/evaluate/bulk", Reach: rest.ReachEnvironment, Permission: "decisions:read", Agents: true, Tags: tags,
		Summary:     "Decide up to 1000 requests",
		Description: "All items are decided against one snapshot of the controls. The call counts once against the rate limit. If any item is invalid, nothing is decided. The call has one deadline (GATEHOUSE_BULK_DEADLINE, 10 s): items that it leaves no time for are DENY with the reason evaluation_limit. The call stops when the caller disconnects.",
		MaxBody:     maxBulkBody,
		Errors:      []int{http.StatusServiceUnavailable, http.StatusInsufficientStorage},
	}, rest.RawDocs{Params: reflect.TypeFor[environmentParams](), Request: reflect.TypeFor[BulkRequest](), Response: reflect.TypeFor[decision.Bulk]()}, h.evaluateBulk)
}

// answers reuses the buffers for answers of the hot path.
type answers struct{ pool sync.Pool }

func (a *answers) write(w http.ResponseWriter, appendTo func([]byte) []byte) {
	buf, ok := a.pool.Get().(*[]byte)
	if !ok {
		buf = new([]byte)
	}
	*buf = appendTo((*buf)[:0])
	rest.WriteBytes(w, http.StatusOK, rest.JSONMedia, *buf)
	if cap(*buf) <= 64<<10 {
		a.pool.Put(buf)
	}
}

func (h *Handler) evaluate(w http.ResponseWriter, req *http.Request, sc scope.Scope) {
	body, err := h.readValue(w, req, sc)
	if err != nil {
		rest.Fail(w, err)
		return
	}
	result, err := h.Decisions.Evaluate(req.Context(), sc, body)
	if err != nil {
		rest.Fail(w, err)
		return
	}
	h.answers.write(w, result.AppendJSON)
}

func (h *Handler) evaluateBulk(w http.ResponseWriter, req *http.Request, sc scope.Scope) {
	data, err := rest.Body(w, req)
	if err != nil {
		rest.Fail(w, err)
		return
	}
	result, err := h.Decisions.EvaluateBulk(req.Context(), sc, func() ([]value.Value, error) {
		body, err := rest.Parse(data)
		if err != nil {
			return nil, err
		}
		return bulkItems(body)
	})
	if err != nil {
		rest.Fail(w, err)
		return
	}
	h.answers.write(w, result.AppendJSON)
}

func bulkItems(body value.Value) ([]value.Value, error) {
	if body.Kind() != value.ObjectKind {
		return nil, fault.Invalidf("", "must be an object with the member decisions")
	}
	f := fault.New(fault.Invalid, "validation_failed", "the bulk request has errors")
	body.Each(func(key string, _ value.Value) bool {
		if key != "decisions" {
			f.Details = append(f.Details, fault.Detail{Pointer: "/" + key, Message: "unknown member"})
		}
		return true
	})
	list := body.Get("decisions")
	if list.Kind() != value.ArrayKind {
		f.Details = append(f.Details, fault.Detail{Pointer: "/decisions", Message: "must be an array of decision requests"})
	}
	if len(f.Details) > 0 {
		return nil, f
	}
	return list.Elems(), nil
}

// readValue reads a body as one strict JSON document.
func (h *Handler) readValue(w http.ResponseWriter, req *http.Request, sc scope.Scope) (value.Value, error) {
	data, err := rest.Body(w, req)
	if err != nil {
		return value.Value{}, err
	}
	return h.parseInShare(req, sc, data)
}

// parseInShare parses within the tenant's share of the processors.
func (h *Handler) parseInShare(req *http.Request, sc scope.Scope, data []byte) (value.Value, error) {
	return h.Decisions.Read(req.Context(), sc.Tenant, len(data), func() (value.Value, error) { return rest.Parse(data) })
}
