package mcp

import (
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/gatehouse-dev/gatehouse/internal/rego/value"
)

// Limits on what is kept of one tool's schema. A tool that declares more is treated like one whose
// schema is unknown.
const (
	maxParams     = 64
	maxParamBytes = 4096
	maxParamDepth = 16
)

// Param is an argument of a tool that clients repeat in a header, because the tool's schema asks
// for it with x-mcp-header (MCP 2026-07-28, streamable HTTP, custom headers from tool parameters).
type Param struct {
	// Header is the part of the name after Mcp-Param-, in lower case.
	Header string
	// Path leads to the argument, through members of objects.
	Path []string
}

// Equal reports whether p and q are the same declaration.
func (p Param) Equal(q Param) bool { return p.Header == q.Header && slices.Equal(p.Path, q.Path) }

// paramsOf reads a tool's input schema. A schema with an invalid declaration declares nothing,
// because clients ignore such a tool.
func paramsOf(schema value.Value) []Param {
	c := collector{seen: map[string]bool{}}
	if !c.properties(schema, nil) {
		return nil
	}
	return c.found
}

type collector struct {
	found []Param
	seen  map[string]bool
	bytes int
}

// properties visits the members that are reachable through `properties` alone. It returns false if
// a declaration is invalid or if there are too many.
func (c *collector) properties(schema value.Value, path []string) bool {
	if len(path) > maxParamDepth {
		return false
	}
	valid := true
	schema.Get("properties").Each(func(name string, sub value.Value) bool {
		at := append(append(make([]string, 0, len(path)+1), path...), name)
		if h := sub.Get("x-mcp-header"); h.Defined() {
			valid = c.add(sub, h, at)
		}
		valid = valid && c.properties(sub, at)
		return valid
	})
	return valid
}

func (c *collector) add(sub, header value.Value, path []string) bool {
	name, ok := header.Str()
	kind, _ := sub.Get("type").Str()
	name = strings.ToLower(name)
	if !ok || !isToken(name) || c.seen[name] || kind != "string" && kind != "integer" && kind != "boolean" {
		return false
	}
	c.seen[name] = true
	p := Param{strings.Clone(name), make([]string, len(path))}
	c.bytes += len(name)
	for i, step := range path {
		p.Path[i] = strings.Clone(step) // do not keep the whole list in memory
		c.bytes += len(step)
	}
	c.found = append(c.found, p)
	return len(c.found) <= maxParams && c.bytes <= maxParamBytes
}

// isToken reports whether a text may be part of a field name (RFC 9110 section 5.6.2).
func isToken(s string) bool {
	for i := range len(s) {
		if b := s[i]; (b < 'a' || b > 'z') && (b < '0' || b > '9') && !strings.ContainsRune("!#$%&'*+-.^_`|~", rune(b)) {
			return false
		}
	}
	return s != ""
}

// compareParams compares Mcp-Param-* with the arguments of a call. It returns what is wrong, or "". A
// field that the tool's schema declares must equal its argument, and must be absent if the argument
// is absent or null. needed means that the field is mandatory if the argument is present. A field
// that no known schema declares must equal some argument, because a value that no argument has is
// wrong in any case.
func (h Headers) compareParams(m *Message, needed bool) string {
	for name, text := range h.Params {
		if _, ok := plain(text); !ok {
			return "Mcp-Param-" + name + " cannot be read"
		}
	}
	if m.Method != "tools/call" {
		return ""
	}
	declared := map[string]bool{}
	for _, p := range h.Declared[m.Tool] {
		declared[p.Header] = true
		arg := m.Arguments
		for _, step := range p.Path {
			arg = arg.Get(step)
		}
		text, given := h.Params[p.Header]
		said, _ := plain(text)
		switch absent := !arg.Defined() || arg.IsNull(); {
		case given && (absent || !equals(arg, said)), !given && !absent && needed && fitsHeader(arg):
			return "Mcp-Param-" + p.Header + " differs from the message"
		}
	}
	for name, text := range h.Params {
		if said, _ := plain(text); !declared[name] && !anyArgumentEquals(m.Arguments, said) {
			return "Mcp-Param-" + name + " differs from the message"
		}
	}
	return ""
}

// anyArgumentEquals reports whether some argument has this value, in the form of a header.
func anyArgumentEquals(args value.Value, text string) bool {
	if args.Kind() != value.ObjectKind {
		return equals(args, text)
	}
	found := false
	args.Each(func(_ string, v value.Value) bool {
		found = anyArgumentEquals(v, text)
		return !found
	})
	return found
}

// equals compares an argument with the text of a header. Numbers are compared by value.
func equals(arg value.Value, text string) bool {
	switch arg.Kind() {
	case value.StringKind:
		s, _ := arg.Str()
		return s == text
	case value.BoolKind:
		return string(arg.AppendJSON(nil)) == text
	case value.NumberKind: // 1.0 is 1 in a header
		was := string(arg.AppendJSON(nil))
		if was == text {
			return true
		}
		f, err := strconv.ParseFloat(was, 64)
		g, bad := strconv.ParseFloat(text, 64)
		return err == nil && bad == nil && f == g && math.Abs(f) < 1<<53 && plainNumber(text)
	}
	return false
}

// plainNumber reports whether s has only the characters of a plain decimal number, unlike 0x1p4,
// inf or 1_0, which Go parses too.
func plainNumber(s string) bool {
	return s != "" && strings.Trim(s, "-.0123456789") == ""
}

// fitsHeader reports whether a client can write the argument into a header: strings, booleans and
// integers that all clients read alike.
func fitsHeader(arg value.Value) bool {
	switch arg.Kind() {
	case value.StringKind:
		return arg.Len() <= maxParamBytes // a longer one may exceed the server's limit for headers
	case value.BoolKind:
		return true
	case value.NumberKind:
		f, err := strconv.ParseFloat(string(arg.AppendJSON(nil)), 64)
		return err == nil && f == math.Trunc(f) && math.Abs(f) < 1<<53
	}
	return false
}
