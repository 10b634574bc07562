package document

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/gatehouse-dev/gatehouse/internal/fault"
)

// The bounds on documents.
const (
	// maxText is the largest size of a text in bytes.
	maxText = 2048
	// MaxMembers is how many members a group may have. maxValues is how many values any other
	// attribute may have.
	MaxMembers = 10_000
	maxValues  = 100
)

func badValue(format string, args ...any) error {
	return fault.Newf(fault.BadRequest, "invalid_value", format, args...)
}

// Normal returns a document that a client sent with the names and types of the schema. It leaves
// out unknown and read-only attributes (RFC 7644 section 3.3). Fault: invalid_value.
func Normal(k *Kind, sent map[string]any) (map[string]any, error) {
	out := map[string]any{}
	for name, v := range sent {
		if e := k.extension(name); e != nil {
			part, err := normalObject(e.Attributes, v, e.ID)
			if err != nil {
				return nil, err
			}
			if len(part) > 0 {
				out[e.ID] = part
			}
			continue
		}
		_, a := k.find("", name)
		if a == nil || a.Mutability == readOnly {
			continue
		}
		v, err := normal(a, v)
		if err != nil {
			return nil, err
		}
		if v != nil {
			out[a.Name] = v
		}
	}
	return out, nil
}

// normal returns the value of an attribute in its stored form; nil: there is none.
func normal(a *Attribute, v any) (any, error) {
	if !a.MultiValued {
		return single(a, v)
	}
	list := listOf(v)
	if most := listBound(a); len(list) > most {
		return nil, badValue("%s may have at most %d values", a.Name, most)
	}
	out := make([]any, 0, len(list))
	for _, v := range list {
		element, err := single(a, v)
		if err != nil {
			return nil, err
		}
		if element != nil {
			out = append(out, element)
		}
	}
	if len(out) == 0 {
		return nil, nil
	}
	onePrimary(out, -1)
	return out, nil
}

// listBound returns how many values an attribute may have.
func listBound(a *Attribute) int {
	if a.Name == "members" {
		return MaxMembers
	}
	return maxValues
}

// single returns one value of an attribute in its stored form; nil: there is none.
func single(a *Attribute, v any) (any, error) {
	if v == nil {
		return nil, nil
	}
	switch a.Type {
	case typeComplex:
		if s, ok := v.(string); ok && a.sub("value") != nil { // Entra ID sends only the id of a manager
			v = map[string]any{"value": s}
		}
		m, err := normalObject(a.SubAttributes, v, a.Name)
		if err != nil || len(m) == 0 {
			return nil, err
		}
		return m, nil
	case typeBoolean:
		b, ok := boolean(v)
		if !ok {
			return nil, badValue("%s must be true or false", a.Name)
		}
		return b, nil
	}
	s, err := scalar(a, v)
	if err != nil || s == "" {
		return nil, err
	}
	return s, nil
}

// scalar returns the text of a value that must be a text or a number.
func scalar(a *Attribute, v any) (string, error) {
	var s string
	switch v := v.(type) {
	case string:
		s = v
	case float64, int64, int, json.Number:
		s = fmt.Sprint(v)
	default:
		return "", badValue("%s must be text", a.Name)
	}
	if len(s) > maxText || !utf8.ValidString(s) || strings.ContainsRune(s, 0) {
		return "", badValue("%s must be text of at most %d bytes", a.Name, maxText)
	}
	if a.Type == typeTime && s != "" {
		if _, err := time.Parse(time.RFC3339, s); err != nil {
			return "", badValue("%s must be a time", a.Name)
		}
	}
	return s, nil
}

// normalObject returns an object in its stored form, with only the attributes that clients may
// write.
func normalObject(list []Attribute, v any, what string) (map[string]any, error) {
	if v == nil {
		return nil, nil
	}
	m, ok := v.(map[string]any)
	if !ok {
		return nil, badValue("%s must be an object", what)
	}
	out := map[string]any{}
	for name, v := range m {
		a := attributeOf(list, name)
		if a == nil || a.Mutability == readOnly {
			continue
		}
		n, err := normal(a, v)
		if err != nil {
			return nil, err
		}
		if n != nil {
			out[a.Name] = n
		}
	}
	return out, nil
}

// onePrimary leaves at most one element primary: the one at the index latest if that is primary,
// or else the first primary one.
func onePrimary(list []any, latest int) {
	primary := func(i int) bool {
		m, ok := list[i].(map[string]any)
		return ok && m["primary"] == true
	}
	if latest < 0 || !primary(latest) {
		latest = slices.IndexFunc(list, func(v any) bool { m, ok := v.(map[string]any); return ok && m["primary"] == true })
	}
	for i := range list {
		if i != latest && primary(i) {
			list[i].(map[string]any)["primary"] = false
		}
	}
}

// Clone returns a deep copy of a document.
func Clone(doc map[string]any) map[string]any {
	out := maps.Clone(doc)
	for name, v := range out {
		out[name] = clone(v)
	}
	return out
}

func clone(v any) any {
	switch v := v.(type) {
	case map[string]any:
		return Clone(v)
	case []any:
		out := make([]any, len(v))
		for i := range v {
			out[i] = clone(v[i])
		}
		return out
	}
	return v
}
