// Package spelling finds member names that lenient decoders take for others.
// Go's encoding/json, .NET and many others read `Method` as `method`, so a body
// can name a member that a strict reader does not see. It is pure.
package spelling

import "unicode"

// longest is the maximum length in bytes of a spelling of a known name: letters that fold to an
// ASCII letter take at most three bytes.
const longest = 128

// Names is a set of member names that a parser knows.
type Names map[string]string // folded to exact

// New returns a set. Two names must differ in more than case.
func New(names ...string) Names {
	set := make(Names, len(names))
	for _, name := range names {
		set[string(fold(nil, name))] = name
	}
	return set
}

// Exact reports whether the set contains name as it is written.
func (n Names) Exact(name string) bool {
	known, ok := n.Find(name)
	return ok && known == name
}

// Find returns the known name that name means, in any spelling.
func (n Names) Find(name string) (known string, ok bool) {
	if len(name) > longest {
		return "", false
	}
	var room [longest]byte
	known, ok = n[string(fold(room[:0], name))]
	return known, ok
}

// Misspelt returns the known name that differs from name in case only.
func (n Names) Misspelt(name string) (known string, found bool) {
	known, ok := n.Find(name)
	return known, ok && known != name
}

// fold returns s in a single spelling, in the memory of dst: Unicode's simple case folding, in lower case for ASCII. The
// Kelvin sign becomes k and the long s becomes s. The Turkish dotted and dotless i become i, as in
// Java.
func fold(dst []byte, s string) []byte {
	for i := range len(s) {
		c := s[i]
		if c >= 0x80 {
			return foldRunes(dst[:0], s)
		}
		if 'A' <= c && c <= 'Z' {
			c |= 0x20
		}
		dst = append(dst, c)
	}
	return dst
}

func foldRunes(dst []byte, s string) []byte {
	for _, r := range s {
		switch least := foldRune(r); {
		case 'A' <= least && least <= 'Z':
			dst = append(dst, byte(least)|0x20)
		case r == 'İ' || r == 'ı':
			dst = append(dst, 'i')
		case r == '\u0307': // the dot that lower case makes of İ
		default:
			dst = append(dst, string(least)...)
		}
	}
	return dst
}

// foldRune returns the least rune that differs from r in case only.
func foldRune(r rune) rune {
	least := r
	for f := unicode.SimpleFold(r); f != r; f = unicode.SimpleFold(f) {
		least = min(least, f)
	}
	return least
}
