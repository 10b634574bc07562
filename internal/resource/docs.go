package resource

import (
	"context"
	"fmt"

	"github.com/gatehouse-dev/gatehouse/internal/classify"
	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/rego/target"
	"github.com/gatehouse-dev/gatehouse/internal/rego/value"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

// Docs returns the resources of an environment as the engine sees them, sorted by id: what
// the matcher needs, and the document for data.resources.<id> and input.resource. Empty
// members are absent.
func Docs(ctx context.Context, tx *db.Tx, env scope.Env) ([]target.Resource, error) {
	rs, err := all(ctx, tx, env)
	if err != nil {
		return nil, err
	}
	out := make([]target.Resource, 0, len(rs))
	for _, r := range rs {
		d, err := r.Doc()
		if err != nil {
			return nil, fmt.Errorf("resource %d: %w", r.ID, err)
		}
		out = append(out, d)
	}
	return out, nil
}

// Doc is the resource as the engine sees it. E-mail addresses in business_context are
// removed, because the document goes to every bouncer.
func (r Resource) Doc() (target.Resource, error) {
	m := r.Enrichment.members()
	if r.BusinessContext != "" {
		m["business_context"] = classify.Redact(r.BusinessContext)
	}
	m["id"], m["name"], m["type"], m["environment"], m["path"] = r.ID, r.Name, r.Type, string(r.Environment), r.Path
	for name, v := range map[string]string{"description": r.Description, "original_host": r.OriginalHost, "url": r.URL} {
		if v != "" {
			m[name] = v
		}
	}
	for name, v := range map[string][]string{"methods": r.Methods, "tags": r.Classification.Tags} {
		if len(v) > 0 {
			m[name] = v
		}
	}
	if len(r.Attributes) > 0 {
		m["attributes"] = r.Attributes
	}
	doc, err := value.FromAny(m)
	if err != nil {
		return target.Resource{}, err
	}
	matching := ""
	if r.PathMatching == target.PathExact {
		matching = target.PathExact
	}
	return target.Resource{
		ID: r.ID, Name: r.Name, Type: r.Type, Host: r.host(), Path: r.Path, PathMatching: matching, Methods: r.Methods, Discovered: r.AutoDiscovered,
		AuditLevel: r.AuditLevel, Tags: r.ComplianceTags, Doc: doc,
	}, nil
}
