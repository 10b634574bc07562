// Package spelling finds member names that lenient decoders take for others.
// Go's encoding/json, .NET and many others read `Method` as `method`, so a body
// can name a member that a strict reader does not see. It is pure.
package spelling

import "unicode"

// longest is the length in bytes past which no spelling of a known name goes:
// letters that fold to an ASCII letter take at most three bytes.
const longest = 128

// Names is a set of member names that a parser knows.
type Names map[string]string // folded to exact

// Known makes a set. Two names must differ in more than case.
func Known(names ...string) Names {
	set := make(Names, len(names))
	for _, name := range names {
		set[string(fold(nil, name))] = name
	}
	return set
}

// Exact reports whether name is in the set as it is written.
func (n Names) Exact(name string) bool {
	known, ok := n.Find(name)
	return ok && known == name
}

// Find gives the known name that name is, in any spelling.
func (n Names) Find(name string) (known string, ok bool) {
	if len(name) > longest {
		return "", false
	}
	var room [longest]byte
	known, ok = n[string(fold(room[:0], name))]
	return known, ok
}

// Misspelt gives the known name that name equals but for case.
func (n Names) Misspelt(name string) (known string, is bool) {
	known, ok := n.Find(name)
	return known, ok && known != name
}

// fold appends s in one spelling: Unicode's simple case folding, to lower case
// in ASCII (the Kelvin sign is a k, the long s an s), and the Turkish letters
// without or with a dot as i, which Java folds so.
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

// foldRune is the least rune that r equals but for case.
func foldRune(r rune) rune {
	least := r
	for f := unicode.SimpleFold(r); f != r; f = unicode.SimpleFold(f) {
		least = min(least, f)
	}
	return least
}
