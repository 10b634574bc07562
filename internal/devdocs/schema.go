package devdocs

import (
	"encoding/json"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// schema is a JSON schema with the keywords that the document uses.
type schema struct {
	Ref         string             `json:"$ref"`
	Type        types              `json:"type"`
	Format      string             `json:"format"`
	Description string             `json:"description"`
	Enum        []any              `json:"enum"`
	Default     any                `json:"default"`
	Examples    []any              `json:"examples"`
	Properties  map[string]*schema `json:"properties"`
	Required    []string           `json:"required"`
	Items       *schema            `json:"items"`
	Additional  additional         `json:"additionalProperties"`
	Pattern     string             `json:"pattern"`
	MinLength   *float64           `json:"minLength"`
	MaxLength   *float64           `json:"maxLength"`
	MinItems    *float64           `json:"minItems"`
	MaxItems    *float64           `json:"maxItems"`
	Minimum     *float64           `json:"minimum"`
	Maximum     *float64           `json:"maximum"`
	Unique      bool               `json:"uniqueItems"`
	ReadOnly    bool               `json:"readOnly"`
	WriteOnly   bool               `json:"writeOnly"`
	Deprecated  bool               `json:"deprecated"`

	name   string  // name of the shared schema in Ref
	target *schema // the shared schema
}

// types is one type or several.
type types []string

// UnmarshalJSON reads a string or a list of strings.
func (t *types) UnmarshalJSON(b []byte) error {
	var one string
	if json.Unmarshal(b, &one) == nil {
		*t = types{one}
		return nil
	}
	var all []string
	err := json.Unmarshal(b, &all)
	*t = all
	return err
}

// additional is the value of additionalProperties. open means that other members are allowed,
// schema is their schema if they have one.
type additional struct {
	open   bool
	schema *schema
}

// UnmarshalJSON reads a boolean or a schema.
func (a *additional) UnmarshalJSON(b []byte) error {
	if json.Unmarshal(b, &a.open) == nil {
		return nil
	}
	a.open, a.schema = true, new(schema)
	return json.Unmarshal(b, a.schema)
}

// real returns the schema to which s refers, or s itself.
func (s *schema) real() *schema {
	for range 8 {
		if s == nil || s.target == nil {
			return s
		}
		s = s.target
	}
	return s
}

// kind returns the first type that is not null.
func (s *schema) kind() string {
	for _, t := range s.Type {
		if t != "null" {
			return t
		}
	}
	return ""
}

// field is one member of a body, or a parameter, as the pages show it.
type field struct {
	Name        string
	Type        string // as on the pages: string, integer[], object
	Nullable    bool
	Required    bool
	ReadOnly    bool
	WriteOnly   bool
	Deprecated  bool
	Description string
	Facts       []fact
	Members     []field
	// Again is the name of the schema if it contains itself. The members are then not repeated.
	Again string
}

// fact is one limit of a field. Name is a key of the words (fact.<name>).
type fact struct {
	Name   string
	Values []string
}

// fieldsOf returns the members of an object, or of the items of a list. above are the shared
// schemas that contain it.
func fieldsOf(s *schema, above []string) []field {
	if s != nil && s.name != "" {
		above = append(slices.Clone(above), s.name)
	}
	s = s.real()
	if s == nil {
		return nil
	}
	if s.Items != nil {
		return fieldsOf(s.Items, above)
	}
	var out []field
	for _, name := range slices.Sorted(maps.Keys(s.Properties)) {
		out = append(out, fieldOf(name, s.Properties[name], slices.Contains(s.Required, name), above))
	}
	slices.SortStableFunc(out, func(a, b field) int { return less(a.Required, b.Required) })
	if s.Additional.schema != nil {
		out = append(out, fieldOf("*", s.Additional.schema, false, above))
	}
	return out
}

func fieldOf(name string, outer *schema, required bool, above []string) field {
	f := field{Name: name, Required: required}
	s := outer.real()
	if s == nil {
		return f
	}
	f.Type, f.Nullable = typeName(s), slices.Contains(s.Type, "null")
	f.ReadOnly, f.WriteOnly, f.Deprecated = s.ReadOnly, s.WriteOnly, s.Deprecated
	if f.Description = outer.Description; f.Description == "" {
		f.Description = s.Description
	}
	f.Facts = facts(s)
	inner := outer
	for inner.real().Items != nil {
		inner = inner.real().Items
	}
	if inner != outer && inner.real() != nil {
		f.Facts = append(f.Facts, facts(inner.real())...)
	}
	if inner.name != "" && slices.Contains(above, inner.name) {
		f.Again = inner.name
		return f
	}
	f.Members = fieldsOf(inner, above)
	return f
}

// typeName returns the type as on the pages, such as string, integer[], object or any.
func typeName(s *schema) string {
	s = s.real()
	if s == nil {
		return "any"
	}
	switch kind := s.kind(); {
	case kind == "array" || s.Items != nil:
		if s.Items == nil {
			return "any[]"
		}
		return typeName(s.Items) + "[]"
	case kind == "" && len(s.Properties) > 0:
		return "object"
	case kind == "":
		return "any"
	default:
		return kind
	}
}

func facts(s *schema) []fact {
	var out []fact
	add := func(name string, values ...string) { out = append(out, fact{name, values}) }
	if len(s.Enum) > 0 {
		var values []string
		for _, v := range s.Enum {
			values = append(values, plain(v))
		}
		add("enum", values...)
	}
	if s.Format != "" && s.Format != "int64" && s.Format != "double" && s.Format != "name" {
		add("format", s.Format)
	}
	if s.Default != nil {
		add("default", plain(s.Default))
	}
	for _, limit := range []struct {
		name  string
		value *float64
	}{
		{"minimum", s.Minimum}, {"maximum", s.Maximum}, {"min_length", s.MinLength}, {"max_length", s.MaxLength}, {"min_items", s.MinItems}, {"max_items", s.MaxItems},
	} {
		if limit.value != nil {
			add(limit.name, strconv.FormatFloat(*limit.value, 'f', -1, 64))
		}
	}
	if s.Pattern != "" {
		add("pattern", s.Pattern)
	}
	if s.Unique {
		add("unique")
	}
	if len(s.Properties) == 0 && s.kind() == "object" && s.Additional.open && s.Additional.schema == nil {
		add("open")
	}
	return out
}

// plain returns a value as text: a string unchanged, all others as JSON.
func plain(v any) string {
	if s, ok := v.(string); ok {
		return s
	}
	return strings.TrimSpace(compact(v))
}
