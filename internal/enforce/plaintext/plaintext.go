// Package plaintext reads text as a person or a model does, so that an attacker cannot evade
// detectors by writing it differently. It decodes HTML entities, percent-encoding and backslash
// escapes, removes invisible characters (zero-width characters, soft hyphens, tag characters,
// controls), writes digits of all scripts as ASCII, applies compatibility normalisation (NFKC), and
// replaces letters that look like Latin ones. It does no I/O. It records where each byte of the
// result comes from, so that a mask applies to the original.
package plaintext

import (
	"encoding/binary"
	"slices"
	"strings"
	"unicode/utf8"
)

// maxRounds limits how often the three decodings are repeated, for nested escapes: &amp;#52; takes
// two rounds.
const maxRounds = 4

// Text is a decoded text, and where its bytes come from. Fold reuses its memory. The zero value is
// ready to use.
type Text struct {
	// Bytes is the text for detectors. It may be the original itself, so do not change it.
	Bytes []byte
	// same means that Bytes is a prefix of the original, byte for byte.
	same bool
	// from and to are the start and end of each byte's source in the original.
	from, to []int32
	// read is the length of the part of the original that Bytes represents.
	read int

	spare layer
}

// layer is the result of one decoding.
type layer struct {
	bytes    []byte
	from, to []int32
}

// Fold decodes raw. If final is false, more text follows, and Fold leaves an incomplete escape or
// character at the end for later.
func (t *Text) Fold(raw []byte, final bool) {
	t.Bytes, t.same, t.read = raw, true, len(raw)
	t.from, t.to = t.from[:0], t.to[:0]
	if Clean(raw, final) {
		return
	}
	whole := final
	for range maxRounds {
		changed := false
		for _, decode := range [...]decoder{percent, entity, backslash} {
			if !decode.present(t.Bytes, whole) {
				continue
			}
			changed = true
			whole = t.apply(decode, whole) && whole
		}
		if !changed {
			break
		}
	}
	t.letters(whole)
}

// Original returns the position in the original of the bytes from start to end.
func (t *Text) Original(start, end int) (from, to int) {
	switch {
	case t.same:
		return start, end
	case start >= end:
		return t.Place(start), t.Place(end)
	}
	return int(t.from[start]), int(t.to[end-1])
}

// Place returns the position in the original of the byte at i. At the end of the text, that is the
// length of what was read.
func (t *Text) Place(i int) int {
	switch {
	case t.same:
		return i
	case i >= len(t.from):
		return t.read
	}
	return int(t.from[i])
}

// At returns the index of the first byte whose source begins at or after a position in the
// original.
func (t *Text) At(place int) int {
	if t.same {
		return min(place, len(t.Bytes))
	}
	i, _ := slices.BinarySearch(t.from, int32(place))
	return i
}

// decoder decodes one kind of escapes.
type decoder struct {
	sign byte
	// one decodes what begins at i with sign. It returns the text and its length in b. A length of
	// 0 means that nothing is encoded there, a negative one that more input is needed.
	one func(b []byte, i int, final bool, buf []byte) (text []byte, n int)
}

// present reports whether there is anything to decode.
func (d decoder) present(b []byte, final bool) bool {
	var buf [8]byte
	for i, c := range b {
		if c == d.sign {
			if _, n := d.one(b, i, final, buf[:0]); n != 0 {
				return true
			}
		}
	}
	return false
}

// apply decodes the text with a decoder. It returns false if it left the end for later.
func (t *Text) apply(d decoder, final bool) (whole bool) {
	var buf [8]byte
	in := t.Bytes
	out := t.emptyLayer()
	i := 0
	for i < len(in) {
		c := in[i]
		if c != d.sign {
			from, to := t.Original(i, i+1)
			out.add(c, from, to)
			i++
			continue
		}
		text, n := d.one(in, i, final, buf[:0])
		if n < 0 {
			break
		}
		if n == 0 {
			text, n = in[i:i+1], 1
		}
		from, to := t.Original(i, i+n)
		for _, x := range text {
			out.add(x, from, to)
		}
		i += n
	}
	whole = i == len(in)
	if !whole {
		t.read = t.Place(i)
	}
	t.replace(out)
	return whole
}

// emptyLayer returns an empty layer, in memory that is no longer used.
func (t *Text) emptyLayer() layer {
	l := t.spare
	l.bytes, l.from, l.to = l.bytes[:0], l.from[:0], l.to[:0]
	return l
}

// replace makes a layer the text.
func (t *Text) replace(l layer) {
	t.spare = layer{from: t.from, to: t.to}
	if !t.same {
		t.spare.bytes = t.Bytes
	}
	t.Bytes, t.from, t.to, t.same = l.bytes, l.from, l.to, false
}

func (l *layer) add(c byte, from, to int) {
	l.bytes, l.from, l.to = append(l.bytes, c), append(l.from, int32(from)), append(l.to, int32(to))
}

// String decodes a text.
func String(s string) string {
	if Clean([]byte(s), true) {
		return s
	}
	var t Text
	t.Fold([]byte(s), true)
	return string(t.Bytes)
}

// Message joins the parts of one message for a detector of phrases. Several parts are written
// twice, one on each line and all in one piece, because a phrase may be split between words or
// within one. Text in tag characters, which models read and people do not see, follows on a line of
// its own.
func Message(parts ...string) string {
	var b strings.Builder
	for i, p := range parts {
		if i > 0 {
			b.WriteByte('\n')
		}
		b.WriteString(String(p))
	}
	whole := parts
	if len(parts) > 1 {
		joined := strings.Join(parts, "")
		b.WriteByte('\n')
		b.WriteString(String(joined))
		whole = []string{joined}
	}
	for _, p := range whole {
		if h := hidden(p); h != "" {
			b.WriteByte('\n')
			b.WriteString(h)
		}
	}
	return b.String()
}

// hidden returns the text written in Unicode's tag characters, or "".
func hidden(s string) string {
	if !strings.Contains(s, "\xf3\xa0") {
		return ""
	}
	var out []byte
	for _, r := range s {
		if r >= 0xe0020 && r <= 0xe007e {
			out = append(out, byte(r-0xe0000))
		}
	}
	return string(out)
}

// Clean reports whether Fold would leave a text unchanged.
func Clean(b []byte, final bool) bool {
	for i := 0; i < len(b); {
		for i+8 <= len(b) && eightUsual(binary.LittleEndian.Uint64(b[i:])) {
			i += 8
		}
		if i == len(b) {
			break
		}
		c := b[i]
		if byteClass[c] == usual {
			i++
			continue
		}
		n := 0
		switch {
		case c == '&':
			_, n = entityAt(b, i, final, nil)
		case c == '%':
			_, n = percentAt(b, i, final, nil)
		case c == '\\':
			_, n = backslashAt(b, i, final, nil)
		case c < utf8.RuneSelf:
			return false // a control
		default:
			r, size := utf8.DecodeRune(b[i:])
			switch {
			case r == utf8.RuneError && size > 1, r != utf8.RuneError && !staysAsIs(r), !final && !utf8.FullRune(b[i:]):
				return false
			}
			i += size
			continue
		}
		if n != 0 {
			return false
		}
		i++
	}
	return true
}

// eightUsual reports whether none of eight bytes needs a closer look. It may be false although none
// does.
func eightUsual(x uint64) bool {
	const ones, tops = 0x0101010101010101, 0x8080808080808080
	// A byte is zero if its top bit gets set by subtracting one from it.
	zero := func(v uint64) uint64 { return (v - ones) &^ v }
	odd := x | (x-0x20*ones)&^x | zero(x^'&'*ones) | zero(x^'%'*ones) | zero(x^'\\'*ones) | zero(x^0x7f*ones)
	return odd&tops == 0
}

// Classes of bytes, for a quick look.
const (
	usual   = iota // stays as it is
	special        // needs a closer look
)

var byteClass = func() (t [256]byte) {
	for i := range t {
		switch c := byte(i); {
		case c >= utf8.RuneSelf, c == '&', c == '%', c == '\\', control(c):
			t[i] = special
		}
	}
	return t
}()

// control reports whether a byte is invisible. White space is not, nor are the two bytes that
// detectors use for their own purposes (0 and 0x1f).
func control(c byte) bool {
	return c > 0 && c < 0x1f && (c < '\t' || c > '\r') || c == 0x7f
}
