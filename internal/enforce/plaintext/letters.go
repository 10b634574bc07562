package plaintext

import (
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
)

// letters removes invisible characters, and writes digits, letters and white space in their
// plainest form. It is the last step of decoding.
func (t *Text) letters(final bool) {
	in := t.Bytes
	out := t.emptyLayer()
	last := -1 // where the previous character begins in out, or -1
	i := 0
	for i < len(in) {
		c := in[i]
		if c < utf8.RuneSelf {
			if !control(c) {
				last = len(out.bytes)
				from, to := t.Original(i, i+1)
				out.add(c, from, to)
			}
			i++
			continue
		}
		if !final && !utf8.FullRune(in[i:]) {
			break
		}
		r, n := utf8.DecodeRune(in[i:])
		from, to := t.Original(i, i+n)
		i += n
		switch {
		case r == utf8.RuneError && n == 1:
			last = len(out.bytes)
			out.add(in[i-1], from, to)
		case invisible(r):
		case accent(r):
			if both := composed(out.bytes, last, r); both != 0 {
				from = int(out.from[last])
				out.bytes, out.from, out.to = out.bytes[:last], out.from[:last], out.to[:last]
				out.addRune(both, from, to)
			}
		case staysAsIs(r):
			last = len(out.bytes)
			out.addRune(r, from, to)
		default:
			for _, p := range string(plain(r)) {
				last = len(out.bytes)
				out.addRune(p, from, to)
			}
		}
	}
	if i < len(in) {
		t.read = t.Place(i)
	}
	t.replace(out)
}

func (l *layer) addRune(r rune, from, to int) {
	var buf [utf8.UTFMax]byte
	for _, c := range buf[:utf8.EncodeRune(buf[:], r)] {
		l.add(c, from, to)
	}
}

// composed returns the letter that a letter and an accent form together, or 0.
func composed(text []byte, last int, accent rune) rune {
	if last < 0 {
		return 0
	}
	both := string(text[last:]) + string(accent)
	one := norm.NFC.String(both)
	if r, n := utf8.DecodeRuneInString(one); n == len(one) && one != both && r != utf8.RuneError {
		return r
	}
	return 0
}

// accent reports whether r combines with the character before it.
func accent(r rune) bool {
	return r >= 0x300 && r <= 0x36f || r >= 0x1ab0 && r <= 0x1aff || r >= 0x1dc0 && r <= 0x1dff || r >= 0x20d0 && r <= 0x20ff || r >= 0xfe20 && r <= 0xfe2f
}

// invisible reports whether a character is invisible: format characters, zero-width characters,
// variation selectors, tags, controls, and the replacement character for invalid bytes.
func invisible(r rune) bool {
	switch {
	case r >= 0x80 && r < 0xa0:
		return r != 0x85
	case r == 0xad, r == 0x34f, r == 0x61c, r == 0x115f, r == 0x1160, r == 0x17b4, r == 0x17b5, r >= 0x180b && r <= 0x180f,
		r >= 0x200b && r <= 0x200f, r >= 0x202a && r <= 0x202e, r >= 0x2060 && r <= 0x206f, r == 0x2800, r == 0x3164,
		r >= 0xfe00 && r <= 0xfe0f, r == 0xfeff, r == 0xffa0, r >= 0xfff0 && r <= 0xfffb, r == utf8.RuneError,
		r >= 0x1bca0 && r <= 0x1bca3, r >= 0x1d173 && r <= 0x1d17a, r >= 0xe0000 && r <= 0xe0fff:
		return true
	}
	return false
}

// staysAsIs reports whether a character certainly stays as it is. It covers the characters that
// most texts consist of, and may be false for others that stay too.
func staysAsIs(r rune) bool {
	switch {
	case r < 0x80:
		return true
	case r < 0xc0:
		return r >= 0xa1 && r <= 0xa7 || r == 0xa9 || r == 0xab || r == 0xac || r == 0xae || r == 0xb0 || r == 0xb1 || r == 0xb6 || r == 0xb7 || r == 0xbb || r == 0xbf
	case r < 0x250:
		return r != 0x131 && r != 0x132 && r != 0x133 && r != 0x13f && r != 0x140 && r != 0x149 && r != 0x17f && (r < 0x1c0 || r > 0x1cc) && (r < 0x1f1 || r > 0x1f3)
	case r >= 0x386 && r <= 0x52f: // Greek and Cyrillic
		return lookalike[r] == 0 && r != 0x3d0 && r != 0x3d1 && r != 0x3d5 && r != 0x3d6 && r != 0x3f0 && r != 0x3f1 && r != 0x3f2 && r != 0x3f4 && r != 0x3f5 && r != 0x3f9
	case r >= 0x5d0 && r <= 0x5ea, r >= 0x620 && r <= 0x65f, r >= 0x66e && r <= 0x6d3, r >= 0x904 && r <= 0x939, r >= 0xe01 && r <= 0xe3a && r != 0xe33, r >= 0xac00 && r <= 0xd7a3:
		return true
	case r == 0x2010, r >= 0x2012 && r <= 0x2016, r >= 0x2018 && r <= 0x2023, r == 0x20ac, r >= 0x2190 && r <= 0x2211, r >= 0x2500 && r <= 0x26ff:
		return true
	case r >= 0x3041 && r <= 0x3096, r >= 0x30a1 && r <= 0x30fe, r == 0x3001, r >= 0x3008 && r <= 0x3011, r >= 0x3400 && r <= 0x9fff:
		return true
	}
	return r >= 0x1f300 && r <= 0x1faff
}

// plain returns the replacement of a character: its compatibility form, with ASCII digits, and with
// Latin letters for those that look like them.
func plain(r rune) []rune {
	if p := single(r); p != r {
		return []rune{p}
	}
	out := []rune(norm.NFKC.String(string(r)))
	for i, p := range out {
		out[i] = single(p)
	}
	return out
}

// single returns the replacement of a character according to our own tables.
func single(r rune) rune {
	switch {
	case r < 0x80:
		return r
	case lookalike[r] != 0:
		return lookalike[r]
	case r == 0xa0, r == 0x1680, r >= 0x2000 && r <= 0x200a, r == 0x202f, r == 0x205f, r == 0x3000:
		return ' '
	case r == 0x85, r == 0x2028, r == 0x2029:
		return '\n'
	case r >= 0x2776 && r <= 0x277e: // circled digits without a compatibility form
		return '1' + r - 0x2776
	case r >= 0x2780 && r <= 0x2788:
		return '1' + r - 0x2780
	case r >= 0x278a && r <= 0x2792:
		return '1' + r - 0x278a
	case r == 0x24ff, r == 0x1f10b, r == 0x1f10c, r == 0x24ea:
		return '0'
	case r >= 0x24f5 && r <= 0x24fd:
		return '1' + r - 0x24f5
	case unicode.Is(unicode.Nd, r):
		return digit(r)
	}
	return r
}

// digit returns the ASCII form of a decimal digit of any script. Unicode has them in runs of ten
// that begin with zero.
func digit(r rune) rune {
	for _, run := range unicode.Nd.R16 {
		if r >= rune(run.Lo) && r <= rune(run.Hi) {
			return '0' + (r-rune(run.Lo))%10
		}
	}
	for _, run := range unicode.Nd.R32 {
		if r >= rune(run.Lo) && r <= rune(run.Hi) {
			return '0' + (r-rune(run.Lo))%10
		}
	}
	return r
}

// lookalike maps letters and signs to the ASCII ones that they look like.
var lookalike = func() map[rune]rune {
	out := map[rune]rune{}
	for to, from := range map[rune]string{
		'A': "ΑАᎪᗅꓮ", 'B': "ΒВᏴᗷꓐ", 'C': "СᏟϹꓚ", 'D': "Ꭰᗞꓓ", 'E': "ΕЕᎬꓰ", 'F': "ϜᖴꓝҒ", 'G': "ԌᏀꓖ", 'H': "ΗНᎻᕼꓧ", 'I': "ΙІӀꓲ", 'J': "ЈᎫᒍꓙ",
		'K': "ΚКᏦꓗ", 'L': "ᏞᒪꓡԼ", 'M': "ΜМᎷꓟ", 'N': "Νꓠ", 'O': "ΟОՕꓳ", 'P': "ΡРᏢꓑ", 'Q': "Ԛ", 'R': "ᎡᏒꓣ", 'S': "ЅՏᏚꓢ", 'T': "ΤТᎢꓔ",
		'U': "Սꓴ", 'V': "ѴᏙꓦ", 'W': "ԜᎳꓪ", 'X': "ΧХꓫ", 'Y': "ΥҮУꓬ", 'Z': "ΖᏃꓜ",
		'a': "аɑα", 'b': "Ьᖯ", 'c': "сϲᴄ", 'd': "ԁᏧ", 'e': "еҽ", 'g': "ɡց", 'h': "һհ", 'i': "іıɩι", 'j': "јϳ", 'k': "кκᴋ", 'l': "ӏ", 'm': "мᴍ", 'n': "ոռ",
		'o': "оοօᴏ", 'p': "рρ", 'q': "ԛգ", 'r': "гᴦ", 's': "ѕꜱ", 't': "тᴛ", 'u': "υսᴜ", 'v': "νѵᴠ", 'w': "ԝᴡ", 'x': "хχ", 'y': "уүγ", 'z': "ᴢ",
		'-': "−⁃˗➖﹣－", '.': "․。｡", '@': "＠﹫", '/': "⁄∕", ':': "∶ː", '\'': "ʼʹ", '!': "ǃ",
	} {
		for _, r := range from {
			out[r] = to
		}
	}
	return out
}()
