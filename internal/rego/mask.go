package rego

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/gatehouse-dev/gatehouse/internal/rego/value"
)

// maxMaskDepth bounds the nesting of a document that is masked.
const maxMaskDepth = 256

// Redacted stands where a value was redacted.
const Redacted = "[redacted]"

// errNotJSON is the error of an answer that cannot be masked. The answer must
// then not be passed on.
var errNotJSON = errors.New("the document is not JSON")

// maskNode is a step of the mask paths, merged into a tree.
type maskNode struct {
	member map[string]*maskNode
	every  *maskNode
	action string // strategy that applies here; empty: none
}

// ApplyMask hides the values at the paths of rules in a JSON document. A path
// is dotted (user.email) or a JSON pointer (/user/email); `*` is every element
// of an array or member of an object, a number one element. Where two rules
// meet, the stricter counts, and what lies within a hidden value is hidden
// with it.
//
//   - remove takes the member or element out
//   - redact puts "[redacted]" in its place
//   - hash puts the keyed digest of the value (HashKey): of a string's content, else of its text
//   - last4 puts "****" and the last four characters of a string or number
//     longer than that, and redacts all else
//
// A path goes on into a string that holds a document of JSON itself. One that
// begins so and is none is redacted whole: what a path would hide there is not known.
//
// Bytes outside the masks stay as they are. A document that is not JSON is an
// error, never passed through.
func ApplyMask(doc []byte, rules []MaskRule, key HashKey) ([]byte, error) {
	if len(rules) == 0 {
		return doc, nil
	}
	root := &maskNode{}
	for _, r := range rules {
		if err := root.add(r); err != nil {
			return nil, err
		}
	}
	m := masker{src: doc, out: make([]byte, 0, len(doc)+64), key: key}
	if err := m.document([]*maskNode{root}, 0); err != nil {
		return nil, err
	}
	return m.out, nil
}

// document copies a document with the white space around it.
func (m *masker) document(nodes []*maskNode, depth int) error {
	m.space()
	if err := m.value(nodes, depth); err != nil {
		return err
	}
	m.space()
	if m.at != len(m.src) {
		return m.fail()
	}
	return nil
}

// add puts a rule into the tree.
func (n *maskNode) add(r MaskRule) error {
	if strictness(r.Strategy) == 0 {
		return fmt.Errorf("unknown mask strategy %q", r.Strategy)
	}
	segs := maskPath(r.Path)
	if len(segs) == 0 {
		return fmt.Errorf("mask path %q names nothing", r.Path)
	}
	for _, s := range segs {
		if s == "*" {
			if n.every == nil {
				n.every = &maskNode{}
			}
			n = n.every
			continue
		}
		if n.member == nil {
			n.member = map[string]*maskNode{}
		}
		if n.member[s] == nil {
			n.member[s] = &maskNode{}
		}
		n = n.member[s]
	}
	if strictness(r.Strategy) > strictness(n.action) {
		n.action = r.Strategy
	}
	return nil
}

// maskPath splits a dotted path or a JSON pointer.
func maskPath(path string) []string {
	if path == "" {
		return nil
	}
	if path[0] != '/' {
		return strings.Split(path, ".")
	}
	segs := strings.Split(path[1:], "/")
	for i, s := range segs {
		segs[i] = strings.ReplaceAll(strings.ReplaceAll(s, "~1", "/"), "~0", "~")
	}
	return segs
}

// masker copies a document and hides on the way.
type masker struct {
	src []byte
	out []byte
	at  int
	key HashKey
}

func (m *masker) fail() error { return fmt.Errorf("%w: at byte %d", errNotJSON, m.at) }

// space copies white space.
func (m *masker) space() {
	from := m.at
	for m.at < len(m.src) {
		switch m.src[m.at] {
		case ' ', '\t', '\n', '\r':
			m.at++
			continue
		}
		break
	}
	m.out = append(m.out, m.src[from:m.at]...)
}

// value copies one value; nodes are the steps that lead here.
func (m *masker) value(nodes []*maskNode, depth int) error {
	if depth > maxMaskDepth || m.at >= len(m.src) {
		return m.fail()
	}
	switch m.src[m.at] {
	case '{':
		return m.container('}', true, nodes, depth)
	case '[':
		return m.container(']', false, nodes, depth)
	case '"':
		from := m.at
		text, err := m.str()
		if err != nil {
			return err
		}
		if inner, ok := m.inner(text, nodes, depth); ok {
			m.out = value.AppendString(m.out, inner)
			return nil
		}
		m.out = append(m.out, m.src[from:m.at]...)
		return nil
	}
	return m.scalar()
}

// inner is a string that holds a document, masked; false: it stays as it is.
func (m *masker) inner(text string, nodes []*maskNode, depth int) (string, bool) {
	begins := strings.TrimLeft(text, " \t\r\n\ufeff")
	if begins == "" || begins[0] != '{' && begins[0] != '[' || !slices.ContainsFunc(nodes, (*maskNode).goesOn) {
		return "", false
	}
	in := masker{src: []byte(begins), out: make([]byte, 0, len(begins)), key: m.key}
	if err := in.document(nodes, depth+1); err != nil {
		return Redacted, true
	}
	return string(in.out), string(in.out) != begins
}

// goesOn reports whether a path goes on behind this step.
func (n *maskNode) goesOn() bool { return n.every != nil || len(n.member) > 0 }

// scalar copies a number or a word.
func (m *masker) scalar() error {
	from := m.at
	for m.at < len(m.src) && strings.IndexByte(",]} \t\r\n", m.src[m.at]) < 0 {
		m.at++
	}
	if !json.Valid(m.src[from:m.at]) || m.src[from] == '"' {
		m.at = from
		return m.fail()
	}
	m.out = append(m.out, m.src[from:m.at]...)
	return nil
}

// str steps over a string and returns what it says.
func (m *masker) str() (string, error) {
	from := m.at
	plain := true
	for m.at++; m.at < len(m.src); m.at++ {
		switch c := m.src[m.at]; {
		case c == '\\':
			plain = false
			m.at++
		case c == '"':
			m.at++
			raw := m.src[from:m.at]
			if plain && utf8.Valid(raw) {
				return string(raw[1 : len(raw)-1]), nil
			}
			var s string
			if err := json.Unmarshal(raw, &s); err != nil {
				m.at = from
				return "", m.fail()
			}
			return s, nil
		case c < 0x20:
			return "", m.fail()
		}
	}
	return "", m.fail()
}

// container copies an object or array. Members that are removed go with the
// comma before them, or, at the beginning, with the one after.
func (m *masker) container(end byte, object bool, nodes []*maskNode, depth int) error {
	m.out = append(m.out, m.src[m.at])
	m.at++
	m.space()
	if m.at < len(m.src) && m.src[m.at] == end {
		m.out = append(m.out, end)
		m.at++
		return nil
	}
	kept := false
	for i := 0; ; i++ {
		// start is where the output is cut if this member goes: before its comma.
		start := len(m.out)
		if i > 0 {
			if kept {
				m.out = append(m.out, ',')
			}
			m.space()
		}
		removed, err := m.member(object, i, nodes, depth)
		if err != nil {
			return err
		}
		m.space()
		if removed {
			m.out = m.out[:start]
		}
		kept = kept || !removed
		if m.at >= len(m.src) {
			return m.fail()
		}
		c := m.src[m.at]
		if c != ',' && c != end {
			return m.fail()
		}
		m.at++
		if c == end {
			m.out = append(m.out, end)
			return nil
		}
	}
}

// member copies one member or element, hidden where a rule says so.
func (m *masker) member(object bool, i int, nodes []*maskNode, depth int) (removed bool, err error) {
	name := ""
	if object {
		if m.at >= len(m.src) || m.src[m.at] != '"' {
			return false, m.fail()
		}
		from := m.at
		if name, err = m.str(); err != nil {
			return false, err
		}
		m.out = append(m.out, m.src[from:m.at]...)
		m.space()
		if m.at >= len(m.src) || m.src[m.at] != ':' {
			return false, m.fail()
		}
		m.out = append(m.out, ':')
		m.at++
		m.space()
	} else if len(nodes) > 0 {
		name = strconv.Itoa(i)
	}
	var next []*maskNode
	action := ""
	for _, n := range nodes {
		for _, hit := range [...]*maskNode{n.member[name], n.every} {
			if hit == nil {
				continue
			}
			next = append(next, hit)
			if strictness(hit.action) > strictness(action) {
				action = hit.action
			}
		}
	}
	from, start := m.at, len(m.out)
	if err := m.value(next, depth+1); err != nil {
		return false, err
	}
	switch action {
	case "":
		return false, nil
	case StrategyRemove:
		return true, nil
	}
	m.out = append(m.out[:start], m.hide(m.src[from:m.at], action)...)
	return false, nil
}

// hide is the JSON that stands for a value under a strategy.
func (m *masker) hide(raw []byte, strategy string) []byte {
	text, scalar := string(raw), false
	switch raw[0] {
	case '"':
		var s string
		if json.Unmarshal(raw, &s) == nil {
			text, scalar = s, true
		}
	case '{', '[', 't', 'f', 'n':
	default:
		scalar = true
	}
	out := Redacted
	switch {
	case strategy == StrategyHash:
		out = m.key.Hash([]byte(text))
	case strategy == StrategyLast4 && scalar:
		out = "****"
		if r := []rune(text); len(r) > 4 {
			out += string(r[len(r)-4:])
		}
	}
	b, _ := json.Marshal(out) // a string always has a JSON form
	return b
}
