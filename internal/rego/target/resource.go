// Package target says what a request may be for: resources, and the paths and host names that find
// them. It does no I/O, and does not depend on the evaluator.
package target

import "github.com/gatehouse-dev/gatehouse/internal/rego/value"

// Resource is the part of a registered resource that matching and decisions need.
type Resource struct {
	ID   int64  `json:"id"`
	Name string `json:"name"`
	Type string `json:"type"`
	// Host restricts the resource to one host, with or without a port; empty means any host.
	Host string `json:"host,omitempty"`
	// Path is a pattern: `*` or `{name}` matches one segment, `**` at the end matches the rest.
	// An empty pattern matches any path, and requests without a path.
	Path string `json:"path,omitempty"`
	// Methods restrict the HTTP method; empty means any. GET includes HEAD, which is a GET without
	// the response body (RFC 9110, section 9.3.2).
	Methods []string `json:"methods,omitempty"`
	// PathMatching is empty, or PathExact: the application distinguishes spellings of a path that
	// others read as the same.
	PathMatching string `json:"path_matching,omitempty"`
	// Discovered marks a host that a bouncer reported and nobody registered. Until a control is
	// linked to it, resources without a host take precedence over it. Otherwise traffic to a new
	// host would no longer match the resource that protects its path.
	Discovered bool `json:"discovered,omitempty"`
	// AuditLevel and Tags are carried for the audit of decisions.
	AuditLevel string   `json:"audit_level,omitempty"`
	Tags       []string `json:"tags,omitempty"`
	// OwnerEmail is the member owner_email of Doc. Only the resources of a rego.Set have it,
	// because every decision needs it.
	OwnerEmail string `json:"-"`
	// Doc is the object that is merged into input.resource, and that is under data.resources: the
	// resource's fields and enrichment without empty ones.
	Doc value.Value `json:"doc"`
}

// Attributes is the member of Resource.Doc that holds the attributes that the tenant defines.
const Attributes = "attributes"

// RequestAccess is an attribute of a resource, and a custom annotation of a control. If it is true,
// access may be requested after a denial.
const RequestAccess = "request_access"

// PathExact is the PathMatching of a resource that covers only the paths that are spelled like
// its pattern.
const PathExact = "exact"

// Requestable reports whether the attribute request_access of a resource is true.
func (r *Resource) Requestable() bool {
	if r == nil {
		return false
	}
	yes, _ := r.Doc.Get(Attributes).Get(RequestAccess).Bool()
	return yes
}

// WithoutAttributes returns the resource without its attributes.
func (r Resource) WithoutAttributes() *Resource {
	r.Doc = value.Without(r.Doc, Attributes)
	return &r
}
