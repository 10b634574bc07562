package report

import (
	"bytes"
	"compress/gzip"
	_ "embed" // the fonts
	"fmt"
	"io"
	"strings"
	"sync"
	"unicode"

	"golang.org/x/image/font/gofont/goregular"
	"golang.org/x/image/font/sfnt"
	"golang.org/x/text/unicode/norm"
	"golang.org/x/text/unicode/runenames"
)

// The fonts for characters that the Go fonts do not have, in the order in which they are tried.
// fonts/README.md has their sources and licences.
const (
	more   = "more"   // DejaVu Sans: Armenian, Georgian, Vietnamese, symbols
	hangul = "hangul" // NanumSquare: Korean
	wide   = "wide"   // Droid Sans Fallback: Chinese, Japanese
)

var (
	//go:embed fonts/DejaVuSans.ttf.gz
	moreFont []byte
	//go:embed fonts/NanumSquareR.ttf.gz
	hangulFont []byte
	//go:embed fonts/DroidSansFallbackFull.ttf.gz
	wideFont []byte
)

// face is a font, and a function that reports whether it is used for a character.
type face struct {
	ttf []byte
	has func(rune) bool
}

func unpacked(packed []byte, scripts ...*unicode.RangeTable) func() face {
	return sync.OnceValue(func() face {
		z, err := gzip.NewReader(bytes.NewReader(packed))
		if err != nil {
			return face{has: func(rune) bool { return false }}
		}
		ttf, err := io.ReadAll(z)
		if err != nil {
			return face{has: func(rune) bool { return false }}
		}
		has := covered(ttf)
		return face{ttf, func(c rune) bool { return unicode.In(c, scripts...) && has(c) }}
	})
}

// The fonts, each unpacked when a report first needs it. Scripts that need shaping or are written
// from right to left (Arabic, Hebrew, those of India and South-East Asia) are left out, even if a
// font has their glyphs.
var (
	goFace     = sync.OnceValue(func() face { return face{goregular.TTF, covered(goregular.TTF)} })
	moreFace   = unpacked(moreFont, unicode.Armenian, unicode.Georgian, unicode.Latin, unicode.Greek, unicode.Cyrillic, unicode.S, unicode.P, unicode.N)
	hangulFace = unpacked(hangulFont, unicode.Hangul)
	wideFace   = unpacked(wideFont, unicode.Han, unicode.Hiragana, unicode.Katakana, unicode.Bopomofo, unicode.S, unicode.P, unicode.N, unicode.Lm)
)

// covered returns a function that reports whether a font has a character. It is false outside the
// basic multilingual plane, because fpdf cannot write those characters.
func covered(ttf []byte) func(rune) bool {
	font, err := sfnt.Parse(ttf)
	if err != nil {
		return func(r rune) bool { return r < unicode.MaxASCII }
	}
	var mu sync.Mutex
	known := map[rune]bool{}
	var buf sfnt.Buffer
	return func(c rune) bool {
		if c > 0xFFFF {
			return false
		}
		mu.Lock()
		defer mu.Unlock()
		has, ok := known[c]
		if !ok {
			index, err := font.GlyphIndex(&buf, c)
			has = err == nil && index != 0
			known[c] = has
		}
		return has
	}
}

// familyOf returns the font for a character. "" stands for the Go font of the text. has is false if
// no font has the character.
func familyOf(c rune) (family string, has bool) {
	switch {
	case goFace().has(c):
		return "", true
	case c > 0xFFFF:
		return "", false
	case moreFace().has(c):
		return more, true
	case hangulFace().has(c):
		return hangul, true
	case wideFace().has(c):
		return wide, true
	default:
		return "", false
	}
}

// drawable returns a text that the fonts can show, in Unicode's normal form NFC. Tabs and newlines
// become spaces. Other control characters, direction characters and characters that no font has
// become code points with their names, so that no character is lost.
func (r *report) drawable(says string) string {
	var b strings.Builder
	for _, c := range norm.NFC.String(says) {
		_, has := familyOf(c)
		switch {
		case c == '\t':
			b.WriteString("    ")
		case c == '\n':
			b.WriteByte(' ')
		case c < ' ' || !unicode.IsGraphic(c) || !has:
			r.strange = true
			b.WriteString(spelled(c))
		default:
			b.WriteRune(c)
		}
	}
	return b.String()
}

// spelled returns the code point and name of a character that cannot be shown, such as
// [U+1F600 GRINNING FACE].
func spelled(c rune) string {
	if name := runenames.Name(c); unicode.IsGraphic(c) && name != "" && name[0] != '<' {
		return fmt.Sprintf("[U+%04X %s]", c, name)
	}
	return fmt.Sprintf("[U+%04X]", c)
}

// stretch is a part of a line in one font.
type stretch struct{ family, text string }

// splitByFont splits a line into parts that each need only one font.
func splitByFont(line string) []stretch {
	var out []stretch
	for _, c := range line {
		family, _ := familyOf(c)
		if n := len(out); n > 0 && out[n-1].family == family {
			out[n-1].text += string(c)
		} else {
			out = append(out, stretch{family, string(c)})
		}
	}
	return out
}

// with sets a font. It adds the font to the report if it is one of those in this file and not yet
// added.
func (r *report) with(family, style string, size float64) {
	if add := map[string]func() face{more: moreFace, hangul: hangulFace, wide: wideFace}[family]; add != nil {
		if !r.added[family] {
			r.AddUTF8FontFromBytes(family, "", add().ttf)
			r.added[family] = true
		}
		style = ""
	}
	r.SetFont(family, style, size)
}

// widthOf returns the width of a character in mm, in the current font or in the one that replaces
// it.
func (r *report) widthOf(c rune) float64 {
	family, _ := familyOf(c)
	if family == "" {
		return r.GetStringWidth(string(c))
	}
	w, known := r.widths[c]
	if !known { // cached, because setting a font writes to the page
		r.with(family, "", r.size)
		w = r.GetStringWidth(string(c)) / r.size
		r.SetFont(r.family, r.style, r.size)
		r.widths[c] = w
	}
	return w * r.size
}

// draw writes a line at the current position in the current font. It uses other fonts for
// characters that this one does not have.
func (r *report) draw(height float64, line string) {
	for _, s := range splitByFont(line) {
		if s.family != "" {
			r.with(s.family, "", r.size)
		}
		r.CellFormat(r.GetStringWidth(s.text), height, s.text, "", 0, "LM", false, 0, "")
		if s.family != "" {
			r.SetFont(r.family, r.style, r.size)
		}
	}
}
