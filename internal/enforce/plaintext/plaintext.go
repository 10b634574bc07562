// Package plaintext reads text as a person or a model reads it, so that a
// detector cannot be passed by another way to write the same. It decodes HTML
// entities, percent-encoding and backslash escapes, takes out what nobody sees
// (zero-width characters, soft hyphens, tag characters, controls), writes digits
// of every script as ASCII, applies compatibility normalisation (NFKC), and
// replaces letters that look like Latin ones by those. It is pure, and it knows
// for every byte of the result where it stood, so that a mask acts on the original.
package plaintext

import (
	"encoding/binary"
	"slices"
	"strings"
	"unicode/utf8"
)

// maxRounds bounds how often the three decodings are applied one within the
// other: &amp;#52; takes two rounds.
const maxRounds = 4

// Text is a text that was read, and where its bytes stood. Its memory is used
// again by the next Fold. The zero value is ready.
type Text struct {
	// Bytes is what detectors look at. It may be the original itself and must
	// not be changed.
	Bytes []byte
	// same: Bytes is the beginning of the original, byte for byte.
	same bool
	// from and to are where the source of each byte begins and ends in the original.
	from, to []int32
	// read is how much of the original Bytes stands for.
	read int

	spare layer
}

// layer is the result of one decoding.
type layer struct {
	bytes    []byte
	from, to []int32
}

// Fold reads raw. With final unset more text follows, and an escape, a character
// or the like that is not whole at the end is left for later (Read).
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

// Original is the place in the original of what stands at start to end.
func (t *Text) Original(start, end int) (from, to int) {
	switch {
	case t.same:
		return start, end
	case start >= end:
		return t.Place(start), t.Place(end)
	}
	return int(t.from[start]), int(t.to[end-1])
}

// Place is the place in the original of the byte at i; for the end of the text,
// what was read.
func (t *Text) Place(i int) int {
	switch {
	case t.same:
		return i
	case i >= len(t.from):
		return t.read
	}
	return int(t.from[i])
}

// At is the first byte whose source begins at or after a place in the original.
func (t *Text) At(place int) int {
	if t.same {
		return min(place, len(t.Bytes))
	}
	i, _ := slices.BinarySearch(t.from, int32(place))
	return i
}

// decoder takes what is written in one way of escaping.
type decoder struct {
	sign byte
	// one decodes what stands at i, which holds sign: the text and its length
	// in b. A length of 0: nothing is encoded there; below 0: more is needed to tell.
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

// apply replaces the text by what a decoder makes of it; whole is false where
// it left the end for later.
func (t *Text) apply(d decoder, final bool) (whole bool) {
	var buf [8]byte
	in := t.Bytes
	out := t.fresh()
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
	t.become(out)
	return whole
}

// fresh is an empty layer, in the memory of one that is not needed any more.
func (t *Text) fresh() layer {
	l := t.spare
	l.bytes, l.from, l.to = l.bytes[:0], l.from[:0], l.to[:0]
	return l
}

// become makes a layer the text.
func (t *Text) become(l layer) {
	t.spare = layer{from: t.from, to: t.to}
	if !t.same {
		t.spare.bytes = t.Bytes
	}
	t.Bytes, t.from, t.to, t.same = l.bytes, l.from, l.to, false
}

func (l *layer) add(c byte, from, to int) {
	l.bytes, l.from, l.to = append(l.bytes, c), append(l.from, int32(from)), append(l.to, int32(to))
}

// String is a text as detectors read it.
func String(s string) string {
	if Clean([]byte(s), true) {
		return s
	}
	var t Text
	t.Fold([]byte(s), true)
	return string(t.Bytes)
}

// Message is what the parts of one message say, for a detector of phrases. Of
// several parts it gives two readings, a line each part and all in one piece,
// since a phrase may be parted between words or within one. Text that is written
// in tag characters, which models read and people do not see, follows on a line
// of its own.
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
		if h := Hidden(p); h != "" {
			b.WriteByte('\n')
			b.WriteString(h)
		}
	}
	return b.String()
}

// Hidden is the text that is written in Unicode's tag characters; empty if none is.
func Hidden(s string) string {
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

// Clean reports whether Fold would leave a text as it is.
func Clean(b []byte, final bool) bool {
	for i := 0; i < len(b); {
		for i+8 <= len(b) && eightUsual(binary.LittleEndian.Uint64(b[i:])) {
			i += 8
		}
		if i == len(b) {
			break
		}
		c := b[i]
		if looks[c] == usual {
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
			case r == utf8.RuneError && size > 1, r != utf8.RuneError && !untouched(r), !final && !utf8.FullRune(b[i:]):
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

// eightUsual reports, of eight bytes at a time, that none of them has to be
// looked at. It may be false of bytes that have not.
func eightUsual(x uint64) bool {
	const ones, tops = 0x0101010101010101, 0x8080808080808080
	// A byte is zero where its top bit appears by subtracting one from it.
	zero := func(v uint64) uint64 { return (v - ones) &^ v }
	odd := x | (x-0x20*ones)&^x | zero(x^'&'*ones) | zero(x^'%'*ones) | zero(x^'\\'*ones) | zero(x^0x7f*ones)
	return odd&tops == 0
}

// classes of bytes, for a quick look.
const (
	usual   = iota // stays as it is
	special        // is to be looked at
)

var looks = func() (t [256]byte) {
	for i := range t {
		switch c := byte(i); {
		case c >= utf8.RuneSelf, c == '&', c == '%', c == '\\', control(c):
			t[i] = special
		}
	}
	return t
}()

// control reports a byte that nobody sees. White space is none, nor are the two
// bytes that detectors give a meaning of their own (0 and 0x1f).
func control(c byte) bool {
	return c > 0 && c < 0x1f && (c < '\t' || c > '\r') || c == 0x7f
}
