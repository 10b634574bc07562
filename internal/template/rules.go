package template

import (
	"slices"
	"strings"
)

// The ids of the shipped templates (specification, "Suggested-template rules").
const (
	EgressPIIMasking          = "EGRESS_PII_MASKING"
	RegulatedDataEgress       = "REGULATED_DATA_EGRESS"
	AIIngressGuardrail        = "AI_INGRESS_GUARDRAIL"
	AIPromptInjectionDefense  = "AI_PROMPT_INJECTION_DEFENSE"
	AITokenRateLimit          = "AI_TOKEN_RATE_LIMIT"
	MCPToolAuth               = "MCP_TOOL_AUTH"
	MCPDestructiveActionGuard = "MCP_DESTRUCTIVE_ACTION_GUARD"
	AgentToolUseConsent       = "AGENT_TOOL_USE_CONSENT"
	AgentCodeExecQuarantine   = "AGENT_CODE_EXEC_QUARANTINE"
	EgressAllowlist           = "EGRESS_ALLOWLIST"
	DetailedAuditTrail        = "DETAILED_AUDIT_TRAIL"
	RegionalAccessLock        = "REGIONAL_ACCESS_LOCK"
)

// Facts is what the rules read of a resource's enrichment; empty is not set.
type Facts struct {
	Kind               string
	DataClassification string
	ComplianceTags     []string
	AuditLevel         string
	SLATier            string
	DataResidency      string
	AIProvider         string
	AIModelFamily      string
	MCPProtocolVersion string
	AgentCapabilities  []string
	PIICategories      []string
	EgressDestinations []string
}

// Suggestion is one template and what of the enrichment asks for it.
type Suggestion struct {
	TemplateID string
	// Because are the members of the enrichment that triggered it, by their JSON names.
	Because []string
}

// rule is one line of the specification's trigger table: every condition must
// hold for its templates to be suggested.
type rule struct {
	templates  []string
	conditions []condition
}

// condition holds for some values of one member of the enrichment.
type condition struct {
	member string
	value  func(Facts) []string
	// among are the values that trigger; empty: any value does.
	among []string
}

func (c condition) holds(f Facts) bool {
	return slices.ContainsFunc(c.value(f), func(v string) bool {
		return v != "" && (len(c.among) == 0 || slices.ContainsFunc(c.among, func(a string) bool { return strings.EqualFold(a, v) }))
	})
}

// The members that the rules read.
func kind(f Facts) []string       { return []string{f.Kind} }
func level(f Facts) []string      { return []string{f.DataClassification} }
func provider(f Facts) []string   { return []string{f.AIProvider} }
func auditLevel(f Facts) []string { return []string{f.AuditLevel} }
func tier(f Facts) []string       { return []string{f.SLATier} }
func residency(f Facts) []string  { return []string{f.DataResidency} }
func tags(f Facts) []string       { return f.ComplianceTags }
func abilities(f Facts) []string  { return f.AgentCapabilities }
func pii(f Facts) []string        { return f.PIICategories }
func egress(f Facts) []string     { return f.EgressDestinations }

// rules is the trigger table of the specification, line by line.
func rules() []rule {
	return []rule{
		{[]string{EgressPIIMasking}, []condition{
			{"data_classification", level, []string{"confidential", "restricted"}}, {"pii_categories", pii, nil},
		}},
		{[]string{RegulatedDataEgress}, []condition{{"compliance_tags", tags, []string{"GDPR", "HIPAA", "PCI-DSS", "SOX"}}}},
		{[]string{AIIngressGuardrail, AIPromptInjectionDefense, AITokenRateLimit}, []condition{
			{"resource_kind", kind, []string{"llm_endpoint", "agent"}}, {"ai_provider", provider, nil},
		}},
		{[]string{MCPToolAuth, MCPDestructiveActionGuard}, []condition{{"resource_kind", kind, []string{"mcp_server"}}}},
		{[]string{AgentToolUseConsent}, []condition{{"agent_capabilities", abilities, []string{"tool_use"}}}},
		{[]string{AgentCodeExecQuarantine}, []condition{{"agent_capabilities", abilities, []string{"code_exec"}}}},
		{[]string{EgressAllowlist}, []condition{{"egress_destinations", egress, nil}}},
		{[]string{DetailedAuditTrail}, []condition{{"audit_level", auditLevel, []string{"detailed", "comprehensive"}}}},
		{[]string{RegionalAccessLock}, []condition{
			{"sla_tier", tier, []string{"gold"}}, {"data_residency", residency, []string{"eu", "asia-pacific"}},
		}},
	}
}

// Suggest gives the templates that the enrichment asks for, in the order of the
// table, each once.
func Suggest(f Facts) []Suggestion {
	out := []Suggestion{}
	for _, r := range rules() {
		if len(r.missing(f)) > 0 {
			continue
		}
		var because []string
		for _, c := range r.conditions {
			because = append(because, c.member)
		}
		for _, id := range r.templates {
			out = append(out, Suggestion{TemplateID: id, Because: because})
		}
	}
	return out
}

// missing are the conditions that do not hold.
func (r rule) missing(f Facts) []condition {
	var out []condition
	for _, c := range r.conditions {
		if !c.holds(f) {
			out = append(out, c)
		}
	}
	return out
}

// Near is a template that lacks one fact to be suggested.
type Near struct {
	TemplateID string
	// Member is the member that is not set, by its JSON name; Among the values
	// that would do, empty for any.
	Member string
	Among  []string
}

// NearMisses gives the templates whose rule has several conditions, of which all
// but one hold while the last one's member is not set at all: a value that was
// set by an operator is a decision, and no gap.
func NearMisses(f Facts) []Near {
	out := []Near{}
	for _, r := range rules() {
		gap := r.missing(f)
		if len(r.conditions) < 2 || len(gap) != 1 || slices.ContainsFunc(gap[0].value(f), func(v string) bool { return v != "" }) {
			continue
		}
		for _, id := range r.templates {
			out = append(out, Near{TemplateID: id, Member: gap[0].member, Among: gap[0].among})
		}
	}
	return out
}
