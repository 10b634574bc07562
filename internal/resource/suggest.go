package resource

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/gatehouse-dev/gatehouse/internal/classify"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
	"github.com/gatehouse-dev/gatehouse/internal/template"
)

// SuggestedControls are the templates that fit a resource's enrichment.
type SuggestedControls struct {
	ResourceID  int64               `json:"resource_id" doc:"Id of the resource"`
	TemplateIDs []string            `json:"template_ids" doc:"Ids of the suggested templates, without duplicates." example:"[\"EGRESS_PII_MASKING\"]"`
	Suggestions []SuggestedTemplate `json:"suggestions" doc:"The same, with reasons."`
	Summary     EnrichmentSummary   `json:"enrichment_summary" doc:"The values that the rules used; null where nothing is set."`
}

// SuggestedTemplate is one suggestion.
type SuggestedTemplate struct {
	TemplateID  string   `json:"template_id" doc:"Id of the template." example:"EGRESS_PII_MASKING"`
	TriggeredBy []string `json:"triggered_by" doc:"Members of the enrichment that led to it." example:"[\"data_classification\",\"pii_categories\"]"`
	Builder     string   `json:"builder_path" doc:"Link that opens the console's policy builder with the template." example:"/policies/new?template=EGRESS_PII_MASKING&resource_id=7"`
}

// EnrichmentSummary is what the trigger rules read; null where nothing is set.
type EnrichmentSummary struct {
	Kind               *string   `json:"resource_kind" nullable:"true" doc:"Kind; selects control templates."`
	DataClassification *string   `json:"data_classification" nullable:"true" doc:"Sensitivity of its data."`
	ComplianceTags     *[]string `json:"compliance_tags" nullable:"true" doc:"Compliance regimes such as GDPR, HIPAA, PCI-DSS, SOX."`
	AuditLevel         *string   `json:"audit_level" nullable:"true" doc:"Audit level and retention."`
	SLATier            *string   `json:"sla_tier" nullable:"true" doc:"How often to monitor, and alert thresholds."`
	DataResidency      *string   `json:"data_residency" nullable:"true" doc:"Where its data must be stored."`
	AIProvider         *string   `json:"ai_provider" nullable:"true" doc:"Who hosts its model."`
	AgentCapabilities  *[]string `json:"agent_capabilities" nullable:"true" doc:"What an agent can do."`
	PIICategories      *[]string `json:"pii_categories" nullable:"true" doc:"Personal data that it contains."`
	EgressDestinations *[]string `json:"egress_destinations" nullable:"true" doc:"Host names it may call."`
}

// SmartSuggestions are hints on attributes, by control.
type SmartSuggestions struct {
	ResourceID  int64  `json:"resource_id" doc:"Id of the resource"`
	Suggestions []Hint `json:"suggestions" doc:"Hints, in the order of the trigger table."`
}

// Hint is one attribute of one control.
type Hint struct {
	TemplateID string `json:"template_id" doc:"Id of the template." example:"EGRESS_ALLOWLIST"`
	Attribute  string `json:"attribute" doc:"Member of the enrichment." example:"egress_destinations"`
	Value      any    `json:"value" doc:"The value to use: a string or a list; null when a person must choose."`
	Hint       string `json:"hint" doc:"What to do with it, in words."`
}

// SuggestControls returns the templates for a resource by the trigger table.
func (s *Service) SuggestControls(ctx context.Context, sc scope.Scope, id int64) (SuggestedControls, error) {
	r, err := s.Get(ctx, sc, id)
	out := SuggestedControls{ResourceID: id, TemplateIDs: []string{}, Suggestions: []SuggestedTemplate{}, Summary: r.summary()}
	for _, t := range template.Suggest(r.facts()) {
		out.TemplateIDs = append(out.TemplateIDs, t.TemplateID)
		out.Suggestions = append(out.Suggestions, SuggestedTemplate{
			TemplateID: t.TemplateID, TriggeredBy: t.Because,
			Builder: fmt.Sprintf("/policies/new?template=%s&resource_id=%d", t.TemplateID, id),
		})
	}
	return out, err
}

func (e Enrichment) summary() EnrichmentSummary {
	text := func(v string) *string {
		if v == "" {
			return nil
		}
		return &v
	}
	list := func(v []string) *[]string {
		if len(v) == 0 {
			return nil
		}
		return &v
	}
	return EnrichmentSummary{
		Kind: text(e.Kind), DataClassification: text(e.DataClassification), ComplianceTags: list(e.ComplianceTags), AuditLevel: text(e.AuditLevel),
		SLATier: text(e.SLATier), DataResidency: text(e.DataResidency), AIProvider: text(e.AIProvider),
		AgentCapabilities: list(e.AgentCapabilities), PIICategories: list(e.PIICategories), EgressDestinations: list(e.EgressDestinations),
	}
}

// SmartSuggest returns, for each suggested control, the attributes that can fill it in. For
// each control that would be suggested if one more attribute were set, it returns that
// attribute, with the heuristic's value if there is one.
func (s *Service) SmartSuggest(ctx context.Context, sc scope.Scope, id int64) (SmartSuggestions, error) {
	r, err := s.Get(ctx, sc, id)
	out := SmartSuggestions{ResourceID: id, Suggestions: []Hint{}}
	if err != nil {
		return out, err
	}
	have := r.Enrichment.members()
	for _, t := range template.Suggest(r.facts()) {
		for _, name := range append(slices.Clone(t.Because), furtherAttributes(t.TemplateID)...) {
			if v, set := have[name]; set {
				out.Suggestions = append(out.Suggestions, Hint{t.TemplateID, name, v, "The control can use " + name + " as the resource has it."})
			}
		}
	}
	guess, _ := Enrichment{}.fillFrom(classify.Propose(r.subject()))
	guessed := guess.members()
	for _, n := range template.NearMisses(r.facts()) {
		hint := "Set " + n.Member + " and the control is suggested."
		if len(n.Among) > 0 {
			hint = "Set " + n.Member + " to " + strings.Join(n.Among, " or ") + " and the control is suggested."
		}
		value, known := guessed[n.Member]
		if text, ok := value.(string); known && ok && len(n.Among) > 0 && !slices.Contains(n.Among, text) {
			value = nil
		}
		out.Suggestions = append(out.Suggestions, Hint{n.TemplateID, n.Member, value, hint})
	}
	return out, nil
}

// furtherAttributes returns members that a template uses besides those that triggered it.
func furtherAttributes(id string) []string {
	switch id {
	case template.EgressPIIMasking:
		return []string{"compliance_tags"}
	case template.RegulatedDataEgress:
		return []string{"data_classification", "data_residency"}
	case template.AIIngressGuardrail, template.AIPromptInjectionDefense:
		return []string{"ai_model_family", "data_classification"}
	case template.AITokenRateLimit:
		return []string{"ai_model_family", "sla_tier"}
	case template.MCPToolAuth, template.MCPDestructiveActionGuard:
		return []string{"mcp_protocol_version", "agent_capabilities"}
	case template.AgentToolUseConsent, template.AgentCodeExecQuarantine:
		return []string{"resource_kind"}
	case template.EgressAllowlist:
		return []string{"data_residency"}
	case template.DetailedAuditTrail:
		return []string{"compliance_tags"}
	default:
		return nil
	}
}
