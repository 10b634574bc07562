package resource

import (
	"context"
	"maps"
	"slices"
	"strings"

	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
	"github.com/gatehouse-dev/gatehouse/internal/template"
)

// Impact is what an enrichment means for a bound control or a suggested template.
type Impact struct {
	PolicyID   int64  `json:"policy_id,omitempty" doc:"The bound control."`
	TemplateID string `json:"template_id,omitempty" doc:"The suggested template."`
	Effect     string `json:"effect" enum:"input_changed,unchanged,suggested,no_longer_suggested" doc:"What it means for the control." example:"input_changed"`
	Detail     string `json:"detail" doc:"The same, as text."`
}

// Enriched is an enriched resource, with the impact on controls.
type Enriched struct {
	Resource
	Impacts []Impact `json:"impacts" doc:"What the change means for each bound control and each suggested template."`
}

// Enrich changes members of the enrichment. A missing compliance tag is a 422. The audit
// row has the resource's snapshot without owner_email.
func (s *Service) Enrich(ctx context.Context, sc scope.Scope, id int64, c EnrichmentChange, ifVersion int64) (Enriched, error) {
	var out Enriched
	err := s.write(ctx, sc, func(tx *db.Tx) error {
		old, err := s.current(ctx, tx, sc, id, ifVersion)
		if err != nil {
			return err
		}
		next := old
		next.Enrichment = old.Enrichment.apply(c)
		out, err = s.enriched(ctx, tx, sc, old, next)
		return err
	})
	return out, err
}

// enriched stores a resource whose enrichment or classification changed.
func (s *Service) enriched(ctx context.Context, tx *db.Tx, sc scope.Scope, old, next Resource) (out Enriched, err error) {
	if offences := next.Enrichment.check(); len(offences) > 0 {
		return out, invalid(offences)
	}
	next.Version, next.UpdatedAt = old.Version+1, s.Now()
	if out.Resource, err = s.replace(ctx, tx, next); err != nil {
		return out, err
	}
	out.Policies = old.Policies
	diff := changesOf(old, out.Resource)
	out.Impacts = impacts(old, out.Resource, diff)
	return out, s.record(ctx, tx, sc, out.Resource, "updated", diff)
}

// impacts says what a change of the enrichment means for the bound controls, and for the
// templates that are suggested now or were before.
func impacts(old, next Resource, diff map[string]any) []Impact {
	out := []Impact{}
	effect, detail := "unchanged", "no member that the control reads has another value"
	if len(diff) > 0 {
		effect = "input_changed"
		detail = "from the next revision on, input.resource and data.resources show the new values of: " + strings.Join(slices.Sorted(maps.Keys(diff)), ", ")
	}
	for _, id := range next.Policies {
		out = append(out, Impact{PolicyID: id, Effect: effect, Detail: detail})
	}
	before, after := template.Suggest(old.facts()), template.Suggest(next.facts())
	has := func(list []template.Suggestion, id string) bool {
		return slices.ContainsFunc(list, func(s template.Suggestion) bool { return s.TemplateID == id })
	}
	for _, s := range after {
		detail := "suggested because of " + strings.Join(s.Because, " and ")
		if has(before, s.TemplateID) {
			detail += ", as before"
		}
		out = append(out, Impact{TemplateID: s.TemplateID, Effect: "suggested", Detail: detail})
	}
	for _, s := range before {
		if !has(after, s.TemplateID) {
			out = append(out, Impact{TemplateID: s.TemplateID, Effect: "no_longer_suggested", Detail: "was suggested because of " + strings.Join(s.Because, " and ")})
		}
	}
	return out
}
