package estate

import (
	"context"
	"net/http"
	"reflect"

	"github.com/gatehouse-dev/gatehouse/internal/classify"
	"github.com/gatehouse-dev/gatehouse/internal/resource"
	"github.com/gatehouse-dev/gatehouse/internal/rest"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

type applyClassificationIn struct {
	ResourcePath
	rest.IfMatch
	Body resource.ClassificationChange
}

type bulkClassifyIn struct {
	rest.InEnvironment
	Limit int `query:"limit" default:"100" minimum:"1" maximum:"1000" doc:"Largest number of resources to examine"`
}

// applied is the answer of apply-classification and the proposal of auto-classify: members of
// either may be sent back unchanged.
type applied struct {
	resource.Enriched
	SuggestedData       *string  `json:"suggested_data_classification"`
	SuggestedCompliance []string `json:"suggested_compliance_tags"`
	ProposalConfidence  float64  `json:"confidence"`
	ProposalSource      string   `json:"source"`
	Rationale           []string `json:"rationale"`
}

// classification registers the operations that propose and apply enrichment.
func (h *Handler) classification(r *rest.Router) {
	tags := []string{"Resources"}
	rest.Register(r, rest.Op{
		ID: "auto-classify-resource", Method: http.MethodPost, Path: "/resources/{resource_id}/auto-classify", Reach: rest.ReachEnvironment, Permission: "resources:read", Tags: tags,
		Summary:     "Propose an enrichment for a resource",
		Description: "Changes nothing. The heuristic looks for fixed markers in the lower-cased name, url (or path, without a url), original host and business context. The first kind that matches wins: llm_endpoint, mcp_server, agent, rag_index, else api. With the tenant's setting `flags.resources.assist_classification` (off by default) and a confidence below 0.6, a configured assistant may replace the proposal; `source` is then `assist`. The assistant gets no e-mail address, and only allowed values of its answer are used.",
	}, func(ctx context.Context, sc scope.Scope, in *ResourcePath) (*rest.JSON[classify.Proposal], error) {
		return rest.Answer(h.Resources.Propose(ctx, sc, in.ID))
	})
	rest.RegisterChange(r, rest.Op{
		ID: "apply-classification", Method: http.MethodPost, Path: "/resources/{resource_id}/apply-classification", Reach: rest.ReachEnvironment, Permission: "resources:edit", Tags: tags,
		Record: reflect.TypeFor[applied](), Errors: []int{http.StatusPreconditionFailed},
		Summary:     "Classify a resource",
		Description: "Sets any subset of the enrichment, and records who classified, when, and with what confidence. A proposal may be sent back unchanged: its suggested_ members have no effect; send the values as data_classification and compliance_tags. A confidential or restricted resource needs a compliance tag (422).",
	}, func(ctx context.Context, sc scope.Scope, in *applyClassificationIn, version int64) (*resourceEnrichedOut, error) {
		got, err := h.Resources.ApplyClassification(ctx, sc, in.ID, in.Body, version)
		return &resourceEnrichedOut{rest.ETag(got.Version), got}, err
	})
	rest.Register(r, rest.Op{
		ID: "auto-classify-bulk", Method: http.MethodPost, Path: "/resources/auto-classify-bulk", Reach: rest.ReachEnvironment, Permission: "resources:edit", Tags: tags,
		Summary:     "Classify many resources with the heuristic",
		Description: "Examines the resources of one environment (sandbox by default) that only the heuristic classified, or nobody. Those that were never classified come first, then those classified longest ago, so repeated calls reach them all. Only empty members are filled in. The call is one audit entry, and each changed resource is one event.",
	}, func(ctx context.Context, sc scope.Scope, in *bulkClassifyIn) (*rest.JSON[resource.Bulk], error) {
		return rest.Answer(h.Resources.ClassifyBulk(ctx, sc, int64(in.Limit)))
	})
	rest.Register(r, rest.Op{
		ID: "get-inventory-summary", Method: http.MethodGet, Path: "/resources/inventory-summary", Reach: rest.ReachEnvironment, Permission: "resources:read", Tags: tags,
		Summary:     "Get a summary of the resources",
		Description: "Of one environment, or of both by default. A resource is protected when an active control is bound to it; tenant-wide controls do not count here.",
	}, func(ctx context.Context, sc scope.Scope, _ *rest.InEnvironment) (*rest.JSON[resource.Inventory], error) {
		return rest.Answer(h.Resources.Inventory(ctx, sc))
	})
	h.suggestions(r)
}

// suggestions registers the operations that suggest controls for an enrichment.
func (h *Handler) suggestions(r *rest.Router) {
	tags := []string{"Resources"}
	rest.Register(r, rest.Op{
		ID: "suggest-controls", Method: http.MethodGet, Path: "/resources/{resource_id}/suggested-controls", Reach: rest.ReachEnvironment, Permission: "resources:read", Tags: tags,
		Summary:     "Suggest control templates for a resource",
		Description: "Uses fixed rules: a template is suggested when the enrichment that it needs is set.",
	}, func(ctx context.Context, sc scope.Scope, in *ResourcePath) (*rest.JSON[resource.SuggestedControls], error) {
		return rest.Answer(h.Resources.SuggestControls(ctx, sc, in.ID))
	})
	rest.Register(r, rest.Op{
		ID: "smart-suggestions", Method: http.MethodGet, Path: "/resources/{resource_id}/smart-suggestions", Reach: rest.ReachEnvironment, Permission: "resources:read", Tags: tags,
		Summary:     "Suggest attributes for a resource's controls",
		Description: "For each suggested control: the attributes that it can use. For each control that would be suggested if one more fact were known: that fact, with the heuristic's value if it has one.",
	}, func(ctx context.Context, sc scope.Scope, in *ResourcePath) (*rest.JSON[resource.SmartSuggestions], error) {
		return rest.Answer(h.Resources.SmartSuggest(ctx, sc, in.ID))
	})
}
