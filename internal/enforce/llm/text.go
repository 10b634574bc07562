package llm

import (
	"strings"

	"github.com/gatehouse-dev/gatehouse/internal/enforce/plaintext"
	"github.com/gatehouse-dev/gatehouse/internal/rego/value"
)

const (
	// walkDepth limits the nesting that is read. Bodies are not deeper.
	walkDepth = 64
	// shownOfMedia is the length of media in input.llm.messages, in bytes.
	shownOfMedia = 48
	// maxLabel is the longest text that counts as a label.
	maxLabel = 64
)

// labels are members that hold a word of the protocol or an id. Anything else in them is text.
var labels = map[string]bool{
	"role": true, "type": true, "id": true, "call_id": true, "tool_call_id": true, "tool_use_id": true, "item_id": true, "custom_id": true,
	"media_type": true, "mime_type": true, "mimeType": true, "format": true, "detail": true, "status": true, "url": true, "method": true,
	"model": true, "name": true, "title": true, "$ref": true, "object": true,
}

// free are labels that the model does not see.
var free = map[string]bool{"type": true, "id": true, "media_type": true, "detail": true}

// reader collects the texts of a message, and removes media.
type reader struct {
	weigh     *weigher
	structure bool // the size is that of the whole structure
	main      []string
	tail      []string // texts in unexpected places
}

// message reads a message, and returns it without its media.
func (r *reader) message(m value.Value) value.Value { return r.walk(m, place{}, 0) }

// walk reads v, and returns it with media cut to their beginning.
func (r *reader) walk(v value.Value, at place, depth int) value.Value {
	if depth > walkDepth {
		return v
	}
	switch v.Kind() {
	case value.StringKind:
		return r.text(v, at)
	case value.ArrayKind:
		list := v.Elems()
		for i, e := range list {
			if kept := r.walk(e, at, depth+1); !value.Same(kept, e) {
				list = append([]value.Value{}, list...)
				list[i] = kept
				for j := i + 1; j < len(list); j++ {
					list[j] = r.walk(list[j], at, depth+1)
				}
				return value.Array(list...)
			}
		}
	case value.ObjectKind:
		return r.object(v, at, depth)
	case value.NumberKind, value.BoolKind:
		r.weigh.small(r.structure)
	}
	return v
}

func (r *reader) object(v value.Value, at place, depth int) value.Value {
	members := make([]value.Member, 0, v.Len())
	changed := false
	v.Each(func(name string, m value.Value) bool {
		if !isLabel(name) {
			r.tail = append(r.tail, name)
			r.weigh.words(name, r.structure)
		}
		kept := r.walk(m, at.below(name), depth+1)
		changed = changed || !value.Same(kept, m)
		members = append(members, value.Member{Key: name, Value: kept})
		return true
	})
	if !changed {
		return v
	}
	return value.Object(members...)
}

func (r *reader) text(v value.Value, at place) value.Value {
	s, _ := v.Str()
	if isMedia(at, s) {
		r.weigh.extra += perMedia
		if len(s) > maxURL { // a URL stays whole
			return value.String(strings.Clone(s[:shownOfMedia]))
		}
		if words := pathOf(s); words != "" {
			r.tail = append(r.tail, words)
		}
		return v
	}
	if labels[at.key] {
		if isLabel(s) {
			if !free[at.key] {
				r.weigh.words(s, r.structure)
			}
			return v
		}
		r.tail = append(r.tail, s)
	} else {
		r.main = append(r.main, s)
	}
	r.weigh.words(s, r.structure)
	if inner := dataText(s); inner != "" {
		r.tail = append(r.tail, inner)
	}
	return v
}

// texts returns the collected texts as a model reads them. The parts of a message are also read as
// one; those of a structure are not.
func (r *reader) texts(structure bool) string {
	var out strings.Builder
	if structure {
		for i, s := range r.main {
			if i > 0 {
				out.WriteByte('\n')
			}
			out.WriteString(plaintext.Message(s))
		}
	} else {
		out.WriteString(plaintext.Message(r.main...))
	}
	for _, s := range r.tail {
		out.WriteByte('\n')
		out.WriteString(plaintext.Message(s))
	}
	return out.String()
}

// isLabel reports whether s is short and consists of characters of names. Such a text is not a
// sentence, even if its punctuation is read as spaces.
func isLabel(s string) bool {
	if len(s) > maxLabel {
		return false
	}
	words, letters := 0, 0
	for i := range len(s) {
		c := s[i]
		switch {
		case 'a' <= c|0x20 && c|0x20 <= 'z':
			if letters++; letters == 3 {
				words++
			}
			continue
		case '0' <= c && c <= '9', c == '_', c == '-', c == '.', c == ':', c == '/', c == '$':
		default:
			return false
		}
		letters = 0
	}
	return words <= 3
}

// isModelName reports whether s may name a model. Such names are longer than labels.
func isModelName(s string) bool {
	if len(s) > 2*maxLabel {
		return false
	}
	return strings.Trim(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-.:/@+") == ""
}
