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

// Facts are the fields of a resource's enrichment that the rules read. An empty field is not set.
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

// Suggestion is a suggested template, with the reasons.
type Suggestion struct {
	TemplateID string
	// Because are the members of the enrichment that triggered the rule, by their JSON names.
	Because []string
}

// rule is one line of the specification's trigger table. Its templates are suggested if all
// conditions hold.
type rule struct {
	templates  []string
	conditions []condition
}

// condition is a condition on one member of the enrichment.
type condition struct {
	member string
	value  func(Facts) []string
	// among are the values for which the condition holds; their case does not matter. Empty
	// means any value.
	among []string
}

func (c condition) holds(f Facts) bool {
	return slices.ContainsFunc(c.value(f), func(v string) bool {
		return v != "" && (len(c.among) == 0 || slices.ContainsFunc(c.among, func(a string) bool { return strings.EqualFold(a, v) }))
	})
}

// The functions below each return one member of the facts.
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

// rules returns the trigger table of the specification, in its order.
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

// Suggest returns the templates whose rules hold, in the order of the table, each once.
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

// missing returns the conditions that do not hold.
func (r rule) missing(f Facts) []condition {
	var out []condition
	for _, c := range r.conditions {
		if !c.holds(f) {
			out = append(out, c)
		}
	}
	return out
}

// Near is a template that would be suggested if one more member of the enrichment were set.
type Near struct {
	TemplateID string
	// Member is the JSON name of the member that is not set. Among are the values that trigger
	// the rule. If it is empty, any value does.
	Member string
	Among  []string
}

// NearMisses returns the templates whose rule has several conditions, of which only one does not
// hold because its member is not set. A member with another value is not a gap: an operator chose
// that value.
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
