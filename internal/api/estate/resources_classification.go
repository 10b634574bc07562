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

type proposalOut struct{ Body classify.Proposal }

type applyClassificationIn struct {
	ResourcePath
	rest.IfMatch
	Body resource.ClassificationChange
}

type bulkClassifyIn struct {
	rest.InEnvironment
	Limit int `query:"limit" default:"100" minimum:"1" maximum:"1000" doc:"How many resources to look at, at most"`
}

type bulkClassifiedOut struct{ Body resource.Bulk }

type inventoryOut struct{ Body resource.Inventory }

type suggestedControlsOut struct{ Body resource.SuggestedControls }

type smartSuggestionsOut struct{ Body resource.SmartSuggestions }

// applied is what apply-classification answers and what auto-classify proposes:
// members of either may be sent back as they were read.
type applied struct {
	resource.Enriched
	SuggestedData       *string  `json:"suggested_data_classification"`
	SuggestedCompliance []string `json:"suggested_compliance_tags"`
	ProposalConfidence  float64  `json:"confidence"`
	ProposalSource      string   `json:"source"`
	Rationale           []string `json:"rationale"`
}

// classification registers what proposes and applies enrichment.
func (h *Handler) classification(r *rest.Router) {
	tags := []string{"Resources"}
	rest.Register(r, rest.Op{
		ID: "auto-classify-resource", Method: http.MethodPost, Path: "/resources/{resource_id}/auto-classify", Reach: rest.ReachEnvironment, Permission: "resources:read", Tags: tags,
		Summary:     "Propose the enrichment of a resource",
		Description: "Writes nothing. The lower-cased name, url (where there is none: path), original host and business context are searched for fixed markers; the first kind that matches wins: llm_endpoint, mcp_server, agent, rag_index, else api. With the tenant's setting `flags.resources.assist_classification` on (it is off by default), and a confidence below 0.6, a configured assistant may replace the proposal; `source` is then `assist`. No e-mail address reaches it, and of its answer only allowed values are taken.",
	},
		func(ctx context.Context, sc scope.Scope, in *ResourcePath) (*proposalOut, error) {
			p, err := h.Resources.Propose(ctx, sc, in.ID)
			return &proposalOut{p}, err
		})
	rest.Register(r, rest.Op{
		ID: "apply-classification", Method: http.MethodPost, Path: "/resources/{resource_id}/apply-classification", Reach: rest.ReachEnvironment, Permission: "resources:edit", Tags: tags,
		Record: reflect.TypeFor[applied](), Errors: []int{http.StatusPreconditionFailed},
		Summary:     "Classify a resource",
		Description: "Sets any subset of the enrichment and records who classified, how sure that is and when. A proposal may be sent back as it was read: its suggested_ members are not applied unless they are sent as data_classification and compliance_tags. A confidential or restricted resource needs a compliance tag (422).",
	},
		func(ctx context.Context, sc scope.Scope, in *applyClassificationIn) (*resourceEnrichedOut, error) {
			got, err := rest.Matching(in.IfMatch.IfMatch, func(version int64) (resource.Enriched, error) {
				return h.Resources.ApplyClassification(ctx, sc, in.ID, in.Body, version)
			})
			return &resourceEnrichedOut{rest.ETag(got.Version), got}, err
		})
	rest.Register(r, rest.Op{
		ID: "auto-classify-bulk", Method: http.MethodPost, Path: "/resources/auto-classify-bulk", Reach: rest.ReachEnvironment, Permission: "resources:edit", Tags: tags,
		Summary:     "Classify many resources by the heuristic",
		Description: "Looks at resources that nobody or the heuristic classified, of one environment (sandbox when none is named): those never classified first, then those classified longest ago, so that repeated calls get round. Only empty members are filled in. One audit row tells of the whole call, one event of each resource that changed.",
	},
		func(ctx context.Context, sc scope.Scope, in *bulkClassifyIn) (*bulkClassifiedOut, error) {
			got, err := h.Resources.ClassifyBulk(ctx, sc, int64(in.Limit))
			return &bulkClassifiedOut{got}, err
		})
	rest.Register(r, rest.Op{
		ID: "get-inventory-summary", Method: http.MethodGet, Path: "/resources/inventory-summary", Reach: rest.ReachEnvironment, Permission: "resources:read", Tags: tags,
		Summary:     "Sum up the resources",
		Description: "Of one environment, or of both when none is named. A resource is protected when an active control is bound to it; controls of the whole tenant do not count here.",
	},
		func(ctx context.Context, sc scope.Scope, _ *rest.InEnvironment) (*inventoryOut, error) {
			got, err := h.Resources.Inventory(ctx, sc)
			return &inventoryOut{got}, err
		})
	h.suggestions(r)
}

// suggestions registers what an enrichment means for controls to come.
func (h *Handler) suggestions(r *rest.Router) {
	tags := []string{"Resources"}
	rest.Register(r, rest.Op{
		ID: "suggest-controls", Method: http.MethodGet, Path: "/resources/{resource_id}/suggested-controls", Reach: rest.ReachEnvironment, Permission: "resources:read", Tags: tags,
		Summary:     "Suggest control templates for a resource",
		Description: "By fixed rules: a template is suggested when the enrichment that it needs is set.",
	},
		func(ctx context.Context, sc scope.Scope, in *ResourcePath) (*suggestedControlsOut, error) {
			got, err := h.Resources.SuggestControls(ctx, sc, in.ID)
			return &suggestedControlsOut{got}, err
		})
	rest.Register(r, rest.Op{
		ID: "smart-suggestions", Method: http.MethodGet, Path: "/resources/{resource_id}/smart-suggestions", Reach: rest.ReachEnvironment, Permission: "resources:read", Tags: tags,
		Summary:     "Hint at attributes for a resource's controls",
		Description: "For each suggested control, the attributes that it can use; for each control that lacks one fact to be suggested, which, with the heuristic's value where it has one.",
	},
		func(ctx context.Context, sc scope.Scope, in *ResourcePath) (*smartSuggestionsOut, error) {
			got, err := h.Resources.SmartSuggest(ctx, sc, in.ID)
			return &smartSuggestionsOut{got}, err
		})
}
