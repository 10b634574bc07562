package redact

import (
	"bytes"
	"encoding/json"
	"strings"
)

// redacted stands where a secret stood.
const redacted = `"` + Mark + `"`

// JSON appends the JSON document src to dst without secrets. At any depth, the value of every
// member that is named like a secret becomes "[redacted]", and owner_email is removed with its
// name. Booleans and nulls are kept, so that members such as credential_set keep their meaning. If
// src cannot be read, JSON appends null and ok is false.
func JSON(dst, src []byte) (out []byte, ok bool) {
	r := redactor{src: src, dst: dst}
	start := len(dst)
	r.space()
	if !r.value(0) {
		return append(dst[:start], "null"...), false
	}
	r.space()
	if r.pos != len(src) {
		return append(dst[:start], "null"...), false
	}
	return r.dst, true
}

// redactor scans one document. It checks the structure only as far as it needs to find names,
// because its input was decoded strictly before.
type redactor struct {
	src, dst []byte
	pos      int
}

const maxDepth = 512

func (r *redactor) space() {
	for r.pos < len(r.src) && (r.src[r.pos] == ' ' || r.src[r.pos] == '\n' || r.src[r.pos] == '\t' || r.src[r.pos] == '\r') {
		r.pos++
	}
}

func (r *redactor) peek() byte {
	if r.pos < len(r.src) {
		return r.src[r.pos]
	}
	return 0
}

func (r *redactor) value(depth int) bool {
	if depth > maxDepth {
		return false
	}
	switch r.peek() {
	case '{':
		return r.object(depth)
	case '[':
		return r.array(depth)
	case '"':
		s, ok := r.text()
		r.dst = append(r.dst, s...)
		return ok
	default:
		s, ok := r.scalar()
		r.dst = append(r.dst, s...)
		return ok
	}
}

func (r *redactor) array(depth int) bool {
	r.pos++
	r.dst = append(r.dst, '[')
	r.space()
	if r.peek() == ']' {
		r.pos++
		r.dst = append(r.dst, ']')
		return true
	}
	for {
		r.space()
		if !r.value(depth + 1) {
			return false
		}
		r.space()
		c := r.peek()
		if c != ',' && c != ']' {
			return false
		}
		r.pos++
		r.dst = append(r.dst, c)
		if c == ']' {
			return true
		}
	}
}

func (r *redactor) object(depth int) bool {
	r.pos++
	r.dst = append(r.dst, '{')
	r.space()
	if r.peek() == '}' {
		r.pos++
		r.dst = append(r.dst, '}')
		return true
	}
	empty := true
	for {
		r.space()
		raw, ok := r.text()
		if !ok {
			return false
		}
		r.space()
		if r.peek() != ':' {
			return false
		}
		r.pos++
		r.space()
		if !r.member(raw, &empty, depth) {
			return false
		}
		r.space()
		c := r.peek()
		if c != ',' && c != '}' {
			return false
		}
		r.pos++
		if c == '}' {
			r.dst = append(r.dst, '}')
			return true
		}
	}
}

// member writes one member, whose quoted name is raw, unless it must be removed.
func (r *redactor) member(raw []byte, empty *bool, depth int) bool {
	var buf [64]byte
	name := foldedNameOf(buf[:0], raw)
	keep := len(r.dst)
	if !*empty {
		r.dst = append(r.dst, ',')
	}
	r.dst = append(r.dst, raw...)
	r.dst = append(r.dst, ':')
	from := len(r.dst)
	if !r.value(depth + 1) {
		return false
	}
	switch {
	case isPersonal(name):
		r.dst = r.dst[:keep]
		return true
	case isSecret(name):
		switch string(r.dst[from:]) {
		case "true", "false", "null":
		default:
			r.dst = append(r.dst[:from], redacted...)
		}
	}
	*empty = false
	return true
}

// foldedNameOf appends the folded name that is quoted in raw.
func foldedNameOf(dst, raw []byte) []byte {
	if bytes.IndexByte(raw, '\\') < 0 {
		return foldName(dst, raw[1:len(raw)-1])
	}
	var s string
	if json.Unmarshal(raw, &s) != nil {
		return append(dst, "secret"...) // a name that cannot be read is treated as the worst it could be
	}
	return foldName(dst, s)
}

// text consumes one string and returns it with its quotes.
func (r *redactor) text() ([]byte, bool) {
	if r.peek() != '"' {
		return nil, false
	}
	start := r.pos
	for r.pos++; r.pos < len(r.src); r.pos++ {
		switch r.src[r.pos] {
		case '\\':
			r.pos++
		case '"':
			r.pos++
			return r.src[start:r.pos], true
		}
	}
	return nil, false
}

func (r *redactor) scalar() ([]byte, bool) {
	start := r.pos
	for r.pos < len(r.src) && !strings.ContainsRune(",]} \t\r\n", rune(r.src[r.pos])) {
		r.pos++
	}
	s := r.src[start:r.pos]
	return s, len(s) > 0 && json.Valid(s)
}
