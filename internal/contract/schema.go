package contract

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// deref follows a reference. name is the name of the shared schema; empty if s is no reference.
func deref(doc Document, s any) (schema any, name string) {
	ref, ok := lookup(s, "$ref").(string)
	if !ok {
		return s, ""
	}
	at := strings.Split(strings.TrimPrefix(ref, "#/"), "/")
	return lookup(doc, at...), at[len(at)-1]
}

// schema compares an old schema with a new one. sent means that clients send such values.
func (c *comparison) schema(where string, was, is any, sent bool) {
	if was == nil {
		return
	}
	pair := fmt.Sprint(lookup(was, "$ref"), lookup(is, "$ref"), sent)
	if lookup(was, "$ref") != nil {
		if c.seen[pair] {
			return
		}
		c.seen[pair] = true
	}
	was, _ = deref(c.was, was)
	is, name := deref(c.is, is)
	if name != "" {
		where = name // it is the same in all operations that use it
	}
	if is == nil {
		c.add(Change{Where: where, Kind: SchemaRemoved})
		return
	}
	c.types(where, typesOf(was), typesOf(is), sent)
	c.enums(where, lookup(was, "enum"), lookup(is, "enum"), sent)
	if lookup(was, "items") != nil {
		c.schema(where+"[]", lookup(was, "items"), lookup(is, "items"), sent)
	}
	c.members(where, was, is, sent)
	if sent {
		c.limits(where, was, is)
	}
}

func (c *comparison) members(where string, was, is any, sent bool) {
	old, _ := lookup(was, "properties").(map[string]any)
	now, _ := lookup(is, "properties").(map[string]any)
	for _, name := range slices.Sorted(maps.Keys(old)) {
		if now[name] == nil {
			c.add(Change{Where: where, Kind: MemberRemoved, What: name})
			continue
		}
		c.schema(where+"."+name, old[name], now[name], sent)
	}
	mustWas, _ := lookup(was, "required").([]any)
	mustIs, _ := lookup(is, "required").([]any)
	for name := range now {
		if old[name] == nil && !(sent && slices.Contains(mustIs, any(name))) {
			c.add(Change{Where: where, Kind: MemberAdded, What: name})
		}
	}
	if sent {
		for _, name := range mustIs {
			if !slices.Contains(mustWas, name) {
				c.add(Change{Where: where, Kind: MemberRequired, What: fmt.Sprint(name)})
			}
		}
		return
	}
	for _, name := range mustWas {
		if !slices.Contains(mustIs, name) {
			c.add(Change{Where: where, Kind: MemberOptional, What: fmt.Sprint(name)})
		}
	}
}

func (c *comparison) limits(where string, was, is any) {
	for _, limit := range []string{"maxLength", "maxItems", "maximum"} {
		c.limit(where, limit, lookup(was, limit), lookup(is, limit), func(a, b float64) bool { return b < a })
	}
	for _, limit := range []string{"minLength", "minItems", "minimum"} {
		c.limit(where, limit, lookup(was, limit), lookup(is, limit), func(a, b float64) bool { return b > a })
	}
}

func (c *comparison) limit(where, name string, was, is any, narrower func(a, b float64) bool) {
	b, ok := is.(float64)
	if !ok {
		return
	}
	a, had := was.(float64)
	if had && !narrower(a, b) {
		return
	}
	change := Change{Where: where, Kind: Narrower, What: name, To: fmt.Sprint(b)}
	if had {
		change.From = fmt.Sprint(a)
	}
	c.add(change)
}

func typesOf(s any) []any {
	switch t := lookup(s, "type").(type) {
	case string:
		return []any{t}
	case []any:
		return t
	default:
		return nil
	}
}

func (c *comparison) types(where string, was, is []any, sent bool) {
	narrow, wide := was, is
	if !sent {
		narrow, wide = is, was
	}
	if len(wide) == 0 {
		return
	}
	changed := len(narrow) == 0
	for _, t := range narrow {
		if !slices.Contains(wide, t) && !(t == "integer" && slices.Contains(wide, "number")) {
			changed = true
		}
	}
	if changed {
		c.add(Change{Where: where, Kind: TypeChanged, From: joined(was), To: joined(is)})
	}
}

func joined(list []any) string {
	var out []string
	for _, v := range list {
		out = append(out, fmt.Sprint(v))
	}
	return strings.Join(out, ", ")
}

func (c *comparison) enums(where string, was, is any, sent bool) {
	old, _ := was.([]any)
	now, _ := is.([]any)
	if sent && old == nil && now != nil {
		c.add(Change{Where: where, Kind: ValuesClosed, To: joined(now)})
	}
	if now == nil {
		return
	}
	for _, v := range old {
		if !slices.Contains(now, v) {
			c.add(Change{Where: where, Kind: ValueRemoved, What: fmt.Sprint(v)})
		}
	}
	if old == nil {
		return
	}
	for _, v := range now {
		if !slices.Contains(old, v) {
			c.add(Change{Where: where, Kind: ValueAdded, What: fmt.Sprint(v)})
		}
	}
}
