package redact

import "github.com/gatehouse-dev/gatehouse/internal/rego/value"

// AppendValue appends v, which was decoded from JSON, as JSON without secrets. The result is that
// of JSON for v's text, in one pass. Values nested deeper than JSON reads are null.
func AppendValue(dst []byte, v value.Value) []byte { return appendValue(dst, v, 0) }

// AppendMember appends `"name":v`, redacted like a member of an object, or nothing if the member
// must be removed. It puts sep first, unless sep is 0.
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
	if !isCommon(name) {
		var buf [64]byte
		folded := foldName(buf[:0], name)
		if isPersonal(folded) {
			return dst
		}
		hidden = isSecret(folded)
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

// isCommon reports whether name is common in inputs and not a secret, so that it need not be folded.
// TestUsualNames compares it with the rule.
func isCommon(name string) bool {
	switch name {
	case "id", "email", "name", "type", "roles", "groups", "attributes", "department",
		"method", "path", "host", "query", "headers", "ip_address", "timestamp", "request_id",
		"request", "mcp", "llm", "usage":
		return true
	}
	return false
}
