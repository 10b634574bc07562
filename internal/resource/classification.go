package resource

import (
	"cmp"
	"context"
	"slices"

	"github.com/gatehouse-dev/gatehouse/internal/classify"
	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

// Assistant answers a prompt. classify.Merge reads its answer.
type Assistant interface {
	Answer(ctx context.Context, p classify.Prompt) ([]byte, error)
}

// ClassificationChange is a change of the enrichment, and who proposed it.
type ClassificationChange struct {
	EnrichmentChange
	Source     string   `json:"classification_source,omitempty" enum:"manual,heuristic,assist" default:"manual" doc:"Who classified it."`
	Confidence *float64 `json:"classification_confidence,omitempty" minimum:"0" maximum:"1" doc:"Confidence of the classification; 1 by default when the source is manual."`
}

// subject returns what classification reads. Its address is the URL, or else the path
// pattern.
func (r Resource) subject() classify.Subject {
	address := cmp.Or(r.URL, r.Path)
	return classify.Subject{Name: r.Name, URL: address, OriginalHost: r.OriginalHost, BusinessContext: r.BusinessContext}
}

// Propose classifies a resource without storing anything. If the heuristic is not sure and
// the tenant allows it, it asks the assistant. If the assistant fails, it returns the
// heuristic's proposal, and the rationale says so.
func (s *Service) Propose(ctx context.Context, sc scope.Scope, id int64) (classify.Proposal, error) {
	var r Resource
	ask := false
	err := s.Stores.Read(ctx, sc.Tenant, func(tx *db.Tx) (err error) {
		if r, err = s.load(ctx, tx, sc, id); err != nil || s.Assist == nil || s.AssistOn == nil {
			return err
		}
		ask, err = s.AssistOn(ctx, tx)
		return err
	})
	if err != nil {
		return classify.Proposal{}, err
	}
	p := classify.Propose(r.subject())
	if !ask || p.Confidence >= classify.AssistThreshold {
		return p, nil
	}
	text, err := s.Assist.Answer(ctx, classify.NewPrompt(r.subject()))
	if err != nil {
		p.Rationale = append(p.Rationale, "assist: no answer")
		return p, nil
	}
	better, ok := classify.Merge(text, p)
	if !ok {
		better.Rationale = append(better.Rationale, "assist: its answer was no better")
	}
	return better, nil
}

// ApplyClassification changes the enrichment, and records it as a classification: who
// classified, when, and with what confidence.
func (s *Service) ApplyClassification(ctx context.Context, sc scope.Scope, id int64, c ClassificationChange, ifVersion int64) (Enriched, error) {
	var out Enriched
	err := s.write(ctx, sc, func(tx *db.Tx) error {
		old, err := s.current(ctx, tx, sc, id, ifVersion)
		if err != nil {
			return err
		}
		next, now := old, s.Now()
		next.Enrichment = old.Enrichment.apply(c.EnrichmentChange)
		next.Source, next.Confidence, next.LastClassifiedAt = c.Source, c.Confidence, &now
		next.Source = cmp.Or(next.Source, "manual")
		if next.Source == "manual" && next.Confidence == nil {
			certain := 1.0
			next.Confidence = &certain
		}
		next.Classification.Tags = next.labels()
		out, err = s.enriched(ctx, tx, sc, old, next)
		return err
	})
	return out, err
}

// labels returns the tags of a classification.
func (e Enrichment) labels() []string {
	out := []string{}
	for _, l := range []struct {
		name string
		on   bool
	}{
		{"ai", classify.AI(e.Kind)}, {"egress", len(e.EgressDestinations) > 0}, {"pii", len(e.PIICategories) > 0}, {"regulated", len(e.ComplianceTags) > 0},
	} {
		if l.on {
			out = append(out, l.name)
		}
	}
	return out
}

// fillFrom fills the empty members of the enrichment from a proposal, and returns the names
// of those that it filled. It never replaces an operator's values. It leaves out a
// data_classification that the compliance-tag rule would refuse.
func (e Enrichment) fillFrom(p classify.Proposal) (Enrichment, []string) {
	filled := []string{}
	text := func(dst *string, name string, v *string) {
		if *dst == "" && v != nil && *v != "" {
			*dst = *v
			filled = append(filled, name)
		}
	}
	list := func(dst *[]string, name string, v []string) {
		if len(*dst) == 0 && len(v) > 0 {
			*dst = slices.Clone(v)
			filled = append(filled, name)
		}
	}
	text(&e.Kind, "resource_kind", &p.Kind)
	if classify.AI(e.Kind) {
		text(&e.AIProvider, "ai_provider", p.AIProvider)
		text(&e.AIModelFamily, "ai_model_family", p.AIModelFamily)
	}
	if e.Kind == classify.MCPServer {
		text(&e.MCPProtocolVersion, "mcp_protocol_version", p.MCPProtocolVersion)
	}
	list(&e.AgentCapabilities, "agent_capabilities", p.AgentCapabilities)
	list(&e.PIICategories, "pii_categories", p.PIICategories)
	list(&e.EgressDestinations, "egress_destinations", p.EgressDestinations)
	list(&e.ComplianceTags, "compliance_tags", p.SuggestedCompliance)
	if level := p.SuggestedData; level != nil && (!strict(*level) || len(e.ComplianceTags) > 0) {
		text(&e.DataClassification, "data_classification", level)
	}
	return e, filled
}

// strict reports whether a classification needs a compliance tag.
func strict(level string) bool { return level == "confidential" || level == "restricted" }
