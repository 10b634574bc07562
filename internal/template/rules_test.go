package template

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// suggestedIDs returns the ids of the suggested templates.
func suggestedIDs(f Facts) []string {
	out := []string{}
	for _, s := range Suggest(f) {
		out = append(out, s.TemplateID)
	}
	return out
}

// TestTriggers tests the table of the specification, and enrichment that just does not trigger.
func TestTriggers(t *testing.T) {
	ai := []string{AIIngressGuardrail, AIPromptInjectionDefense, AITokenRateLimit}
	for name, c := range map[string]struct {
		in   Facts
		want []string
	}{
		"nothing":                  {Facts{}, []string{}},
		"personal, confidential":   {Facts{DataClassification: "confidential", PIICategories: []string{"ssn"}}, []string{EgressPIIMasking}},
		"personal, restricted":     {Facts{DataClassification: "restricted", PIICategories: []string{"names"}}, []string{EgressPIIMasking}},
		"personal, internal":       {Facts{DataClassification: "internal", PIICategories: []string{"ssn"}}, []string{}},
		"restricted, not personal": {Facts{DataClassification: "restricted"}, []string{}},
		"gdpr":                     {Facts{ComplianceTags: []string{"X", "gdpr"}}, []string{RegulatedDataEgress}},
		"hipaa":                    {Facts{ComplianceTags: []string{"HIPAA"}}, []string{RegulatedDataEgress}},
		"pci":                      {Facts{ComplianceTags: []string{"PCI-DSS"}}, []string{RegulatedDataEgress}},
		"sox":                      {Facts{ComplianceTags: []string{"SOX"}}, []string{RegulatedDataEgress}},
		"another regime":           {Facts{ComplianceTags: []string{"ISO-27001"}}, []string{}},
		"llm with provider":        {Facts{Kind: "llm_endpoint", AIProvider: "openai"}, ai},
		"agent with provider":      {Facts{Kind: "agent", AIProvider: "self_hosted"}, ai},
		"llm without provider":     {Facts{Kind: "llm_endpoint"}, []string{}},
		"rag with provider":        {Facts{Kind: "rag_index", AIProvider: "openai"}, []string{}},
		"mcp":                      {Facts{Kind: "mcp_server"}, []string{MCPToolAuth, MCPDestructiveActionGuard}},
		"tools":                    {Facts{AgentCapabilities: []string{"memory", "tool_use"}}, []string{AgentToolUseConsent}},
		"code":                     {Facts{AgentCapabilities: []string{"code_exec"}}, []string{AgentCodeExecQuarantine}},
		"other abilities":          {Facts{AgentCapabilities: []string{"memory", "file_io", "web_browse"}}, []string{}},
		"egress":                   {Facts{EgressDestinations: []string{"a.example"}}, []string{EgressAllowlist}},
		"audit detailed":           {Facts{AuditLevel: "detailed"}, []string{DetailedAuditTrail}},
		"audit comprehensive":      {Facts{AuditLevel: "comprehensive"}, []string{DetailedAuditTrail}},
		"audit basic":              {Facts{AuditLevel: "basic"}, []string{}},
		"gold in the eu":           {Facts{SLATier: "gold", DataResidency: "eu"}, []string{RegionalAccessLock}},
		"gold in asia":             {Facts{SLATier: "gold", DataResidency: "asia-pacific"}, []string{RegionalAccessLock}},
		"gold in the us":           {Facts{SLATier: "gold", DataResidency: "us"}, []string{}},
		"silver in the eu":         {Facts{SLATier: "silver", DataResidency: "eu"}, []string{}},
		"all of it": {
			Facts{
				Kind: "agent", DataClassification: "restricted", ComplianceTags: []string{"GDPR"}, AuditLevel: "detailed", SLATier: "gold", DataResidency: "eu",
				AIProvider: "aws", AgentCapabilities: []string{"tool_use", "code_exec"}, PIICategories: []string{"ssn"}, EgressDestinations: []string{"a.example"},
			},
			slices.Concat([]string{EgressPIIMasking, RegulatedDataEgress}, ai, []string{AgentToolUseConsent, AgentCodeExecQuarantine, EgressAllowlist, DetailedAuditTrail, RegionalAccessLock}),
		},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(c.want, suggestedIDs(c.in)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// A suggestion names the fields that caused it.
func TestSuggestSaysWhy(t *testing.T) {
	got := Suggest(Facts{SLATier: "gold", DataResidency: "eu"})
	if diff := cmp.Diff([]Suggestion{{RegionalAccessLock, []string{"sla_tier", "data_residency"}}}, got); diff != "" {
		t.Error(diff)
	}
}

// A near miss names the field that would trigger a suggestion, and its values.
func TestNearMisses(t *testing.T) {
	for name, c := range map[string]struct {
		in   Facts
		want []Near
	}{
		"nothing":         {Facts{}, []Near{}},
		"no provider yet": {Facts{Kind: "agent"}, []Near{{AIIngressGuardrail, "ai_provider", nil}, {AIPromptInjectionDefense, "ai_provider", nil}, {AITokenRateLimit, "ai_provider", nil}}},
		"no level yet":    {Facts{PIICategories: []string{"ssn"}}, []Near{{EgressPIIMasking, "data_classification", []string{"confidential", "restricted"}}}},
		"decided":         {Facts{PIICategories: []string{"ssn"}, DataClassification: "public"}, []Near{}},
		"no kind":         {Facts{AIProvider: "aws", Kind: "tool"}, []Near{}},
		"no residency":    {Facts{SLATier: "gold"}, []Near{{RegionalAccessLock, "data_residency", []string{"eu", "asia-pacific"}}}},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(c.want, NearMisses(c.in)); diff != "" {
				t.Error(diff)
			}
		})
	}
}
