package resource

import (
	"net/mail"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/fault"
	"github.com/gatehouse-dev/gatehouse/internal/patch"
)

// Enrichment is metadata that an operator approved. An empty member is not set. It is
// absent from answers with single values, and always from the engine's input.
type Enrichment struct {
	Kind               string   `json:"resource_kind,omitempty" db:"resource_kind" enum:"api,llm_endpoint,mcp_server,agent,rag_index,dataset,tool" doc:"Kind; selects control templates."`
	DataClassification string   `json:"data_classification,omitempty" db:"data_classification" enum:"public,internal,confidential,restricted" doc:"Sensitivity of its data."`
	ComplianceTags     []string `json:"compliance_tags" db:"compliance_tags" doc:"Compliance regimes such as GDPR, HIPAA, PCI-DSS, SOX."`
	AuditLevel         string   `json:"audit_level,omitempty" db:"audit_level" enum:"none,basic,detailed,comprehensive" doc:"Audit level and retention."`
	SLATier            string   `json:"sla_tier,omitempty" db:"sla_tier" enum:"gold,silver,bronze" doc:"How often to monitor, and alert thresholds."`
	DataResidency      string   `json:"data_residency,omitempty" db:"data_residency" doc:"Where its data must be stored." example:"eu"`
	OwnerTeam          string   `json:"owner_team,omitempty" db:"owner_team" doc:"Team that handles incidents."`
	// OwnerEmail is personal data. It may reach the engine's input, but never an audit
	// row or a prompt.
	OwnerEmail         string   `json:"owner_email,omitempty" db:"owner_email" format:"email" doc:"Contact address for incidents; left out of audit snapshots."`
	BusinessContext    string   `json:"business_context,omitempty" db:"business_context" maxLength:"500" doc:"Purpose, at most 500 characters."`
	AIProvider         string   `json:"ai_provider,omitempty" db:"ai_provider" enum:"openai,anthropic,google,azure,aws,self_hosted" doc:"Who hosts its model."`
	AIModelFamily      string   `json:"ai_model_family,omitempty" db:"ai_model_family" doc:"Model family; wildcards allowed." example:"llama-*"`
	MCPProtocolVersion string   `json:"mcp_protocol_version,omitempty" db:"mcp_protocol_version" doc:"Protocol version of an mcp_server."`
	AgentCapabilities  []string `json:"agent_capabilities" db:"agent_capabilities" enum:"tool_use,code_exec,file_io,web_browse,memory" doc:"What an agent can do."`
	PIICategories      []string `json:"pii_categories" db:"pii_categories" enum:"names,emails,ssn,card_numbers,health_records,addresses" doc:"Personal data that it contains."`
	EgressDestinations []string `json:"egress_destinations" db:"egress_destinations" doc:"Host names it may call."`
}

// Classification says who classified a resource, when, and with what confidence. It is
// empty for a resource that was never classified.
type Classification struct {
	Source           string     `json:"classification_source,omitempty" db:"classification_source" enum:"manual,heuristic,assist" readOnly:"true" doc:"Who classified it."`
	Confidence       *float64   `json:"classification_confidence,omitempty" db:"classification_confidence" minimum:"0" maximum:"1" readOnly:"true" doc:"Confidence of the classification."`
	LastClassifiedAt *time.Time `json:"last_classified_at,omitempty" db:"last_classified_at" readOnly:"true" doc:"When it was last classified."`
	Tags             []string   `json:"tags" db:"tags" readOnly:"true" doc:"Tags that classification has set."`
}

// EnrichmentChange is a change of some members. null clears a member.
type EnrichmentChange struct {
	Kind               patch.Field[string]   `json:"resource_kind,omitzero" enum:"api,llm_endpoint,mcp_server,agent,rag_index,dataset,tool" doc:"Kind; selects control templates."`
	DataClassification patch.Field[string]   `json:"data_classification,omitzero" enum:"public,internal,confidential,restricted" doc:"Sensitivity of its data; confidential and restricted need a compliance tag."`
	ComplianceTags     patch.Field[[]string] `json:"compliance_tags,omitzero" maxItems:"50" uniqueItems:"true" minLength:"1" maxLength:"64" doc:"Compliance regimes such as GDPR, HIPAA, PCI-DSS, SOX."`
	AuditLevel         patch.Field[string]   `json:"audit_level,omitzero" enum:"none,basic,detailed,comprehensive" doc:"Audit level and retention."`
	SLATier            patch.Field[string]   `json:"sla_tier,omitzero" enum:"gold,silver,bronze" doc:"How often to monitor, and alert thresholds."`
	DataResidency      patch.Field[string]   `json:"data_residency,omitzero" maxLength:"64" doc:"Where its data must be stored."`
	OwnerTeam          patch.Field[string]   `json:"owner_team,omitzero" maxLength:"200" doc:"Team that handles incidents."`
	OwnerEmail         patch.Field[string]   `json:"owner_email,omitzero" maxLength:"254" doc:"Contact address for incidents."`
	BusinessContext    patch.Field[string]   `json:"business_context,omitzero" maxLength:"500" doc:"Purpose, at most 500 characters."`
	AIProvider         patch.Field[string]   `json:"ai_provider,omitzero" enum:"openai,anthropic,google,azure,aws,self_hosted" doc:"Who hosts its model."`
	AIModelFamily      patch.Field[string]   `json:"ai_model_family,omitzero" maxLength:"200" doc:"Model family; wildcards allowed."`
	MCPProtocolVersion patch.Field[string]   `json:"mcp_protocol_version,omitzero" maxLength:"32" doc:"Protocol version of an mcp_server."`
	AgentCapabilities  patch.Field[[]string] `json:"agent_capabilities,omitzero" uniqueItems:"true" enum:"tool_use,code_exec,file_io,web_browse,memory" doc:"What an agent can do."`
	PIICategories      patch.Field[[]string] `json:"pii_categories,omitzero" uniqueItems:"true" enum:"names,emails,ssn,card_numbers,health_records,addresses" doc:"Personal data that it contains."`
	EgressDestinations patch.Field[[]string] `json:"egress_destinations,omitzero" maxItems:"200" uniqueItems:"true" minLength:"1" maxLength:"253" doc:"Host names it may call."`
}

func (e Enrichment) apply(c EnrichmentChange) Enrichment {
	c.Kind.Apply(&e.Kind)
	c.DataClassification.Apply(&e.DataClassification)
	c.ComplianceTags.Apply(&e.ComplianceTags)
	c.AuditLevel.Apply(&e.AuditLevel)
	c.SLATier.Apply(&e.SLATier)
	c.DataResidency.Apply(&e.DataResidency)
	c.OwnerTeam.Apply(&e.OwnerTeam)
	c.OwnerEmail.Apply(&e.OwnerEmail)
	c.BusinessContext.Apply(&e.BusinessContext)
	c.AIProvider.Apply(&e.AIProvider)
	c.AIModelFamily.Apply(&e.AIModelFamily)
	c.MCPProtocolVersion.Apply(&e.MCPProtocolVersion)
	c.AgentCapabilities.Apply(&e.AgentCapabilities)
	c.PIICategories.Apply(&e.PIICategories)
	c.EgressDestinations.Apply(&e.EgressDestinations)
	return e
}

// check returns the errors that the schema cannot express: the compliance-tag rule,
// addresses and host names.
func (e Enrichment) check() []fault.Detail {
	var out []fault.Detail
	add := func(pointer, msg string) { out = append(out, fault.Detail{Pointer: pointer, Message: msg}) }
	if (e.DataClassification == "confidential" || e.DataClassification == "restricted") && len(e.ComplianceTags) == 0 {
		add("/compliance_tags", "a confidential or restricted resource needs at least one compliance tag")
	}
	if e.OwnerEmail != "" {
		if a, err := mail.ParseAddress(e.OwnerEmail); err != nil || a.Address != e.OwnerEmail {
			add("/owner_email", "not an e-mail address")
		}
	}
	for i, h := range e.EgressDestinations {
		if !validHost(strings.TrimPrefix(h, "*.")) {
			add("/egress_destinations/"+strconv.Itoa(i), "not a host name: "+strconv.Quote(h))
		}
	}
	return out
}

// Offences returns the errors in the sent members that the schema cannot express. Whether a
// compliance tag is needed depends on the stored resource, unless the tags are sent.
func (c EnrichmentChange) Offences() []fault.Detail {
	return c.withoutStored(Enrichment{}.apply(c).check())
}

// withoutStored leaves out the errors that depend on the stored resource.
func (c EnrichmentChange) withoutStored(offences []fault.Detail) []fault.Detail {
	return slices.DeleteFunc(offences, func(d fault.Detail) bool { return d.Pointer == "/compliance_tags" && !c.ComplianceTags.Sent })
}

// members returns the members of the enrichment that are set, by their JSON names, as in the
// engine's input and data.resources.
func (e Enrichment) members() map[string]any {
	out := map[string]any{}
	for name, v := range map[string]string{
		"resource_kind": e.Kind, "data_classification": e.DataClassification, "audit_level": e.AuditLevel,
		"sla_tier": e.SLATier, "data_residency": e.DataResidency, "owner_team": e.OwnerTeam,
		"owner_email": e.OwnerEmail, "business_context": e.BusinessContext, "ai_provider": e.AIProvider,
		"ai_model_family": e.AIModelFamily, "mcp_protocol_version": e.MCPProtocolVersion,
	} {
		if v != "" {
			out[name] = v
		}
	}
	for name, v := range map[string][]string{
		"compliance_tags": e.ComplianceTags, "agent_capabilities": e.AgentCapabilities,
		"pii_categories": e.PIICategories, "egress_destinations": e.EgressDestinations,
	} {
		if len(v) > 0 {
			out[name] = v
		}
	}
	return out
}
