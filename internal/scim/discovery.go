package scim

import (
	"github.com/gatehouse-dev/gatehouse/internal/fault"
	"github.com/gatehouse-dev/gatehouse/internal/scim/document"
)

// ListURI is the URI of list responses (RFC 7644 section 8.2). The others are those of the schemas
// of the discovery endpoints (RFC 7643 section 10.4).
const (
	ListURI   = "urn:ietf:params:scim:api:messages:2.0:ListResponse"
	configURI = "urn:ietf:params:scim:schemas:core:2.0:ServiceProviderConfig"
	typeURI   = "urn:ietf:params:scim:schemas:core:2.0:ResourceType"
	schemaURI = "urn:ietf:params:scim:schemas:core:2.0:Schema"
)

// MaxBody is the largest body of a request, in bytes. It fits a group with MaxMembers members.
const MaxBody = 2 << 20

// ProviderConfig returns what the server supports (RFC 7643 section 5).
func (s *Service) ProviderConfig() map[string]any {
	can := func(yes bool) map[string]any { return map[string]any{"supported": yes} }
	return map[string]any{
		"schemas": []any{configURI}, "documentationUri": s.URL + "/api/v1/devdocs/pages/scim",
		"patch": can(true), "changePassword": can(false), "sort": can(false), "etag": can(true),
		"bulk":   map[string]any{"supported": false, "maxOperations": 0, "maxPayloadSize": 0},
		"filter": map[string]any{"supported": true, "maxResults": MaxPage},
		"authenticationSchemes": []any{map[string]any{
			"type": "oauthbearertoken", "name": "Bearer token", "description": "A token of the tenant's directory, sent as Authorization: Bearer", "primary": true,
		}},
		"meta": map[string]any{"resourceType": "ServiceProviderConfig", "location": s.URL + Root + "/ServiceProviderConfig"},
	}
}

// ResourceTypes returns the resource type with a name, or all if name is empty. Fault: NotFound.
func (s *Service) ResourceTypes(name string) ([]map[string]any, error) {
	var out []map[string]any
	for _, k := range []*document.Kind{s.people, s.groups} {
		extensions := []any{}
		for _, e := range k.Extensions {
			extensions = append(extensions, map[string]any{"schema": e.ID, "required": false})
		}
		if name == "" || name == k.Name {
			out = append(out, map[string]any{
				"schemas": []any{typeURI}, "id": k.Name, "name": k.Name, "endpoint": "/" + k.Path, "description": k.Core.Description,
				"schema": k.Core.ID, "schemaExtensions": extensions,
				"meta": map[string]any{"resourceType": "ResourceType", "location": s.URL + Root + "/ResourceTypes/" + k.Name},
			})
		}
	}
	if len(out) == 0 {
		return nil, fault.NotFoundf("there is no such type of resource")
	}
	return out, nil
}

// Schemas returns the schema with a URI, or all if id is empty. Fault: NotFound.
func (s *Service) Schemas(id string) ([]map[string]any, error) {
	var out []map[string]any
	for _, k := range []*document.Kind{s.people, s.groups} {
		for _, schema := range append([]document.Schema{k.Core}, k.Extensions...) {
			if id == "" || id == schema.ID {
				out = append(out, map[string]any{
					"schemas": []any{schemaURI}, "id": schema.ID, "name": schema.Name, "description": schema.Description, "attributes": schema.Attributes,
					"meta": map[string]any{"resourceType": "Schema", "location": s.URL + Root + "/Schemas/" + schema.ID},
				})
			}
		}
	}
	if len(out) == 0 {
		return nil, fault.NotFoundf("there is no such schema")
	}
	return out, nil
}

// Select returns the part of a resource that a request selects.
func (s *Service) Select(r Resource, sel document.Selection) map[string]any {
	k := s.people
	if schemas, ok := r.Document["schemas"].([]any); ok && len(schemas) > 0 && schemas[0] == document.GroupURI {
		k = s.groups
	}
	return sel.Apply(k, r.Document)
}
