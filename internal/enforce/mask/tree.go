package mask

import (
	"slices"
	"strconv"
	"strings"
)

// node is a value in a small document, with its position.
type node struct {
	key        string // the member's name; empty for elements
	name       [2]int // position of the name inside its quotes
	start, end int
	kind       byte // { [ " or 0
	below      []node
}

// parse reads a document that is known to be JSON.
func parse(doc []byte) node {
	p := parser{doc: doc}
	p.space()
	return p.value()
}

type parser struct {
	doc []byte
	at  int
}

func (p *parser) space() {
	for p.at < len(p.doc) {
		switch p.doc[p.at] {
		case ' ', '\t', '\n', '\r', ',', ':':
			p.at++
			continue
		}
		return
	}
}

func (p *parser) value() node {
	n := node{start: p.at}
	switch c := p.doc[p.at]; c {
	case '{', '[':
		n.kind = c
		p.at++
		for {
			p.space()
			if p.doc[p.at] == '}' || p.doc[p.at] == ']' {
				p.at++
				break
			}
			key, name := "", [2]int{}
			if c == '{' {
				from := p.at
				p.at += stringEnd(p.doc[p.at:])
				name = [2]int{from + 1, p.at - 1}
				text, _ := unescape(nil, nil, p.doc[from+1:p.at-1])
				key = string(text)
				p.space()
			}
			m := p.value()
			m.key, m.name = key, name
			n.below = append(n.below, m)
		}
	case '"':
		n.kind = c
		p.at += stringEnd(p.doc[p.at:])
	default:
		p.at += scalarEnd(p.doc[p.at:], true)
	}
	n.end = p.at
	return n
}

// get returns the member of a name, or nil.
func (n *node) get(key string) *node {
	if n == nil || n.kind != '{' {
		return nil
	}
	for i := range n.below {
		if n.below[i].key == key {
			return &n.below[i]
		}
	}
	return nil
}

// text returns the content of a string without escapes, or "".
func (n *node) text(doc []byte) string {
	if n == nil || n.kind != '"' {
		return ""
	}
	return string(doc[n.start+1 : n.end-1])
}

// raw returns the text of a scalar, or "" if n is absent, null or not a scalar.
func (n *node) raw(doc []byte) string {
	if n == nil || n.kind == '{' || n.kind == '[' {
		return ""
	}
	if s := string(doc[n.start:n.end]); s != "null" {
		return s
	}
	return ""
}

// piece is a string in an event's document, and the text that it continues.
type piece struct {
	start, end int    // position inside its quotes, in the document
	channel    string // "" for a text of its own
}

// shape describes the strings of an event, and which texts end with it.
type shape struct {
	pieces []piece
	ends   []string // prefixes of the channels that end
	last   bool     // all texts end
}

// textual are members that hold a part of a text in streams of unknown providers.
var textual = map[string]bool{
	"content": true, "text": true, "delta": true, "token": true, "tokens": true, "chunk": true, "completion": true, "response": true,
	"output": true, "output_text": true, "generated_text": true, "answer": true, "partial": true, "data": true, "value": true, "arguments": true,
	"partial_json": true, "thinking": true, "reasoning": true, "reasoning_content": true,
}

// labels are members of a delta that are never part of a text.
var labels = map[string]bool{"role": true, "id": true, "type": true, "name": true, "object": true, "model": true, "finish_reason": true}

// shapeOf decides which strings of an event continue those of earlier events: by the formats of
// OpenAI, Anthropic and Cohere, and otherwise by the names of members.
func shapeOf(doc []byte) shape {
	var s shape
	root := parse(doc)
	typ := root.get("type").text(doc)
	mark := func(name string) string { return name + "=" + root.get(name).raw(doc) + ";" }
	switch {
	case root.get("jsonrpc") != nil:
		s.collect(&root, "", joinNone)
	case root.get("choices") != nil:
		s.choices(doc, &root)
	case typ == "message_stop" || typ == "response.completed" || typ == "response.done" || typ == "response.incomplete" || typ == "response.failed":
		s.last = true
		s.collect(&root, "", joinNone)
	case typ != "":
		own := mark("index") + mark("output_index") + mark("content_index") + mark("summary_index") + mark("item_id")
		if typeEnds(typ, ".done", "_stop", "-end") {
			s.ends = append(s.ends, own)
		}
		kind := joinNone
		if typeEnds(typ, ".delta", "_delta", "-delta") {
			kind = joinPlace
		}
		for i := range root.below {
			m := &root.below[i]
			if m.key == "delta" {
				s.collect(m, own+typ+".delta", kind)
			} else {
				s.collect(m, "", joinNone)
			}
		}
	case root.kind == '"': // each event is a piece of the text and nothing else
		s.pieces = append(s.pieces, piece{root.start + 1, root.end - 1, "?"})
	default:
		s.collect(&root, "?", joinNamed)
	}
	return s
}

// typeEnds reports whether an event's type ends in one of these words, in the spelling of any
// provider.
func typeEnds(typ string, words ...string) bool {
	return slices.ContainsFunc(words, func(w string) bool { return strings.HasSuffix(typ, w) })
}

// choices reads OpenAI's chat completions and completions.
func (s *shape) choices(doc []byte, root *node) {
	for i := range root.below {
		m := &root.below[i]
		if m.key != "choices" {
			s.collect(m, "", joinNone)
			continue
		}
		for j := range m.below {
			choice := &m.below[j]
			own := "choice=" + choice.get("index").raw(doc) + ";"
			if choice.get("finish_reason").raw(doc) != "" {
				s.ends = append(s.ends, own)
			}
			for k := range choice.below {
				part := &choice.below[k]
				if part.key == "delta" || part.key == "text" {
					s.deltas(doc, part, own+part.key)
				} else {
					s.collect(part, "", joinNone)
				}
			}
		}
	}
}

// deltas reads a delta whose arrays have elements that say which earlier element they continue.
func (s *shape) deltas(doc []byte, n *node, path string) {
	switch {
	case n.kind == '"':
		if labels[n.key] {
			path = ""
		}
		s.pieces = append(s.pieces, piece{n.start + 1, n.end - 1, path})
	case n.kind == '{' || n.kind == '[':
		for i := range n.below {
			m := &n.below[i]
			step := "." + m.key
			if n.kind == '[' {
				step = "#" + strconv.Itoa(i)
				if own := m.get("index").raw(doc); own != "" {
					step = "#" + own
				}
			}
			s.deltas(doc, m, path+step)
		}
	}
}

type joinKind uint8

const (
	joinNone  joinKind = iota // each string is a text of its own
	joinPlace                 // each continues the one in the same place, except labels
	joinNamed                 // those in members named as text
)

func (s *shape) collect(n *node, path string, how joinKind) {
	switch n.kind {
	case '"':
		channel := ""
		if how == joinPlace && !labels[n.key] || how == joinNamed && textual[n.key] {
			channel = path
		}
		s.pieces = append(s.pieces, piece{n.start + 1, n.end - 1, channel})
	case '{', '[':
		for i := range n.below {
			m := &n.below[i]
			if n.kind == '[' {
				m.key = n.key
			}
			s.collect(m, path+"."+m.key, how)
		}
	}
}
