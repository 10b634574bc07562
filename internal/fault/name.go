package fault

import (
	"strings"
	"unicode"
)

// NameOffence returns what is wrong with the characters of a name; "" if it is valid. A name must
// not contain control characters, line separators, characters that change the direction of text
// (Unicode's Bidi_Control), or invisible characters, because people would read it as another name.
// Joiners and variation selectors are allowed: some scripts and emoji need them.
func NameOffence(name string) string {
	if strings.ContainsFunc(name, func(r rune) bool {
		return unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r) || r == '\u2028' || r == '\u2029' || unicode.Is(unseen, r)
	}) {
		return "a name must not have control characters, invisible characters or characters that change the direction of text"
	}
	return ""
}

// unseen are characters without a look of their own that no script needs within a name.
var unseen = &unicode.RangeTable{
	R16: []unicode.Range16{
		{0xad, 0xad, 1},
		{0x34f, 0x34f, 1},
		{0x115f, 0x1160, 1},
		{0x17b4, 0x17b5, 1},
		{0x180e, 0x180e, 1},
		{0x200b, 0x200b, 1},
		{0x2060, 0x206f, 1},
		{0x3164, 0x3164, 1},
		{0xfeff, 0xfeff, 1},
		{0xffa0, 0xffa0, 1},
		{0xfff9, 0xfffb, 1},
	},
	R32:         []unicode.Range32{{0x1d173, 0x1d17a, 1}, {0xe0001, 0xe0001, 1}, {0xe0020, 0xe007f, 1}},
	LatinOffset: 1,
}
