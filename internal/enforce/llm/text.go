package llm

import (
	"strings"

	"github.com/gatehouse-dev/gatehouse/internal/enforce/plaintext"
	"github.com/gatehouse-dev/gatehouse/internal/rego/value"
)

const (
	// walkDepth bounds the nesting of what is read; bodies are no deeper.
	walkDepth = 64
	// shownOfMedia is what is left of media in input.llm.messages, in bytes.
	shownOfMedia = 48
	// maxLabel is the longest text that is a label and no words.
	maxLabel = 64
)

// labels are members that hold a word of the protocol or an id. What else stands
// there is a text.
var labels = map[string]bool{
	"role": true, "type": true, "id": true, "call_id": true, "tool_call_id": true, "tool_use_id": true, "item_id": true, "custom_id": true,
	"media_type": true, "mime_type": true, "mimeType": true, "format": true, "detail": true, "status": true, "url": true, "method": true,
	"model": true, "name": true, "title": true, "$ref": true, "object": true,
}

// free are labels that a model is not shown.
var free = map[string]bool{"type": true, "id": true, "media_type": true, "detail": true}

// reader gathers the texts of a message while it takes media out.
type reader struct {
	weigh     *weigher
	structure bool // the weight is taken of the whole
	main      []string
	tail      []string // what stands where no text is expected
}

// message reads a message, and gives it without its media.
func (r *reader) message(m value.Value) value.Value { return r.walk(m, place{}, 0) }

// walk reads v, and gives it with media cut to their beginning.
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
		if len(s) > maxURL { // an address stays whole
			return value.String(strings.Clone(s[:shownOfMedia]))
		}
		if words := addressed(s); words != "" {
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

// texts is what was gathered as a model reads it. The parts of a message are read
// as one too; those of a structure each alone.
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

// isLabel reports a short text of signs that names have, which is no sentence
// even if one reads its signs as spaces.
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

// isModelName reports a text that may name a model: such names are longer.
func isModelName(s string) bool {
	if len(s) > 2*maxLabel {
		return false
	}
	return strings.Trim(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-.:/@+") == ""
}
