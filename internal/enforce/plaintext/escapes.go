package plaintext

import (
	"html"
	"unicode/utf8"
)

const (
	// maxName limits the length of an entity's name, in bytes.
	maxName = 32
	// maxZeros limits the digits of a numeric entity, including leading zeros.
	maxZeros = 64
	// maxSlashes limits the backslashes before an escape.
	maxSlashes = 64
)

var (
	percent   = decoder{'%', percentAt}
	entity    = decoder{'&', entityAt}
	backslash = decoder{'\\', backslashAt}
)

// percentAt decodes %34.
func percentAt(b []byte, i int, final bool, buf []byte) ([]byte, int) {
	if i+2 >= len(b) {
		if final || i+1 < len(b) && unhex(b[i+1]) < 0 {
			return nil, 0
		}
		return nil, -1
	}
	hi, lo := unhex(b[i+1]), unhex(b[i+2])
	if hi < 0 || lo < 0 {
		return nil, 0
	}
	c := byte(hi<<4 | lo)
	if c == 0 || c == 0x1f { // detectors use these bytes for their own purposes
		c = 1
	}
	return append(buf, c), 3
}

func unhex(c byte) int {
	switch {
	case c >= '0' && c <= '9':
		return int(c - '0')
	case c|0x20 >= 'a' && c|0x20 <= 'f':
		return int(c|0x20-'a') + 10
	}
	return -1
}

// appendRune appends a character. Invalid characters, and those that detectors use for their own
// purposes, become a control character, which is removed later.
func appendRune(buf []byte, r rune) []byte {
	if r == 0 || r == 0x1f || !utf8.ValidRune(r) {
		r = 1
	}
	return utf8.AppendRune(buf, r)
}

// entityAt decodes &amp;, &#52; and &#x34;, and omits the semicolon where browsers do.
func entityAt(b []byte, i int, final bool, buf []byte) ([]byte, int) {
	at := i + 1
	if at >= len(b) {
		if final {
			return nil, 0
		}
		return nil, -1
	}
	if b[at] == '#' {
		return numericEntity(b, i, final, buf)
	}
	for at < len(b) && at-i <= maxName && isAlnum(b[at]) {
		at++
	}
	if at == i+1 || at-i > maxName {
		return nil, 0
	}
	if at == len(b) && !final {
		return nil, -1
	}
	if at < len(b) && b[at] == ';' {
		name := string(b[i : at+1])
		if text := html.UnescapeString(name); text != name && (len(text) == 0 || text[len(text)-1] != ';' || name == "&semi;") {
			return append(buf, text...), at + 1 - i
		}
	}
	// Some names need no semicolon, whatever follows.
	for end := min(at, i+7); end > i+2; end-- {
		name := string(b[i:end])
		if text := html.UnescapeString(name); text != name {
			return append(buf, text...), end - i
		}
	}
	return nil, 0
}

func numericEntity(b []byte, i int, final bool, buf []byte) ([]byte, int) {
	at, base := i+2, 10
	if at < len(b) && b[at]|0x20 == 'x' {
		at, base = at+1, 16
	}
	from, r := at, 0
	for ; at < len(b) && at-from < maxZeros; at++ {
		d := unhex(b[at])
		if d < 0 || d >= base {
			break
		}
		r = min(r*base+d, utf8.MaxRune+1)
	}
	switch {
	case at == len(b) && !final:
		return nil, -1
	case at == from || at-from == maxZeros:
		return nil, 0
	}
	if at < len(b) && b[at] == ';' {
		at++
	}
	return appendRune(buf, rune(r)), at - i
}

func isAlnum(c byte) bool { return c >= '0' && c <= '9' || c|0x20 >= 'a' && c|0x20 <= 'z' }

// backslashAt decodes \u0034, \u{34}, \U00000034, \x34, \/ and the white space of \n, \r and \t.
// Text that was quoted several times has several backslashes.
func backslashAt(b []byte, i int, final bool, buf []byte) ([]byte, int) {
	at := i
	for at < len(b) && at-i < maxSlashes && b[at] == '\\' {
		at++
	}
	more := func() ([]byte, int) {
		if final {
			return nil, 0
		}
		return nil, -1
	}
	if at == len(b) {
		return more()
	}
	digits := 0
	switch b[at] {
	case 'n', 'r':
		return append(buf, '\n'), at + 1 - i
	case 't', 'f', 'b':
		return append(buf, ' '), at + 1 - i
	case '/':
		return append(buf, '/'), at + 1 - i
	case 'x':
		digits = 2
	case 'u':
		digits = 4
	case 'U':
		digits = 8
	default:
		return nil, 0
	}
	at++
	if at < len(b) && b[at] == '{' {
		r, n := hexRun(b, at+1, 8)
		switch end := at + 1 + n; {
		case end == len(b):
			return more()
		case n > 0 && b[end] == '}':
			return appendRune(buf, r), end + 1 - i
		}
		return nil, 0
	}
	r, n := hexRun(b, at, digits)
	if at+n == len(b) && n < digits {
		return more()
	}
	if n < digits {
		return nil, 0
	}
	at += n
	if r < 0xd800 || r > 0xdbff || digits != 4 {
		return appendRune(buf, r), at - i
	}
	// A high surrogate: the low one follows.
	next := at
	for next < len(b) && next-at < maxSlashes && b[next] == '\\' {
		next++
	}
	if next == len(b) {
		if final {
			return appendRune(buf, r), at - i
		}
		return nil, -1
	}
	if next > at && b[next] == 'u' {
		low, n := hexRun(b, next+1, 4)
		if next+1+n == len(b) && n < 4 && !final {
			return nil, -1
		}
		if n == 4 && low >= 0xdc00 && low <= 0xdfff {
			return appendRune(buf, (r-0xd800)<<10|(low-0xdc00)+0x10000), next + 5 - i
		}
	}
	return appendRune(buf, r), at - i
}

// hexRun reads up to most hexadecimal digits at i.
func hexRun(b []byte, i, most int) (r rune, n int) {
	for n < most && i+n < len(b) {
		d := unhex(b[i+n])
		if d < 0 {
			break
		}
		r = min(r<<4|rune(d), utf8.MaxRune+1)
		n++
	}
	return r, n
}
