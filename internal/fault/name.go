package fault

import (
	"strings"
	"unicode"
)

// NameOffence says what is wrong with the characters of a name, or "": a name has
// no control characters, no line separators and none that change the direction of text
// (Unicode's Bidi_Control), for with those it is read as another one.
func NameOffence(name string) string {
	if strings.ContainsFunc(name, func(r rune) bool {
		return unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r) || r == '\u2028' || r == '\u2029'
	}) {
		return "a name has no control characters and none that change the direction of text"
	}
	return ""
}
