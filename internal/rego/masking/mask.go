// Package masking hides values in JSON documents by mask rules. It also has the tenant's key with
// which values are hashed.
package masking

import (
	"bytes"
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

// Redacted is the text that replaces a value.
const Redacted = "[redacted]"

// errNotJSON is the error of a document that cannot be masked. The caller must not pass such a
// document on.
var errNotJSON = errors.New("the document is not JSON")

// maskNode is a step of the mask paths, merged into a tree.
type maskNode struct {
	member map[string]*maskNode
	every  *maskNode
	action string // the strategy that applies here; empty if none does
}

// Apply hides the values at the paths of rules in a JSON document. A path is dotted (user.email) or
// a JSON pointer (RFC 6901, /user/email). `*` matches every element of an array or member of an
// object, a number one element. If two rules match a value, the stricter applies. A hidden value
// hides everything in it.
//
//   - remove removes the member or element
//   - redact replaces the value with "[redacted]"
//   - hash replaces the value with its keyed hash (HashKey.Hash), of the content of a string or of
//     the JSON text of another value
//   - last4 replaces a string or number with "****" and its last four characters, or by "****" alone
//     if it is not longer than four characters; it redacts any other value
//
// A path also leads into a string that contains a JSON document. A string that looks like a document
// but is not valid JSON, or whose document is larger than 1 MiB, is redacted as a whole, because it
// is not known what the path would hide in it.
//
// Bytes outside the masks do not change. A document that is not JSON is an error.
func Apply(doc []byte, rules []MaskRule, key HashKey) ([]byte, error) {
	if len(rules) == 0 {
		return doc, nil
	}
	root, err := maskTree(rules)
	if err != nil {
		return nil, err
	}
	m := masker{src: doc, out: make([]byte, 0, len(doc)+64), key: key}
	if err := m.document([]*maskNode{root}, 0); err != nil {
		return nil, err
	}
	return m.out, nil
}

// ApplyTo is Apply for large documents. It passes the result to out in pieces. Besides doc it needs
// memory for one piece, or for the largest value. After an error, the pieces that out got must not
// be passed on.
func ApplyTo(doc []byte, rules []MaskRule, key HashKey, out func([]byte) error) error {
	root, err := maskTree(rules)
	if err != nil {
		return err
	}
	m := masker{src: doc, key: key, sink: out}
	if err := m.document([]*maskNode{root}, 0); err != nil {
		return err
	}
	return m.flush(0)
}

// maskTree merges the paths of rules into a tree.
func maskTree(rules []MaskRule) (*maskNode, error) {
	root := &maskNode{}
	for _, r := range rules {
		if err := root.add(r); err != nil {
			return nil, err
		}
	}
	return root, nil
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
	if Strictness(r.Strategy) == 0 {
		return fmt.Errorf("unknown mask strategy %q", r.Strategy)
	}
	segs := maskPath(r.Path)
	if len(segs) == 0 {
		return fmt.Errorf("mask path %q is empty", r.Path)
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
	if Strictness(r.Strategy) > Strictness(n.action) {
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

// masker copies a document and hides values in the copy.
type masker struct {
	src []byte
	out []byte
	at  int
	key HashKey
	// hiding counts the hidden values around m.at. While it is not 0, nothing is copied.
	hiding int
	// sink takes the output in pieces. If it is nil, out has all of the output.
	sink func([]byte) error
}

// maskPiece is the size in bytes from which a piece of the output is passed to sink.
const maskPiece = 64 << 10

// put appends to the output, except while a value is hidden.
func (m *masker) put(p ...byte) {
	if m.hiding == 0 {
		m.out = append(m.out, p...)
	}
}

// flush passes the output to sink if it has at least this many bytes. The caller can no longer
// shorten that output.
func (m *masker) flush(least int) error {
	if m.sink == nil || m.hiding > 0 || len(m.out) < least || len(m.out) == 0 {
		return nil
	}
	err := m.sink(m.out)
	m.out = m.out[:0]
	return err
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
	m.put(m.src[from:m.at]...)
}

// value copies one value; nodes are the nodes of the tree that match its path.
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
		if err := m.skip(); err != nil {
			return err
		}
		raw := m.src[from:m.at]
		if slices.ContainsFunc(nodes, (*maskNode).continues) {
			if inner, ok := m.inner(raw, nodes, depth); ok {
				m.out = value.AppendString(m.out, inner)
				return nil
			}
		}
		m.put(raw...)
		return nil
	}
	return m.scalar()
}

// maxInnerDocument is the size in bytes of the largest document in a string that is masked.
const maxInnerDocument = 1 << 20

// inner masks the document in a string. It returns false if the string stays as it is.
func (m *masker) inner(raw []byte, nodes []*maskNode, depth int) (string, bool) {
	begins := strings.TrimLeft(unquote(raw), " \t\r\n\ufeff")
	first := strings.TrimLeft(begins, "\"\\ \t\r\n\ufeff") // the document may be quoted again
	if first == "" || first[0] != '{' && first[0] != '[' {
		return "", false
	}
	if len(begins) > maxInnerDocument {
		return Redacted, true
	}
	in := masker{src: []byte(begins), out: make([]byte, 0, len(begins)), key: m.key}
	if err := in.document(nodes, depth+1); err != nil {
		return Redacted, true
	}
	return string(in.out), string(in.out) != begins
}

// continues reports whether a path continues after this node.
func (n *maskNode) continues() bool { return n.every != nil || len(n.member) > 0 }

// scalar copies a number, true, false or null.
func (m *masker) scalar() error {
	from := m.at
	for m.at < len(m.src) && strings.IndexByte(",]} \t\r\n", m.src[m.at]) < 0 {
		m.at++
	}
	if !json.Valid(m.src[from:m.at]) || m.src[from] == '"' {
		m.at = from
		return m.fail()
	}
	m.put(m.src[from:m.at]...)
	return nil
}

// unquote returns the content of a JSON string that skip accepted.
func unquote(raw []byte) string {
	if bytes.IndexByte(raw, '\\') < 0 && utf8.Valid(raw) {
		return string(raw[1 : len(raw)-1])
	}
	var s string
	_ = json.Unmarshal(raw, &s) // skip has checked it
	return s
}

// skip steps over a string.
func (m *masker) skip() error {
	from := m.at
	plain := true
	for m.at++; m.at < len(m.src); m.at++ {
		switch c := m.src[m.at]; {
		case c == '\\':
			plain = false
			m.at++
		case c == '"':
			m.at++
			if !plain && !json.Valid(m.src[from:m.at]) {
				m.at = from
				return m.fail()
			}
			return nil
		case c < 0x20:
			return m.fail()
		}
	}
	return m.fail()
}

// container copies an object or array. Removing a member also removes the comma before it, or, if no
// member was kept before it, the comma after it.
func (m *masker) container(end byte, object bool, nodes []*maskNode, depth int) error {
	m.put(m.src[m.at])
	m.at++
	m.space()
	if m.at < len(m.src) && m.src[m.at] == end {
		m.put(end)
		m.at++
		return nil
	}
	kept := false
	for i := 0; ; i++ {
		// start is where the output is cut if this member is removed: before its comma.
		start := len(m.out)
		if i > 0 {
			if kept {
				m.put(',')
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
		} else if err := m.flush(maskPiece); err != nil {
			return err
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
			m.put(end)
			return nil
		}
	}
}

// member copies one member or element. It hides the value if a rule matches it.
func (m *masker) member(object bool, i int, nodes []*maskNode, depth int) (removed bool, err error) {
	name := ""
	if object {
		if m.at >= len(m.src) || m.src[m.at] != '"' {
			return false, m.fail()
		}
		from := m.at
		if err = m.skip(); err != nil {
			return false, err
		}
		if len(nodes) > 0 {
			name = unquote(m.src[from:m.at])
		}
		m.put(m.src[from:m.at]...)
		m.space()
		if m.at >= len(m.src) || m.src[m.at] != ':' {
			return false, m.fail()
		}
		m.put(':')
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
			if Strictness(hit.action) > Strictness(action) {
				action = hit.action
			}
		}
	}
	if action == "" {
		return false, m.value(next, depth+1)
	}
	// A hidden value is parsed, because it must be JSON, but not copied.
	from := m.at
	m.hiding++
	err = m.value(nil, depth+1)
	m.hiding--
	if err == nil && action != Remove {
		m.put(m.hide(m.src[from:m.at], action)...)
	}
	return action == Remove, err
}

// lastFour returns the last four characters of a text, or "" if it is not longer than that.
func lastFour(text []byte) string {
	at := len(text)
	for range 4 {
		_, n := utf8.DecodeLastRune(text[:at])
		at -= n
	}
	if at == 0 {
		return ""
	}
	return string(text[at:])
}

// hide returns the JSON that replaces a value under a strategy.
func (m *masker) hide(raw []byte, strategy string) []byte {
	out := Redacted
	if strategy == Hash || strategy == Last4 {
		text, scalar := raw, true
		switch raw[0] {
		case '"':
			text = []byte(unquote(raw))
		case '{', '[', 't', 'f', 'n':
			scalar = false
		}
		switch {
		case strategy == Hash:
			out = m.key.Hash(text)
		case scalar:
			out = "****" + lastFour(text)
		}
	}
	b, _ := json.Marshal(out) // a string always has a JSON form
	return b
}
