// Package masking hides values in JSON documents as mask rules say, and holds the
// tenant's key for those that are hashed.
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

	"github.com/gatehouse-dev/gatehouse/internal/rego"
	"github.com/gatehouse-dev/gatehouse/internal/rego/lang"
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

// Apply hides the values at the paths of rules in a JSON document. A path
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
// begins so and is none, or is larger than 1 MiB, is redacted whole: what a path
// would hide there is not known.
//
// Bytes outside the masks stay as they are. A document that is not JSON is an
// error, never passed through.
func Apply(doc []byte, rules []rego.MaskRule, key HashKey) ([]byte, error) {
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

// ApplyTo is Apply for large documents: it hands the result to out in
// pieces, as it goes. Beside doc it holds a piece, or what one value needs. What
// out got before an error must not be passed on.
func ApplyTo(doc []byte, rules []rego.MaskRule, key HashKey, out func([]byte) error) error {
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
func maskTree(rules []rego.MaskRule) (*maskNode, error) {
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
func (n *maskNode) add(r rego.MaskRule) error {
	if lang.Strictness(r.Strategy) == 0 {
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
	if lang.Strictness(r.Strategy) > lang.Strictness(n.action) {
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
	// hiding counts the hidden values around m.at: nothing of them is copied.
	hiding int
	// sink takes the output in pieces; nil: out holds all of it.
	sink func([]byte) error
}

// maskPiece is how large a piece of the output grows before sink gets it.
const maskPiece = 64 << 10

// put copies to the output, but for what is hidden.
func (m *masker) put(p ...byte) {
	if m.hiding == 0 {
		m.out = append(m.out, p...)
	}
}

// flush hands the output on once it is as long as least. The caller may cut
// nothing of it any more.
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

// maxInnerDocument is the largest document in a string that a path goes on into.
const maxInnerDocument = 1 << 20

// inner is a string that holds a document, masked; false: it stays as it is.
func (m *masker) inner(raw []byte, nodes []*maskNode, depth int) (string, bool) {
	begins := strings.TrimLeft(unquote(raw), " \t\r\n\ufeff")
	first := strings.TrimLeft(begins, "\"\\ \t\r\n\ufeff") // also a document that was written as a string again
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

// continues reports whether a path goes on behind this step.
func (n *maskNode) continues() bool { return n.every != nil || len(n.member) > 0 }

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
	m.put(m.src[from:m.at]...)
	return nil
}

// unquote is what a string says that skip stepped over.
func unquote(raw []byte) string {
	if bytes.IndexByte(raw, '\\') < 0 && utf8.Valid(raw) {
		return string(raw[1 : len(raw)-1])
	}
	var s string
	_ = json.Unmarshal(raw, &s) // it was valid
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

// container copies an object or array. Members that are removed go with the
// comma before them, or, at the beginning, with the one after.
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
		// start is where the output is cut if this member goes: before its comma.
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

// member copies one member or element, hidden where a rule says so.
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
			if lang.Strictness(hit.action) > lang.Strictness(action) {
				action = hit.action
			}
		}
	}
	if action == "" {
		return false, m.value(next, depth+1)
	}
	// What is hidden is read, since it must be JSON, and not copied.
	from := m.at
	m.hiding++
	err = m.value(nil, depth+1)
	m.hiding--
	if err == nil && action != lang.StrategyRemove {
		m.put(m.hide(m.src[from:m.at], action)...)
	}
	return action == lang.StrategyRemove, err
}

// lastFour is the last four characters of a text that is longer than that.
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

// hide is the JSON that stands for a value under a strategy.
func (m *masker) hide(raw []byte, strategy string) []byte {
	out := Redacted
	if strategy == lang.StrategyHash || strategy == lang.StrategyLast4 {
		text, scalar := raw, true
		switch raw[0] {
		case '"':
			text = []byte(unquote(raw))
		case '{', '[', 't', 'f', 'n':
			scalar = false
		}
		switch {
		case strategy == lang.StrategyHash:
			out = m.key.Hash(text)
		case scalar:
			out = "****" + lastFour(text)
		}
	}
	b, _ := json.Marshal(out) // a string always has a JSON form
	return b
}
