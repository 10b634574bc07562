package resource

import "github.com/gatehouse-dev/gatehouse/internal/template"

// facts is what the template rules read.
func (e Enrichment) facts() template.Facts {
	return template.Facts{
		Kind: e.Kind, DataClassification: e.DataClassification, ComplianceTags: e.ComplianceTags, AuditLevel: e.AuditLevel,
		SLATier: e.SLATier, DataResidency: e.DataResidency, AIProvider: e.AIProvider, AIModelFamily: e.AIModelFamily,
		MCPProtocolVersion: e.MCPProtocolVersion, AgentCapabilities: e.AgentCapabilities, PIICategories: e.PIICategories,
		EgressDestinations: e.EgressDestinations,
	}
}
