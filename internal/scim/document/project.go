package document

import (
	"maps"
	"strings"
)

// Selection says which attributes an answer has (RFC 7644 section 3.4.2.5). The zero value means
// all.
type Selection struct {
	// Only names the attributes to return besides those that are always returned; empty: all.
	// Without names those to leave out. Unknown names are ignored.
	Only, Without []string
}

// ParseSelection parses the query parameters attributes and excludedAttributes.
func ParseSelection(attributes, excluded string) Selection {
	return Selection{Only: names(attributes), Without: names(excluded)}
}

func names(list string) []string {
	return strings.FieldsFunc(list, func(r rune) bool { return r == ',' || r == ' ' })
}

// Wants reports whether an answer has an attribute of the core schema.
func (s Selection) Wants(k *Kind, attribute string) bool {
	doc := s.Apply(k, map[string]any{attribute: true})
	return len(doc) > 0
}

// Apply returns the selected part of a document. It does not change doc.
func (s Selection) Apply(k *Kind, doc map[string]any) map[string]any {
	if len(s.Only) == 0 && len(s.Without) == 0 {
		return doc
	}
	out := maps.Clone(doc)
	if len(s.Only) > 0 {
		out = map[string]any{}
		for name, v := range doc {
			if _, a := k.find("", name); a != nil && a.Returned == "always" {
				out[name] = v
			}
		}
		for _, name := range s.Only {
			copyAttribute(k, name, doc, out)
		}
	}
	for _, name := range s.Without {
		drop(k, name, out)
	}
	return out
}

// copyAttribute copies an attribute, or a part of one, to an answer.
func copyAttribute(k *Kind, name string, from, to map[string]any) {
	if e := k.extension(name); e != nil {
		if v, ok := from[e.ID]; ok {
			to[e.ID] = v
		}
		return
	}
	r, ok := k.resolve(name)
	if !ok {
		return
	}
	source, target := r.container(from), to
	v, ok := source[r.attribute.Name]
	if !ok {
		return
	}
	if r.extension != "" {
		part, _ := to[r.extension].(map[string]any)
		if part == nil {
			part = map[string]any{}
			to[r.extension] = part
		}
		target = part
	}
	if r.sub == nil {
		target[r.attribute.Name] = v
		return
	}
	target[r.attribute.Name] = merged(target[r.attribute.Name], onlyPart(v, r.sub.Name))
}

// onlyPart returns a value, or each element of a list, with only one of its parts.
func onlyPart(v any, part string) any {
	switch v := v.(type) {
	case []any:
		out := make([]any, len(v))
		for i := range v {
			out[i] = onlyPart(v[i], part)
		}
		return out
	case map[string]any:
		out := map[string]any{}
		if p, ok := v[part]; ok {
			out[part] = p
		}
		return out
	}
	return v
}

// merged joins the parts of one attribute that two names of a selection selected. a and b come from
// the same value.
func merged(a, b any) any {
	switch b := b.(type) {
	case []any:
		before, ok := a.([]any)
		if !ok {
			return b
		}
		for i := range b {
			b[i] = merged(before[i], b[i])
		}
		return b
	case map[string]any:
		before, _ := a.(map[string]any)
		maps.Copy(b, before)
	}
	return b
}

// drop removes an attribute, or a part of one, from an answer.
func drop(k *Kind, name string, doc map[string]any) {
	if e := k.extension(name); e != nil {
		delete(doc, e.ID)
		return
	}
	r, ok := k.resolve(name)
	if !ok || r.attribute.Returned == "always" {
		return
	}
	into := doc
	if r.extension != "" {
		part, _ := doc[r.extension].(map[string]any)
		if part == nil {
			return
		}
		into = maps.Clone(part)
		doc[r.extension] = into
	}
	if r.sub == nil {
		delete(into, r.attribute.Name)
		return
	}
	if v, ok := into[r.attribute.Name]; ok {
		into[r.attribute.Name] = withoutPart(v, r.sub.Name)
	}
}

func withoutPart(v any, part string) any {
	switch v := v.(type) {
	case []any:
		out := make([]any, len(v))
		for i := range v {
			out[i] = withoutPart(v[i], part)
		}
		return out
	case map[string]any:
		out := maps.Clone(v)
		delete(out, part)
		return out
	}
	return v
}
