package rego

import (
	"errors"
	"maps"
	"slices"
	"strings"
	"sync"

	"golang.org/x/text/unicode/norm"

	"github.com/gatehouse-dev/gatehouse/internal/rego/target"
)

// Applications read several spellings of a path as the same. They ignore case, the parameters of
// a segment (`;jsessionid=…`), and a final dot or space. They decode escapes once more, replace
// Unicode compatibility forms, drop invisible characters, and cut off a format (`.json`) after
// the last segment. Folding gives all these spellings one form, so that a path matches the
// resource that such an application would serve. A resource whose application distinguishes
// spellings has the PathMatching PathExact.

// foldRounds is how often escapes are decoded: by the front server, by the server behind it, and
// once more for escapes that the second decoding produced.
const foldRounds = 3

var errPathHidden = errors.New("the path has another meaning for servers that decode it twice or drop parts of its segments")

// foldTables map escapes to their replacements, both in lower case.
type foldTables struct {
	// unreserved has the escapes of letters, digits, hyphen, dot, underscore and tilde. Such an
	// escape means the same as the character (RFC 3986 section 6.2.2.2).
	unreserved map[string]string
	// ascii has all escapes of one byte below 0x80. wide adds those of characters that have a
	// compatibility form in ASCII, or a lower case.
	ascii, wide map[string]string

	asciiReplacer, wideReplacer *strings.Replacer
}

const (
	// lastCased is the last character beyond ASCII whose case is folded: Latin, Greek, Cyrillic.
	lastCased = 0x52f
	// lastCompatible is the last character that has a form in ASCII.
	lastCompatible = 0x1ffff
)

// ignorable are ranges of Unicode's default ignorable characters: NFKC_Casefold, file systems and
// the collations of databases drop them.
var ignorable = [][2]rune{
	{0xad, 0xad},
	{0x34f, 0x34f},
	{0x61c, 0x61c},
	{0x115f, 0x1160},
	{0x17b4, 0x17b5},
	{0x180b, 0x180f},
	{0x200b, 0x200f},
	{0x202a, 0x202e},
	{0x2060, 0x206f},
	{0x3164, 0x3164},
	{0xfe00, 0xfe0f},
	{0xfeff, 0xfeff},
	{0xffa0, 0xffa0},
	{0x1d173, 0x1d17a},
	{0xe0001, 0xe0001},
	{0xe0020, 0xe007f},
	{0xe0100, 0xe01ef},
}

var folding = sync.OnceValue(func() *foldTables {
	t := &foldTables{unreserved: map[string]string{}, ascii: map[string]string{}, wide: map[string]string{}}
	for c := range 0x80 {
		key := strings.ToLower(escaped(string(rune(c))))
		t.ascii[key] = strings.ToLower(string(rune(c)))
		t.wide[key] = t.ascii[key]
		if target.Unreserved(byte(c)) {
			t.unreserved[escaped(string(rune(c)))], t.unreserved[key] = string(rune(c)), string(rune(c))
		}
	}
	for r := rune(0x80); r <= lastCompatible; r++ {
		switch r {
		case 0x3400:
			r = 0xa000 // ideographs
		case 0xac00:
			r = 0xe000 // Hangul
		}
		if r > lastCased && norm.NFKC.IsNormalString(string(r)) {
			continue
		}
		form := strings.ToLower(strings.ToUpper(norm.NFKC.String(string(r))))
		if form == string(r) || !isASCII(form) && r > lastCased {
			continue
		}
		if !isASCII(form) {
			form = strings.ToLower(escaped(strings.ToLower(strings.ToUpper(string(r)))))
		}
		if key := strings.ToLower(escaped(string(r))); form != key {
			t.wide[key] = form
		}
	}
	for _, span := range ignorable {
		for r := span[0]; r <= span[1]; r++ {
			t.wide[strings.ToLower(escaped(string(r)))] = ""
		}
	}
	t.wide[strings.ToLower(escaped("\u0085"))] = "\n" // NEL, which Unicode counts as white space
	t.compose()
	for b := 0x80; b < 0xc0; b++ {
		if b&15 >= 10 {
			// The last digit of this escape looks like a letter that an accent may follow. The
			// table replaces the escape with itself, so that the letter is not found.
			key := strings.ToLower(escaped(string([]byte{byte(b)})))
			t.wide[key] = key
		}
	}
	t.asciiReplacer, t.wideReplacer = replacer(t.ascii), replacer(t.wide)
	return t
})

// compose adds replacements of a letter and the combining accent after it, as file systems write
// them (NFD), with the single character for both. Letters with two accents need two rounds. A
// letter that has a replacement of its own is replaced first, so its character with the accent is
// replaced with what that leads to: long s with a dot becomes s with a dot.
func (t *foldTables) compose() {
	for r := rune(0xc0); r <= 0x1eff; r++ {
		if r == lastCased+1 {
			r = 0x1e00 // Latin letters of Vietnamese and others
		}
		parts := []rune(norm.NFD.String(string(r)))
		last := len(parts) - 1
		if last < 1 || norm.NFC.String(string(r)) != string(r) || strings.ToLower(string(r)) != string(r) {
			continue
		}
		base, whole := norm.NFC.String(string(parts[:last])), strings.ToLower(escaped(string(r)))
		if !isASCII(base) {
			base = strings.ToLower(escaped(base))
		}
		if _, replaced := t.wide[base]; replaced {
			t.wide[whole] = strings.ToLower(escaped(norm.NFKC.String(string(r))))
			continue
		}
		t.wide[base+strings.ToLower(escaped(string(parts[last])))] = whole
	}
}

// replacer returns a replacer that prefers the first of two keys in sorted order, as OPA's
// strings.replace_n does.
func replacer(table map[string]string) *strings.Replacer {
	pairs := make([]string, 0, 2*len(table))
	for _, from := range slices.Sorted(maps.Keys(table)) {
		pairs = append(pairs, from, table[from])
	}
	return strings.NewReplacer(pairs...)
}

func isASCII(s string) bool {
	for i := range len(s) {
		if s[i] >= 0x80 {
			return false
		}
	}
	return true
}

// escaped returns s with every byte percent-encoded, in upper case.
func escaped(s string) string {
	const hex = "0123456789ABCDEF"
	var b strings.Builder
	for i := range len(s) {
		b.WriteByte('%')
		b.WriteByte(hex[s[i]>>4])
		b.WriteByte(hex[s[i]&15])
	}
	return b.String()
}

// isFolded reports whether folding does not change a canonical path. It is the fast path for most
// requests. It may return false for a path that folding leaves as it is.
func isFolded(path string) bool {
	for i := range len(path) {
		switch c := path[i]; {
		case c >= 'A' && c <= 'Z', c == '%', c == ';', c == '+':
			return false
		case c == ':' && i+1 < len(path) && path[i+1] == '$':
			return false
		case c == '.' && (i+1 == len(path) || path[i+1] == '/'):
			return false
		}
	}
	return true
}

// location is a request's path in the forms that the matcher looks up.
type location struct {
	path   string // canonical; empty if the request has none
	folded string // path with each segment folded
	// others are folded forms of the path for servers that divide it into other segments. There
	// are some if folding empties a segment or produces slashes. Such servers differ in whether
	// they look for parameters before or after they decode escapes.
	others []string
	hidden bool // folding produces a segment that steps up
}

// innerSlash stands for a slash inside a folded segment.
const innerSlash = "\x00"

// foldPath folds a canonical path.
func foldPath(path string) location {
	if path == "" || isFolded(path) {
		return location{path: path, folded: path}
	}
	l := location{path: path}
	var folded strings.Builder
	segs := strings.Split(strings.ToLower(path[1:]), "/")
	divided := false
	for _, seg := range segs {
		s := unescape(seg, foldRounds)
		for _, p := range splitSlashes(s) {
			l.hidden = l.hidden || isStepUp(p)
		}
		f := foldSegment(s)
		if f == "" || strings.ContainsAny(s, `/\`) {
			divided = true
		}
		if f == "" {
			f = s
		}
		folded.WriteByte('/')
		folded.WriteString(strings.ReplaceAll(f, "/", innerSlash))
	}
	l.folded = folded.String()
	if divided {
		for before := range foldRounds + 1 {
			l.others = append(l.others, otherSegments(segs, before))
		}
	}
	return l
}

// otherSegments returns the path that a server sees which decodes escapes the given number of
// times before it cuts parameters off, and looks for slashes after that. With foldRounds, it looks
// for slashes before it cuts parameters off.
func otherSegments(segs []string, before int) string {
	var out strings.Builder
	for _, seg := range segs {
		s := unescape(seg, before)
		if before < foldRounds {
			s = unescape(cutSegment(s), foldRounds-before)
		}
		for _, p := range splitSlashes(s) {
			if f := foldSegment(p); f != "" {
				out.WriteByte('/')
				out.WriteString(f)
			}
		}
	}
	if out.Len() == 0 {
		return "/"
	}
	return out.String()
}

// splitSlashes splits a segment at slashes and backslashes; it returns no empty parts.
func splitSlashes(s string) []string {
	return strings.FieldsFunc(s, func(r rune) bool { return r == '/' || r == '\\' })
}

// unescape decodes the escapes of a segment in lower case, as often as rounds says: decoding may
// produce new escapes.
func unescape(seg string, rounds int) string {
	t := folding()
	for range rounds {
		switch {
		case strings.IndexByte(seg, '%') < 0:
			return seg
		case wideEscape(seg):
			seg = t.wideReplacer.Replace(seg)
		default:
			seg = t.asciiReplacer.Replace(seg)
		}
	}
	return seg
}

// wideEscape reports whether a segment has an escape of a byte beyond ASCII.
func wideEscape(seg string) bool {
	for i := 0; i+1 < len(seg); i++ {
		if seg[i] == '%' && seg[i+1] >= 'c' && seg[i+1] <= 'f' {
			return true
		}
	}
	return false
}

// Servers cut a segment at the first of cutChars. They trim whiteSpace from its start and
// trimmedEnd from its end.
const (
	cutChars   = ";?#\x00"
	whiteSpace = " \t\n\v\f\r"
	trimmedEnd = "." + whiteSpace
)

// foldSegment drops a `;`, `?`, `#` or NUL and what follows, the name of an NTFS stream, final
// dots, and white space at both ends. A plus becomes a space.
func foldSegment(s string) string {
	return strings.TrimLeft(strings.TrimRight(plusAsSpace(cutSegment(s)), trimmedEnd), whiteSpace)
}

// plusAsSpace replaces each plus with a space, as servers do that decode a path like a form.
func plusAsSpace(s string) string { return strings.ReplaceAll(s, "+", " ") }

// withoutFormat returns a folded path without the suffix that some servers take for the format of
// the answer: from the last dot of the last segment (Rails), and from the first dot (Spring's
// suffix patterns). A result is empty if there is no such suffix, or if both are the same.
func withoutFormat(folded string) (bare [2]string) {
	last := strings.LastIndexByte(folded, '.')
	segment := strings.LastIndexByte(folded, '/') + 1
	if last <= segment {
		return bare
	}
	bare[0] = folded[:last]
	if first := segment + strings.IndexByte(folded[segment:], '.'); first > segment && first < last && folded[first-1:first] != innerSlash {
		bare[1] = folded[:first]
	}
	return bare
}

// cutSegment returns the part of a segment before its parameters and its NTFS stream.
func cutSegment(s string) string {
	if i := strings.IndexAny(s, cutChars); i >= 0 {
		s = s[:i]
	}
	return withoutStream(s)
}

// withoutStream returns a file name without the NTFS stream and stream type that Windows allows
// after it: `a.txt::$data` is the content of a.txt, `d:$i30:$index_allocation` the folder d.
func withoutStream(s string) string {
	if i := strings.IndexByte(s, ':'); i >= 0 && strings.Contains(s[i+1:], ":$") {
		return s[:i]
	}
	return s
}

// isStepUp reports whether some servers read a segment as `..`.
func isStepUp(s string) bool { return strings.Trim(plusAsSpace(cutSegment(s)), whiteSpace) == ".." }

// withoutParameters returns a canonical path without the parameters of its segments. A segment
// that consists of parameters only stays as it is.
func withoutParameters(path string) string {
	if strings.IndexByte(path, ';') < 0 {
		return path
	}
	segs := strings.Split(path, "/")
	for i, s := range segs {
		if bare, _, _ := strings.Cut(s, ";"); bare != "" {
			segs[i] = bare
		}
	}
	return strings.Join(segs, "/")
}
