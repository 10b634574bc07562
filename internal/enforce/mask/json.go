package mask

import (
	"bytes"
	"encoding/json"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/gatehouse-dev/gatehouse/internal/enforce/pii"
	"github.com/gatehouse-dev/gatehouse/internal/rego/masking"
	"github.com/gatehouse-dev/gatehouse/internal/rego/value"
)

// JSON masks a complete document.
func (r *Rules) JSON(doc []byte) ([]byte, error) {
	if !IsText(doc) {
		return nil, errNotText
	}
	doc = bytes.TrimPrefix(doc, []byte(byteOrderMark))
	if len(bytes.TrimSpace(doc)) == 0 {
		return doc, nil
	}
	doc, err := r.structured(doc)
	if err != nil || r.set == 0 {
		return doc, err
	}
	if !json.Valid(doc) {
		return nil, errNotJSON
	}
	s := r.JSONTo(nil)
	s.checked = true
	s.done = make([]byte, 0, len(doc)+len(doc)/8)
	if err := s.feed(doc, true); err != nil {
		return nil, err
	}
	return s.done, nil
}

// JSONInto masks a large, complete document, and writes the result to out in pieces. If it returns
// an error, discard what out received.
func (r *Rules) JSONInto(doc []byte, out func([]byte) error) error {
	if !IsText(doc) {
		return errNotText
	}
	doc = bytes.TrimPrefix(doc, []byte(byteOrderMark))
	if len(bytes.TrimSpace(doc)) == 0 {
		return out(doc)
	}
	if r.set == 0 {
		return masking.ApplyTo(doc, r.paths, r.key, out)
	}
	private := r.JSONTo(out)
	err := masking.ApplyTo(doc, r.paths, r.key, func(p []byte) error {
		_, err := private.Write(p)
		return err
	})
	if err != nil {
		return err
	}
	return private.Close()
}

// structured applies the masks that need the whole document.
func (r *Rules) structured(doc []byte) (_ []byte, err error) {
	if r.Rewrite != nil {
		if doc, err = r.Rewrite(doc); err != nil {
			return nil, err
		}
	}
	return masking.Apply(doc, r.paths, r.key)
}

// JSONStream masks personal data in the strings and numbers of a document that arrives in pieces.
// It buffers at most one value. Anything that is not JSON fails.
type JSONStream struct {
	rules *Rules
	out   func([]byte) error
	rest  []byte // an incomplete value
	done  []byte
	key   []byte // the last string
	hint  pii.Set
	list  bool // inside an array, whose elements the hint applies to
	// checked means that the document is known to be text.
	checked bool
	text    []byte
	at      []int32 // the position of each byte of text in the raw string
	spans   []pii.Span
}

// JSONTo returns a stream that writes to out. Do not use it with masks that need the whole document
// (Structured).
func (r *Rules) JSONTo(out func([]byte) error) *JSONStream { return &JSONStream{rules: r, out: out} }

// Write implements io.Writer.
func (s *JSONStream) Write(p []byte) (int, error) {
	if err := s.write(p, false); err != nil {
		return 0, err
	}
	return len(p), nil
}

// Close writes the rest. A document that ends inside a value is an error.
func (s *JSONStream) Close() error { return s.write(nil, true) }

func (s *JSONStream) write(p []byte, final bool) error {
	s.done = s.done[:0]
	if err := s.feed(p, final); err != nil {
		return err
	}
	s.rest = shrink(s.rest)
	if cap(s.text) > keptRoom {
		s.text, s.at = nil, nil
	}
	if len(s.done) == 0 {
		return nil
	}
	err := s.out(s.done)
	s.done = shrink(s.done[:0])
	return err
}

func (s *JSONStream) feed(p []byte, final bool) error {
	if len(s.rest) > 0 {
		s.rest = appendHeld(s.rest, p)
		p = s.rest
	}
	i := 0
	for i < len(p) {
		n := 0
		switch c := p[i]; {
		case c == '"':
			if n = stringEnd(p[i:]); n > 0 {
				if !s.checked && !IsText(p[i:i+n]) {
					return errNotText
				}
				s.maskString(p[i : i+n])
			}
		case c == '-' || c >= '0' && c <= '9' || c >= 'a' && c <= 'z':
			if n = scalarEnd(p[i:], final); n > 0 && !s.maskScalar(p[i:i+n]) {
				return errNotJSON
			}
		case c == ':':
			s.hint = hintOf(s.key)
			n, s.done = 1, append(s.done, c)
		case c == '{' || c == '}' || c == ']' || c == ',' && !s.list:
			s.hint, s.list = 0, false
			n, s.done = 1, append(s.done, c)
		case c == '[':
			s.list = true
			n, s.done = 1, append(s.done, c)
		case c == 0xef && bytes.HasPrefix(p[i:], []byte(byteOrderMark)):
			n = len(byteOrderMark) // dropped
		case c == ',' || c == ' ' || c == '\n' || c == '\t' || c == '\r' || c == 0x1e:
			n, s.done = 1, append(s.done, c)
		default:
			return errNotJSON
		}
		if n == 0 {
			break
		}
		i += n
	}
	rest := p[i:]
	switch {
	case len(rest) > 0 && final:
		return errNotJSON
	case len(rest) > MaxHeld:
		return ErrHeld
	case len(s.rest) > 0:
		s.rest = s.rest[:copy(s.rest, rest)]
	default:
		s.rest = append(s.rest, rest...)
	}
	return nil
}

// stringEnd returns the length of the string at the beginning of p, or 0 if it is incomplete.
func stringEnd(p []byte) int {
	for i := 1; i < len(p); {
		j := bytes.IndexByte(p[i:], '"')
		if j < 0 {
			return 0
		}
		i += j
		slashes := 0
		for p[i-1-slashes] == '\\' && i-1-slashes > 0 {
			slashes++
		}
		i++
		if slashes%2 == 0 {
			return i
		}
	}
	return 0
}

// scalarEnd returns the length of the number or word at the beginning of p, or 0 if more may
// follow.
func scalarEnd(p []byte, final bool) int {
	for i, c := range p {
		if !(c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c == '-' || c == '+' || c == '.' || c == 'E') {
			return i
		}
	}
	if final {
		return len(p)
	}
	return 0
}

// maskString masks one string, including its quotes.
func (s *JSONStream) maskString(raw []byte) {
	inner := raw[1 : len(raw)-1]
	text, at := inner, []int32(nil)
	if bytes.IndexByte(inner, '\\') >= 0 {
		text, at = s.unescape(inner)
	}
	hint := s.hint & s.rules.set
	if s.key = s.key[:0]; len(text) <= 64 {
		s.key = append(s.key, text...)
	}
	if kind, ok := fitsHint(hint, text); ok {
		s.done = append(s.done, '"')
		s.done = s.rules.appendQuoted(s.done, text, s.rules.how[kind])
		s.done = append(s.done, '"')
		return
	}
	if s.spans, _ = s.rules.set.Scan(s.spans[:0], text, 0, true); len(s.spans) == 0 {
		s.done = append(s.done, raw...)
		return
	}
	s.done = append(s.done, '"')
	from := 0
	for _, sp := range s.spans {
		a, b := sp.Start, sp.End
		if at != nil {
			a, b = int(at[a]), int(at[b])
		}
		s.done = append(s.done, inner[from:a]...)
		s.done = s.rules.appendQuoted(s.done, text[sp.Start:sp.End], s.rules.how[sp.Kind])
		from = b
	}
	s.done = append(append(s.done, inner[from:]...), '"')
}

// appendQuoted appends the replacement of a text, escaped for a JSON string.
func (r *Rules) appendQuoted(dst, text []byte, strategy string) []byte {
	quoted := value.AppendString(nil, string(r.appendReplacement(nil, text, strategy)))
	return append(dst, quoted[1:len(quoted)-1]...)
}

// maskScalar masks a number, which becomes a string. It returns false if raw is not JSON.
func (s *JSONStream) maskScalar(raw []byte) bool {
	if raw[0] >= 'a' {
		s.done = append(s.done, raw...)
		w := string(raw)
		return w == "true" || w == "false" || w == "null"
	}
	if len(raw) >= 7 && s.rules.set != 0 {
		number := bytes.TrimPrefix(raw, []byte{'-'}) // a card number with a sign is still one
		kind, ok := fitsHint(s.hint&s.rules.set, number)
		if !ok && s.rules.set.Has(pii.Cards) && pii.CardNumber(number) {
			kind, ok = pii.Cards, true
		}
		if ok {
			s.done = append(s.done, '"')
			s.done = s.rules.appendQuoted(s.done, raw, s.rules.how[kind])
			s.done = append(s.done, '"')
			return true
		}
	}
	s.done = append(s.done, raw...)
	return true
}

// unescape returns the text of a string, and the positions in raw of each byte and of the end.
func (s *JSONStream) unescape(raw []byte) ([]byte, []int32) {
	s.text, s.at = unescape(s.text[:0], s.at[:0], raw)
	return s.text, s.at
}

// unescape appends the text inside a JSON string to dst, and to at the position of each byte in raw
// and, last, the end of raw.
func unescape(dst []byte, at []int32, raw []byte) ([]byte, []int32) {
	for i := 0; i < len(raw); {
		if raw[i] != '\\' || i+1 >= len(raw) {
			dst, at = append(dst, raw[i]), append(at, int32(i))
			i++
			continue
		}
		from := i
		r := rune(raw[i+1])
		i += 2
		switch r {
		case 'n':
			r = '\n'
		case 't':
			r = '\t'
		case 'r':
			r = '\r'
		case 'b', 'f':
			r = ' '
		case 'u':
			r, i = hex4(raw, i)
			if utf16.IsSurrogate(r) && i+1 < len(raw) && raw[i] == '\\' && raw[i+1] == 'u' {
				low, next := hex4(raw, i+2)
				if both := utf16.DecodeRune(r, low); both != utf8.RuneError {
					r, i = both, next
				}
			}
			if r == 0 {
				r = utf8.RuneError // detectors use this character for their own purposes
			}
		}
		before := len(dst)
		dst = utf8.AppendRune(dst, r)
		for range len(dst) - before {
			at = append(at, int32(from))
		}
	}
	return dst, append(at, int32(len(raw)))
}

func hex4(raw []byte, i int) (rune, int) {
	if i+4 > len(raw) {
		return utf8.RuneError, len(raw)
	}
	var r rune
	for _, c := range raw[i : i+4] {
		switch {
		case c >= '0' && c <= '9':
			c -= '0'
		case c >= 'a' && c <= 'f':
			c -= 'a' - 10
		case c >= 'A' && c <= 'F':
			c -= 'A' - 10
		}
		r = r<<4 | rune(c&15)
	}
	return r, i + 4
}
