// Package resource stores the protected resources of a tenant: what they are,
// which requests are for them (host, path pattern, methods), and the enrichment
// that authors' controls and the control templates read.
//
//	create, update, enrich ──► one transaction: row + audit + event + Bump("env:<environment>")
//	                                   │
//	Docs (snapshots, bundles) ◄────────┘   input.resource and data.resources
package resource

import (
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/fault"
	"github.com/gatehouse-dev/gatehouse/internal/patch"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

// Resource is one protected resource.
type Resource struct {
	ID           int64     `json:"id" db:"id" doc:"Identifier, unique across both environments." example:"7"`
	Name         string    `json:"name" db:"name" doc:"Display name." example:"Payments API"`
	Type         string    `json:"type" db:"type" doc:"Type, as requests name it." example:"api"`
	Environment  scope.Env `json:"environment" db:"environment" enum:"sandbox,production" doc:"Environment the resource belongs to."`
	Path         string    `json:"path" db:"path" doc:"Path pattern: * is one segment, ** the rest, {name} one named segment." example:"/payments/{id}"`
	Methods      []string  `json:"methods" db:"methods" doc:"HTTP methods; empty means every method; GET includes HEAD."`
	PathMatching string    `json:"path_matching" db:"path_matching" enum:"folded,exact" doc:"Which spellings of a path belong to the resource. folded: all spellings that some server treats as the same (case, path parameters, trailing dots and spaces, double escapes, Unicode compatibility forms). exact: only those spelled as in the pattern. With exact, the application must tell all of them apart itself."`
	// OriginalHost and URL are for matching, discovery and the heuristic.
	OriginalHost string         `json:"original_host" db:"original_host" doc:"Host that requests for the resource name; empty matches every host." example:"pay.example.com"`
	URL          string         `json:"url" db:"url" doc:"Address of the resource, where known." example:"https://pay.example.com/payments"`
	Attributes   map[string]any `json:"attributes" db:"attributes" doc:"Free-form attributes: sensitivity, owner, compliance and others."`
	Policies     []int64        `json:"policies" db:"-" doc:"Ids of the controls bound to the resource."`
	Description  string         `json:"description" db:"description" doc:"Description for people."`
	// AutoDiscovered resources were reported by a bouncer.
	AutoDiscovered bool `json:"auto_discovered" db:"auto_discovered" doc:"True when a bouncer created it, on the first traffic for an unregistered host."`
	Enrichment
	Classification
	Version   int64     `json:"version" db:"version" doc:"Grows by one with each change; also the ETag."`
	CreatedAt time.Time `json:"created_at" db:"created_at" doc:"When the resource was created."`
	UpdatedAt time.Time `json:"updated_at" db:"updated_at" doc:"When it last changed."`

	// Warnings is set only by Create.
	Warnings []Warning `json:"-" db:"-"`
}

// Draft is a new resource. Environment defaults to the request's, and then to sandbox.
type Draft struct {
	Name         string         `json:"name" minLength:"1" maxLength:"200" doc:"Display name." example:"Payments API"`
	Type         string         `json:"type" minLength:"1" maxLength:"64" doc:"Type, as requests name it." example:"api"`
	Environment  scope.Env      `json:"environment,omitempty" enum:"sandbox,production" doc:"Environment; sandbox by default."`
	Path         string         `json:"path" minLength:"1" maxLength:"2048" doc:"Path pattern: * is one segment, ** the rest, {name} one named segment." example:"/payments/{id}"`
	Methods      []string       `json:"methods,omitempty" maxItems:"16" doc:"HTTP methods; empty means every method; GET includes HEAD."`
	PathMatching string         `json:"path_matching,omitempty" enum:"folded,exact" doc:"folded by default: every spelling of its paths belongs to the resource. Use exact only for an application that tells all spellings apart: the others then have none of its controls."`
	OriginalHost string         `json:"original_host,omitempty" maxLength:"260" doc:"Host that requests for the resource name; empty matches every host."`
	URL          string         `json:"url,omitempty" maxLength:"2048" doc:"Address of the resource, where known."`
	Attributes   map[string]any `json:"attributes,omitempty" doc:"Free-form attributes."`
	Description  string         `json:"description,omitempty" maxLength:"4000" doc:"Description for people."`
	EnrichmentChange
}

// Change is an update. Only the sent members change.
type Change struct {
	Name         *string                     `json:"name,omitempty" minLength:"1" maxLength:"200" doc:"Display name."`
	Type         *string                     `json:"type,omitempty" minLength:"1" maxLength:"64" doc:"Type, as requests name it."`
	Environment  *scope.Env                  `json:"environment,omitempty" enum:"sandbox,production" doc:"Must be the resource's own environment: a resource does not move."`
	Path         *string                     `json:"path,omitempty" minLength:"1" maxLength:"2048" doc:"Path pattern."`
	Methods      patch.Field[[]string]       `json:"methods,omitzero" maxItems:"16" doc:"HTTP methods; empty means every method; GET includes HEAD."`
	PathMatching *string                     `json:"path_matching,omitempty" enum:"folded,exact" doc:"folded or exact; use exact only for an application that tells all spellings of a path apart."`
	OriginalHost patch.Field[string]         `json:"original_host,omitzero" maxLength:"260" doc:"Host; empty matches every host."`
	URL          patch.Field[string]         `json:"url,omitzero" maxLength:"2048" doc:"Address of the resource."`
	Attributes   patch.Field[map[string]any] `json:"attributes,omitzero" doc:"Free-form attributes; replaces all of them."`
	Description  patch.Field[string]         `json:"description,omitzero" maxLength:"4000" doc:"Description for people."`
	EnrichmentChange
}

// Filter narrows a list. The environment comes from the scope.
type Filter struct {
	Type        string
	Skip, Limit int64
}

// Page is one page of a list, by id.
type Page struct {
	Resources []Resource `json:"resources" doc:"The page, sorted by id."`
	Total     int64      `json:"total" doc:"Number that match the filters."`
	Warnings  []Warning  `json:"warnings,omitempty" doc:"Effects of resources of the page that you may not expect."`
}

// Offences returns the errors in a draft that its schema cannot express.
func (d Draft) Offences() []fault.Detail {
	_, offences := d.resource().normal()
	return offences
}

// resource is the resource that the draft describes.
func (d Draft) resource() Resource {
	return Resource{
		Name: d.Name, Type: d.Type, Path: d.Path, PathMatching: d.PathMatching, Methods: d.Methods, OriginalHost: d.OriginalHost, URL: d.URL,
		Attributes: d.Attributes, Description: d.Description, Enrichment: Enrichment{}.apply(d.EnrichmentChange),
	}
}

// Offences returns the errors in the sent members that their schemas cannot express.
func (c Change) Offences() []fault.Detail {
	_, offences := Resource{Name: "any", Type: "any", Path: "/"}.apply(c).normal()
	return c.withoutStored(offences)
}

// apply returns r with the sent members of c.
func (r Resource) apply(c Change) Resource {
	patch.Assign(&r.Name, c.Name)
	patch.Assign(&r.Type, c.Type)
	patch.Assign(&r.Path, c.Path)
	patch.Assign(&r.PathMatching, c.PathMatching)
	c.Methods.Apply(&r.Methods)
	c.OriginalHost.Apply(&r.OriginalHost)
	c.URL.Apply(&r.URL)
	c.Attributes.Apply(&r.Attributes)
	c.Description.Apply(&r.Description)
	r.Enrichment = r.Enrichment.apply(c.EnrichmentChange)
	return r
}
