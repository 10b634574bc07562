package simulator

import (
	"slices"
	"strings"
	"unicode"

	"golang.org/x/text/unicode/bidi"
)

// forms are the shapes of Arabic letters, as the Unicode standard decomposes
// them: alone, at the end of a word, at its beginning, in the middle; 0: none.
var forms = map[rune][4]rune{
	0x0621: {0xFE80, 0, 0, 0}, 0x0622: {0xFE81, 0xFE82, 0, 0}, 0x0623: {0xFE83, 0xFE84, 0, 0},
	0x0624: {0xFE85, 0xFE86, 0, 0}, 0x0625: {0xFE87, 0xFE88, 0, 0}, 0x0626: {0xFE89, 0xFE8A, 0xFE8B, 0xFE8C},
	0x0627: {0xFE8D, 0xFE8E, 0, 0}, 0x0628: {0xFE8F, 0xFE90, 0xFE91, 0xFE92}, 0x0629: {0xFE93, 0xFE94, 0, 0},
	0x062A: {0xFE95, 0xFE96, 0xFE97, 0xFE98}, 0x062B: {0xFE99, 0xFE9A, 0xFE9B, 0xFE9C}, 0x062C: {0xFE9D, 0xFE9E, 0xFE9F, 0xFEA0},
	0x062D: {0xFEA1, 0xFEA2, 0xFEA3, 0xFEA4}, 0x062E: {0xFEA5, 0xFEA6, 0xFEA7, 0xFEA8}, 0x062F: {0xFEA9, 0xFEAA, 0, 0},
	0x0630: {0xFEAB, 0xFEAC, 0, 0}, 0x0631: {0xFEAD, 0xFEAE, 0, 0}, 0x0632: {0xFEAF, 0xFEB0, 0, 0},
	0x0633: {0xFEB1, 0xFEB2, 0xFEB3, 0xFEB4}, 0x0634: {0xFEB5, 0xFEB6, 0xFEB7, 0xFEB8}, 0x0635: {0xFEB9, 0xFEBA, 0xFEBB, 0xFEBC},
	0x0636: {0xFEBD, 0xFEBE, 0xFEBF, 0xFEC0}, 0x0637: {0xFEC1, 0xFEC2, 0xFEC3, 0xFEC4}, 0x0638: {0xFEC5, 0xFEC6, 0xFEC7, 0xFEC8},
	0x0639: {0xFEC9, 0xFECA, 0xFECB, 0xFECC}, 0x063A: {0xFECD, 0xFECE, 0xFECF, 0xFED0}, 0x0641: {0xFED1, 0xFED2, 0xFED3, 0xFED4},
	0x0642: {0xFED5, 0xFED6, 0xFED7, 0xFED8}, 0x0643: {0xFED9, 0xFEDA, 0xFEDB, 0xFEDC}, 0x0644: {0xFEDD, 0xFEDE, 0xFEDF, 0xFEE0},
	0x0645: {0xFEE1, 0xFEE2, 0xFEE3, 0xFEE4}, 0x0646: {0xFEE5, 0xFEE6, 0xFEE7, 0xFEE8}, 0x0647: {0xFEE9, 0xFEEA, 0xFEEB, 0xFEEC},
	0x0648: {0xFEED, 0xFEEE, 0, 0}, 0x0649: {0xFEEF, 0xFEF0, 0xFBE8, 0xFBE9}, 0x064A: {0xFEF1, 0xFEF2, 0xFEF3, 0xFEF4},
	0x0671: {0xFB50, 0xFB51, 0, 0}, 0x0677: {0xFBDD, 0, 0, 0}, 0x0679: {0xFB66, 0xFB67, 0xFB68, 0xFB69},
	0x067A: {0xFB5E, 0xFB5F, 0xFB60, 0xFB61}, 0x067B: {0xFB52, 0xFB53, 0xFB54, 0xFB55}, 0x067E: {0xFB56, 0xFB57, 0xFB58, 0xFB59},
	0x067F: {0xFB62, 0xFB63, 0xFB64, 0xFB65}, 0x0680: {0xFB5A, 0xFB5B, 0xFB5C, 0xFB5D}, 0x0683: {0xFB76, 0xFB77, 0xFB78, 0xFB79},
	0x0684: {0xFB72, 0xFB73, 0xFB74, 0xFB75}, 0x0686: {0xFB7A, 0xFB7B, 0xFB7C, 0xFB7D}, 0x0687: {0xFB7E, 0xFB7F, 0xFB80, 0xFB81},
	0x0688: {0xFB88, 0xFB89, 0, 0}, 0x068C: {0xFB84, 0xFB85, 0, 0}, 0x068D: {0xFB82, 0xFB83, 0, 0},
	0x068E: {0xFB86, 0xFB87, 0, 0}, 0x0691: {0xFB8C, 0xFB8D, 0, 0}, 0x0698: {0xFB8A, 0xFB8B, 0, 0},
	0x06A4: {0xFB6A, 0xFB6B, 0xFB6C, 0xFB6D}, 0x06A6: {0xFB6E, 0xFB6F, 0xFB70, 0xFB71}, 0x06A9: {0xFB8E, 0xFB8F, 0xFB90, 0xFB91},
	0x06AD: {0xFBD3, 0xFBD4, 0xFBD5, 0xFBD6}, 0x06AF: {0xFB92, 0xFB93, 0xFB94, 0xFB95}, 0x06B1: {0xFB9A, 0xFB9B, 0xFB9C, 0xFB9D},
	0x06B3: {0xFB96, 0xFB97, 0xFB98, 0xFB99}, 0x06BA: {0xFB9E, 0xFB9F, 0, 0}, 0x06BB: {0xFBA0, 0xFBA1, 0xFBA2, 0xFBA3},
	0x06BE: {0xFBAA, 0xFBAB, 0xFBAC, 0xFBAD}, 0x06C0: {0xFBA4, 0xFBA5, 0, 0}, 0x06C1: {0xFBA6, 0xFBA7, 0xFBA8, 0xFBA9},
	0x06C5: {0xFBE0, 0xFBE1, 0, 0}, 0x06C6: {0xFBD9, 0xFBDA, 0, 0}, 0x06C7: {0xFBD7, 0xFBD8, 0, 0},
	0x06C8: {0xFBDB, 0xFBDC, 0, 0}, 0x06C9: {0xFBE2, 0xFBE3, 0, 0}, 0x06CB: {0xFBDE, 0xFBDF, 0, 0},
	0x06CC: {0xFBFC, 0xFBFD, 0xFBFE, 0xFBFF}, 0x06D0: {0xFBE4, 0xFBE5, 0xFBE6, 0xFBE7}, 0x06D2: {0xFBAE, 0xFBAF, 0, 0},
	0x06D3: {0xFBB0, 0xFBB1, 0, 0},
}

// lamAlef are the ligatures of lam with an alef: alone, and after a letter.
var lamAlef = map[rune][2]rune{0x0622: {0xFEF5, 0xFEF6}, 0x0623: {0xFEF7, 0xFEF8}, 0x0625: {0xFEF9, 0xFEFA}, 0x0627: {0xFEFB, 0xFEFC}}

const (
	lam     = 0x0644
	tatweel = 0x0640
)

// shaped joins Arabic letters: a PDF shows glyphs, not text. What is no Arabic
// letter stays as it is, so that shaping twice is shaping once.
func shaped(says string) string {
	if !strings.ContainsFunc(says, func(c rune) bool { return unicode.Is(unicode.Arabic, c) }) {
		return says
	}
	in := []rune(says)
	near := func(i, step int) rune { // the next letter, over marks
		for i += step; i >= 0 && i < len(in); i += step {
			if !unicode.Is(unicode.Mn, in[i]) {
				return in[i]
			}
		}
		return 0
	}
	var out []rune
	for i := 0; i < len(in); i++ {
		c := in[i]
		f, is := forms[c]
		if !is {
			out = append(out, c)
			continue
		}
		before, after := near(i, -1), near(i, 1)
		joined := before == tatweel || forms[before][2] != 0
		if l, has := lamAlef[after]; c == lam && has && i+1 < len(in) && in[i+1] == after {
			out = append(out, l[shapeOf(joined, false)])
			i++
			continue
		}
		joins := after == tatweel || forms[after][1] != 0
		form := f[shapeOf(joined && f[1] != 0, joins && f[2] != 0)]
		if form == 0 {
			form = c
		}
		out = append(out, form)
	}
	return string(out)
}

// shapeOf is the index of a form: whether the letter is joined to the one
// before it, and joins the one after.
func shapeOf(joined, joins bool) int {
	switch {
	case joined && joins:
		return 3
	case joins:
		return 2
	case joined:
		return 1
	default:
		return 0
	}
}

// visual is a line in the order in which its glyphs stand from left to right: the
// Unicode bidirectional algorithm (UAX #9) for a line that runs from left to
// right. Characters that steer it are not in it: they are spelled out.
func visual(line string) string {
	if !strings.ContainsFunc(line, rightToLeft) {
		return line
	}
	var in []cluster
	for _, c := range line {
		p, _ := bidi.LookupRune(c)
		if n := len(in); n > 0 && p.Class() == bidi.NSM {
			in[n-1].text += string(c)
			continue
		}
		in = append(in, cluster{string(c), c, p.Class()})
	}
	weak(in)
	brackets(in)
	neutral(in)
	levels := make([]int, len(in))
	for i, c := range in {
		switch c.class {
		case bidi.R:
			levels[i] = 1
		case bidi.EN, bidi.AN:
			levels[i] = 2
		}
	}
	for level := 2; level > 0; level-- { // L2
		for from := 0; from < len(in); from++ {
			to := from
			for to < len(in) && levels[to] >= level {
				to++
			}
			slices.Reverse(in[from:to])
			slices.Reverse(levels[from:to])
			from = max(from, to)
		}
	}
	var out strings.Builder
	for i, c := range in {
		if p, _ := bidi.LookupRune(c.base); levels[i] == 1 && p.IsBracket() { // L4
			c.text = bidi.ReverseString(string(c.base)) + c.text[len(string(c.base)):]
		}
		out.WriteString(c.text)
	}
	return out.String()
}

// cluster is a character with its marks, and what it counts as.
type cluster struct {
	text  string
	base  rune
	class bidi.Class
}

func rightToLeft(c rune) bool {
	p, _ := bidi.LookupRune(c)
	return p.Class() == bidi.R || p.Class() == bidi.AL
}

// weak resolves numbers and what belongs to them: rules W2 to W7. What is left
// is L, R, EN, AN or ON.
func weak(in []cluster) {
	strong := bidi.L
	for i := range in {
		switch in[i].class {
		case bidi.L, bidi.R, bidi.AL:
			strong = in[i].class
		case bidi.EN:
			if strong == bidi.AL {
				in[i].class = bidi.AN
			}
		}
	}
	at := func(i int) bidi.Class {
		if i < 0 || i >= len(in) {
			return bidi.L
		}
		return in[i].class
	}
	for i := range in {
		between := at(i-1) == at(i+1)
		switch c := at(i); {
		case c == bidi.AL:
			in[i].class = bidi.R
		case c == bidi.ES && between && at(i+1) == bidi.EN, c == bidi.CS && between && (at(i+1) == bidi.EN || at(i+1) == bidi.AN):
			in[i].class = at(i + 1)
		}
	}
	for i := range in {
		for from := i; in[i].class == bidi.EN && at(from-1) == bidi.ET; from-- {
			in[from-1].class = bidi.EN
		}
		if in[i].class == bidi.ET && at(i-1) == bidi.EN {
			in[i].class = bidi.EN
		}
	}
	strong = bidi.L
	for i := range in {
		switch in[i].class {
		case bidi.L, bidi.R:
			strong = in[i].class
		case bidi.EN:
			if strong == bidi.L {
				in[i].class = bidi.L
			}
		case bidi.AN:
		default:
			in[i].class = bidi.ON
		}
	}
}

// side is what a class counts as among neutrals: numbers as right to left.
func side(c bidi.Class) bidi.Class {
	if c == bidi.EN || c == bidi.AN {
		return bidi.R
	}
	return c
}

// brackets gives pairs of brackets one direction: rule N0.
func brackets(in []cluster) {
	var open []int
	for i, c := range in {
		p, _ := bidi.LookupRune(c.base)
		switch {
		case !p.IsBracket() || c.class != bidi.ON:
		case p.IsOpeningBracket():
			open = append(open, i)
		default:
			for n := len(open) - 1; n >= 0; n-- {
				if bidi.ReverseString(string(in[open[n]].base)) == string(c.base) {
					pair(in, open[n], i)
					open = open[:n]
					break
				}
			}
		}
	}
}

func pair(in []cluster, from, to int) {
	inside, before := bidi.ON, bidi.L
	for i := from + 1; i < to && inside != bidi.L; i++ {
		if s := side(in[i].class); s != bidi.ON {
			inside = s
		}
	}
	for i := from - 1; i >= 0; i-- {
		if s := side(in[i].class); s != bidi.ON {
			before = s
			break
		}
	}
	if inside == bidi.R && before != bidi.R {
		inside = bidi.L
	}
	in[from].class, in[to].class = inside, inside
}

// neutral gives what has no direction that of both its neighbours, or the
// line's: rules N1 and N2.
func neutral(in []cluster) {
	before := bidi.L
	for i := 0; i < len(in); i++ {
		if in[i].class != bidi.ON {
			before = side(in[i].class)
			continue
		}
		to := i
		for to < len(in) && in[to].class == bidi.ON {
			to++
		}
		after := bidi.L
		if to < len(in) {
			after = side(in[to].class)
		}
		for ; i < to; i++ {
			if in[i].class = bidi.L; before == after {
				in[i].class = before
			}
		}
		i--
	}
}
