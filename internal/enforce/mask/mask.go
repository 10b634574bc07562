// Package mask masks values in bodies: members of JSON documents by their path, and personal data
// anywhere in JSON, in text and in streams of server-sent events. Bytes outside a mask stay as they
// are. What cannot be read is an error, and must not be passed on.
package mask

import (
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/gatehouse-dev/gatehouse/internal/enforce/pii"
	"github.com/gatehouse-dev/gatehouse/internal/rego/masking"
)

const (
	// categoryPrefix is the prefix of a mask path that names a category of personal data instead of a
	// member: pii:emails.
	categoryPrefix = "pii:"
	// requestPrefix is the prefix of a mask path for the request's body instead of the answer's:
	// request:pii:emails, request:messages.0.content.
	requestPrefix = "request:"
)

// MaxHeld limits how much of a body is buffered, in bytes.
const MaxHeld = 1 << 20

// keptRoom is the memory that a stream keeps for reuse, in bytes.
const keptRoom = 64 << 10

// shrink frees a buffer that one large value has made large.
func shrink(buf []byte) []byte {
	if cap(buf) <= keptRoom || len(buf) > keptRoom/2 {
		return buf
	}
	return append(make([]byte, 0, len(buf)), buf...)
}

// appendHeld appends to a buffer, and does not reserve much more than MaxHeld.
func appendHeld(buf, p []byte) []byte {
	if need := len(buf) + len(p); need > cap(buf) && need > MaxHeld/4 {
		buf = append(make([]byte, 0, max(need, MaxHeld)), buf...)
	}
	return append(buf, p...)
}

var (
	errNotJSON = errors.New("the document is not JSON")
	errNotText = errors.New("the text is not UTF-8")
)

// ErrHeld means that a value is larger than MaxHeld, and so cannot be searched.
var ErrHeld = errors.New("the document contains a value that is too large to mask")

// Rules are compiled masks. The zero value masks nothing.
type Rules struct {
	// Rewrite changes every JSON document, whole or of an event, before it is masked. It may be
	// nil.
	Rewrite func(doc []byte) ([]byte, error)

	set     pii.Set
	how     [8]string // strategies by category
	paths   []masking.MaskRule
	headers []headerRule
	key     masking.HashKey
}

// Split separates the masks of the answer from those of the request.
func Split(list []masking.MaskRule) (answer, request []masking.MaskRule) {
	for _, r := range list {
		if path, ok := strings.CutPrefix(r.Path, requestPrefix); ok {
			request = append(request, masking.MaskRule{Path: path, Strategy: r.Strategy})
		} else {
			answer = append(answer, r)
		}
	}
	return answer, request
}

// New compiles masks, which hash with the tenant's key. An unknown category is an error, and so is
// a header field that cannot be masked.
func New(list []masking.MaskRule, key masking.HashKey) (*Rules, error) {
	r := &Rules{key: key}
	for _, m := range list {
		if name, ok := strings.CutPrefix(m.Path, headerPrefix); ok {
			if err := r.addHeader(name, m.Strategy); err != nil {
				return nil, err
			}
			continue
		}
		name, ok := strings.CutPrefix(m.Path, categoryPrefix)
		if !ok {
			r.paths = append(r.paths, m)
			continue
		}
		kind, known := pii.Category(name)
		if !known {
			return nil, fmt.Errorf("%q is not a category of personal data", name)
		}
		// If a category is named twice, the stricter strategy applies.
		if !r.set.Has(kind) || isStricter(m.Strategy, r.how[kind]) {
			r.how[kind] = m.Strategy
		}
		r.set = r.set.With(kind)
	}
	return r, nil
}

func isStricter(a, b string) bool {
	order := func(s string) int {
		return strings.Index(" "+masking.Last4+" "+masking.Hash+" "+masking.Redact+" "+masking.Remove, " "+s)
	}
	return order(a) > order(b)
}

// IsEmpty reports whether no part of a body changes.
func (r *Rules) IsEmpty() bool { return r.set == 0 && len(r.paths) == 0 && r.Rewrite == nil }

// MasksPersonalData reports whether the rules look for personal data.
func (r *Rules) MasksPersonalData() bool { return r.set != 0 }

// NeedsJSON reports whether only JSON can be masked, because paths have no meaning elsewhere.
func (r *Rules) NeedsJSON() bool { return len(r.paths) > 0 || r.Rewrite != nil }

// Text masks personal data in a complete text.
func (r *Rules) Text(text []byte) []byte {
	spans, _ := r.set.Scan(nil, text, 0, true)
	if len(spans) == 0 {
		return text
	}
	return r.appendMasked(make([]byte, 0, len(text)+64), text, 0, spans)
}

// appendMasked appends a text from a position on, with its spans replaced.
func (r *Rules) appendMasked(dst, text []byte, from int, spans []pii.Span) []byte {
	for _, s := range spans {
		dst = append(dst, text[from:s.Start]...)
		dst = r.appendReplacement(dst, text[s.Start:s.End], r.how[s.Kind])
		from = s.End
	}
	return append(dst, text[from:]...)
}

// appendReplacement appends the replacement of a text under a strategy.
func (r *Rules) appendReplacement(dst, text []byte, strategy string) []byte {
	return pii.Hide(dst, text, strategy, r.key)
}

// TextStream masks personal data in a text that arrives in pieces.
type TextStream struct {
	rules *Rules
	out   func([]byte) error
	text  []byte
	from  int
	done  []byte
	cut   []byte // the beginning of an incomplete character
}

// TextTo returns a stream that writes masked text to out.
func (r *Rules) TextTo(out func([]byte) error) *TextStream { return &TextStream{rules: r, out: out} }

// Write implements io.Writer.
func (t *TextStream) Write(p []byte) (int, error) {
	n := len(p)
	whole := p
	if len(t.cut) > 0 {
		whole = append(t.cut, p...)
	}
	end := len(whole)
	for back := 1; back < utf8.UTFMax && back <= len(whole); back++ {
		if i := len(whole) - back; utf8.RuneStart(whole[i]) {
			if !utf8.FullRune(whole[i:]) {
				end = i
			}
			break
		}
	}
	if !IsText(whole[:end]) {
		return 0, errNotText
	}
	t.text = append(t.text, whole[:end]...)
	t.cut = append([]byte(nil), whole[end:]...)
	return n, t.writeScanned(false)
}

// Close writes the rest.
func (t *TextStream) Close() error {
	if len(t.cut) > 0 {
		return errNotText
	}
	return t.writeScanned(true)
}

func (t *TextStream) writeScanned(final bool) error {
	spans, scanned := t.rules.set.Scan(nil, t.text, t.from, final)
	if scanned == t.from {
		return nil
	}
	t.done = t.rules.appendMasked(t.done[:0], t.text[:scanned], t.from, spans)
	cut := max(0, scanned-pii.Context)
	t.text = append(t.text[:0], t.text[cut:]...)
	t.from = scanned - cut
	if len(t.done) == 0 {
		return nil
	}
	return t.out(t.done)
}
