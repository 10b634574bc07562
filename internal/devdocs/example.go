package devdocs

import (
	"bytes"
	"encoding/json"
	"maps"
	"slices"
	"strings"
)

// object is a JSON object whose members keep their order.
type object []member

type member struct {
	Name  string
	Value any
}

// MarshalJSON writes the members in their order.
func (o object) MarshalJSON() ([]byte, error) {
	var b bytes.Buffer
	b.WriteByte('{')
	for i, m := range o {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString(compact(m.Name) + ":" + compact(m.Value))
	}
	b.WriteByte('}')
	return b.Bytes(), nil
}

// compact returns a value as JSON on one line. All values come from the document, so encoding does
// not fail.
func compact(v any) string {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	_ = enc.Encode(v)
	return strings.TrimSuffix(b.String(), "\n")
}

// indented returns a value as JSON on several lines.
func indented(v any) string {
	var b bytes.Buffer
	_ = json.Indent(&b, []byte(compact(v)), "", "  ")
	return b.String()
}

// example returns a value that is valid for a schema. If brief is set, it leaves out optional
// members without an example of their own. above are the shared schemas that contain this one. A
// schema that contains itself ends there.
func example(name string, outer *schema, above []string, brief bool) any {
	if outer == nil {
		return object{}
	}
	if outer.name != "" {
		if slices.Contains(above, outer.name) || len(above) > 6 {
			return nil
		}
		above = append(slices.Clone(above), outer.name)
	}
	s := outer.real()
	switch {
	case s == nil:
		return object{}
	case len(outer.Examples) > 0:
		return outer.Examples[0]
	case len(s.Examples) > 0:
		return s.Examples[0]
	case len(s.Enum) > 0:
		return s.Enum[0]
	case s.Default != nil && s.kind() != "array":
		return s.Default
	}
	switch s.kind() {
	case "array":
		return exampleList(name, s, above, brief)
	case "integer", "number":
		return exampleNumber(name, s)
	case "boolean":
		return true
	case "string":
		return exampleText(name, s)
	default:
		return exampleObject(s, above, brief)
	}
}

func exampleList(name string, s *schema, above []string, brief bool) any {
	if s.Items == nil {
		return []any{}
	}
	item := example(strings.TrimSuffix(name, "s"), s.Items, above, brief)
	if item == nil {
		return []any{}
	}
	list := []any{item}
	if s.MinItems != nil {
		for float64(len(list)) < *s.MinItems {
			list = append(list, item)
		}
	}
	return list
}

func exampleObject(s *schema, above []string, brief bool) any {
	out := object{}
	add := func(name string) {
		if v := example(name, s.Properties[name], above, brief); v != nil || slices.Contains(s.Required, name) {
			out = append(out, member{name, v})
		}
	}
	names := slices.Sorted(maps.Keys(s.Properties))
	for _, name := range names {
		if slices.Contains(s.Required, name) {
			add(name)
		}
	}
	for _, name := range names {
		p := s.Properties[name]
		if slices.Contains(s.Required, name) || brief && (p.real() == nil || len(p.real().Examples) == 0) || brief && p.real().ReadOnly {
			continue
		}
		add(name)
	}
	if brief && len(out) == 0 { // all members are optional: show a simple one
		for _, name := range names {
			if p := s.Properties[name].real(); p != nil && !p.ReadOnly && slices.Contains([]string{"string", "boolean", "integer"}, p.kind()) && !slices.Contains(p.Type, "null") {
				add(name)
				break
			}
		}
	}
	if len(s.Properties) == 0 && s.Additional.schema != nil {
		if v := example("", s.Additional.schema, above, brief); v != nil {
			out = append(out, member{"name", v})
		}
	}
	return out
}

func exampleNumber(name string, s *schema) any {
	n := 1.0
	switch {
	case strings.HasSuffix(name, "_ms"):
		n = 0.4
	case strings.HasSuffix(name, "_percent") || strings.HasSuffix(name, "Percentage"):
		n = 12.5
	case strings.HasSuffix(name, "port"):
		n = 8081
	}
	if s.kind() == "integer" {
		n = float64(int64(n))
	}
	if s.Minimum != nil {
		n = max(n, *s.Minimum)
	}
	if s.Maximum != nil {
		n = min(n, *s.Maximum)
	}
	if s.kind() == "integer" {
		return int64(n)
	}
	return n
}

// texts has example strings by the name of the member.
var texts = map[string]string{
	"username": "ada", "password": "correct-horse-battery-9", "email": "ada@example.com", "owner_email": "ada@example.com", "user_id": "ada", "path": "/orders/**",
	"host": "shop.example", "hostname": "shop.example", "department": "payments", "environment": "sandbox", "tenant_id": "default", "tenant": "default",
	"rego_code": "package payments\n\nallow if \"staff\" in input.user.roles", "policy_content": "package payments\n\nallow if \"staff\" in input.user.roles",
	"type": "api", "error": "not_found", "message": "…", "detail": "…", "branch": "main", "commit_hash": "9fceb02d0ae598e95dc970b74767f19372d61af8", "repository_url": "https://git.example.com/payments/controls.git",
	"request_id": "01JD7K9Q", "token": "…", "reason": "…", "ip_address": "203.0.113.9", "method": "GET", "code": "not_found",
}

func exampleText(name string, s *schema) any {
	switch s.Format {
	case "date-time":
		return "2026-11-20T12:00:00Z"
	case "date":
		return "2026-11-20"
	case "uri", "uri-reference", "url":
		return "https://shop.example/"
	case "email":
		return "ada@example.com"
	case "uuid":
		return "01939f0e-7a5c-7c3e-9d0a-5b1f6e2d4c8b"
	}
	text, ok := texts[name]
	switch {
	case ok:
	case strings.HasSuffix(name, "_at"):
		text = "2026-11-20T12:00:00Z"
	case strings.HasSuffix(name, "_id") || name == "id":
		text = "1"
	case strings.HasSuffix(name, "url"):
		text = "https://shop.example/"
	case name == "" || name == "*":
		text = "text"
	default:
		text = strings.ReplaceAll(name, "_", " ")
	}
	if s.MinLength != nil {
		for float64(len(text)) < *s.MinLength {
			text += "x"
		}
	}
	if s.MaxLength != nil && float64(len(text)) > *s.MaxLength {
		text = text[:int(*s.MaxLength)]
	}
	return text
}
