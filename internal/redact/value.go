package redact

import "github.com/gatehouse-dev/gatehouse/internal/rego/value"

// AppendValue appends v, a value that was decoded from JSON, as JSON without what must
// never be logged: what JSON makes of v's text, in one pass. What lies deeper than
// JSON reads is null.
func AppendValue(dst []byte, v value.Value) []byte { return appendValue(dst, v, 0) }

// AppendMember appends `"name":v` as AppendValue does of an object that has it as a
// member; nothing where the member must go. sep, if not 0, stands before it.
func AppendMember(dst []byte, sep byte, name string, v value.Value) []byte {
	return appendMember(dst, sep, name, v, 1)
}

func appendValue(dst []byte, v value.Value, depth int) []byte {
	switch k := v.Kind(); {
	case depth > maxDepth:
		return append(dst, "null"...)
	case k == value.ObjectKind:
		dst = append(dst, '{')
		var sep byte
		v.Each(func(name string, inner value.Value) bool {
			before := len(dst)
			if dst = appendMember(dst, sep, name, inner, depth+1); len(dst) > before {
				sep = ','
			}
			return true
		})
		return append(dst, '}')
	case k == value.ArrayKind:
		dst = append(dst, '[')
		for i, e := range v.Elems() {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = appendValue(dst, e, depth+1)
		}
		return append(dst, ']')
	default:
		return v.AppendJSON(dst)
	}
}

func appendMember(dst []byte, sep byte, name string, v value.Value, depth int) []byte {
	var hidden bool
	if !usual(name) {
		var buf [64]byte
		folded := foldName(buf[:0], name)
		if personal(folded) {
			return dst
		}
		hidden = secret(folded)
	}
	if sep != 0 {
		dst = append(dst, sep)
	}
	dst = append(value.AppendString(dst, name), ':')
	if k := v.Kind(); k != value.BoolKind && k != value.NullKind && hidden {
		return append(dst, redacted...)
	}
	return appendValue(dst, v, depth)
}

// usual reports names that any input has, and that are no secrets: they need not be
// folded. TestUsualNames holds them against the rule.
func usual(name string) bool {
	switch name {
	case "id", "email", "name", "type", "roles", "groups", "attributes", "department",
		"method", "path", "host", "query", "headers", "ip_address", "timestamp", "request_id",
		"request", "mcp", "llm", "usage":
		return true
	}
	return false
}
