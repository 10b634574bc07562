package controls

import (
	"context"
	"net/http"
	"sync"

	"github.com/gatehouse-dev/gatehouse/internal/fault"
	"github.com/gatehouse-dev/gatehouse/internal/policy"
	"github.com/gatehouse-dev/gatehouse/internal/rest"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
	"github.com/gatehouse-dev/gatehouse/internal/template"
)

// TemplateSummary is a template of the catalogue.
type TemplateSummary struct {
	ID            string               `json:"id" doc:"Identifier." example:"EGRESS_PII_MASKING"`
	Title         string               `json:"title" doc:"Short name for people." example:"Mask personal data in answers"`
	Description   string               `json:"description" doc:"What the control does."`
	ResourceKinds []string             `json:"resource_kinds" doc:"Kinds of resources that it suits."`
	Inputs        []string             `json:"inputs" doc:"Members of the input that the control reads." example:"[\"input.user.roles\"]"`
	Parameters    []template.Parameter `json:"parameters" doc:"Values in the control that an author may change."`
}

// TemplateList is the answer to GET /templates.
type TemplateList struct {
	Templates []TemplateSummary `json:"templates" doc:"Sorted by id."`
	Total     int               `json:"total" doc:"How many there are." example:"12"`
}

// TemplateExample is one request of a template's example traffic.
type TemplateExample struct {
	Name   string         `json:"name" doc:"What the request does."`
	Input  map[string]any `json:"input" doc:"The input as a PEP builds it, without the fields of the resource."`
	Effect string         `json:"effect" enum:"ALLOW,MASK,DENY" doc:"Expected outcome."`
	Reason string         `json:"reason,omitempty" doc:"Text that the reason must contain."`
}

// TemplateFilled is a control made from a template: rego_code and test_cases can be sent to POST
// /policies unchanged.
type TemplateFilled struct {
	TemplateSummary
	ResourceID *int64            `json:"resource_id" nullable:"true" doc:"Resource whose enrichment was filled in; null without one."`
	RegoCode   string            `json:"rego_code" doc:"One Rego v1 module that contains the parameters' values."`
	TestCases  []policy.TestCase `json:"test_cases" doc:"Test cases that pass with these values."`
	Examples   []TemplateExample `json:"examples" doc:"Example traffic of a resource such as the template is made for."`
}

type templateGetIn struct {
	rest.InEnvironment
	ID         string `path:"template_id" maxLength:"64" doc:"Id of the template" example:"EGRESS_PII_MASKING"`
	ResourceID int64  `query:"resource_id" minimum:"1" doc:"Resource whose enrichment is filled in; needs resources:read"`
}

// templates registers the catalogue of shipped controls. The first request loads it.
func (h *Handler) templates(r *rest.Router) {
	tags := []string{"Templates"}
	load := sync.OnceValues(template.Load)
	rest.Register(r, rest.Op{
		ID: "list-templates", Method: http.MethodGet, Path: "/templates", Reach: rest.ReachEnvironment, Permission: "policies:read", Tags: tags,
		Summary: "List the control templates", Description: "Every template works as it is. suggested-controls lists those that fit a resource.",
	}, func(context.Context, scope.Scope, *struct{}) (*rest.JSON[TemplateList], error) {
		c, err := load()
		if err != nil {
			return nil, err
		}
		out := TemplateList{Templates: []TemplateSummary{}}
		for _, id := range c.IDs() {
			t, _ := c.Get(id)
			out.Templates = append(out.Templates, templateSummary(t))
		}
		out.Total = len(out.Templates)
		return rest.Answer(out, nil)
	})
	rest.Register(r, rest.Op{
		ID: "get-template", Method: http.MethodGet, Path: "/templates/{template_id}", Reach: rest.ReachEnvironment, Permission: "policies:read", Tags: tags,
		Summary:     "Read a control template, filled in for a resource",
		Description: "With resource_id, parameters that come from enrichment have the values of that resource. The control also reads the enrichment at every decision, so a later change takes effect without an edit. An unknown template or resource: 404.",
	}, func(ctx context.Context, sc scope.Scope, in *templateGetIn) (*rest.JSON[TemplateFilled], error) {
		c, err := load()
		if err != nil {
			return nil, err
		}
		t, ok := c.Get(in.ID)
		if !ok {
			return nil, fault.NotFoundf("no template has this id")
		}
		enrichment, err := h.enrichmentOf(ctx, sc, in.ResourceID)
		if err != nil {
			return nil, err
		}
		f, err := t.Fill(enrichment)
		if err != nil {
			return nil, err
		}
		return rest.Answer(templateFilled(f, in.ResourceID), nil)
	})
}

// enrichmentOf returns a resource as the engine sees it; nil if id is 0.
func (h *Handler) enrichmentOf(ctx context.Context, sc scope.Scope, id int64) (map[string]any, error) {
	if id == 0 {
		return nil, nil
	}
	if err := sc.Require("resources:read"); err != nil {
		return nil, err
	}
	res, err := h.Resources.Get(ctx, sc, id)
	if err != nil {
		return nil, err
	}
	doc, err := res.Doc()
	if err != nil {
		return nil, err
	}
	members, _ := doc.Doc.Any().(map[string]any)
	return members, nil
}

func templateSummary(t template.Template) TemplateSummary {
	return TemplateSummary{t.ID, t.Title, t.Description, t.ResourceKinds, t.Inputs, t.Parameters}
}

func templateFilled(f template.Filled, resource int64) TemplateFilled {
	out := TemplateFilled{TemplateSummary: templateSummary(f.Template), RegoCode: f.Source, TestCases: []policy.TestCase{}, Examples: []TemplateExample{}}
	if resource != 0 {
		out.ResourceID = &resource
	}
	for _, c := range f.Cases {
		out.TestCases = append(out.TestCases, policy.TestCase{Name: c.Name, Input: c.Input, Expected: c.Expected})
	}
	for _, x := range f.Traffic().Exchanges {
		out.Examples = append(out.Examples, TemplateExample{x.Name, x.Input, x.Want.Effect, x.Want.Reason})
	}
	return out
}
