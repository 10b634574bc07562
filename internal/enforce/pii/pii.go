// Package pii finds personal data in text: names, e-mail addresses, US social security numbers,
// card numbers, terms of health records, postal addresses and telephone numbers. The text may
// arrive in pieces. The result does not depend on where a piece ends, because nothing is decided
// that the next byte could change. docs/ai.md says what is found, and how often it is wrong.
package pii

import (
	"strings"

	"github.com/gatehouse-dev/gatehouse/internal/enforce/plaintext"
)

// Kind is a category of personal data. Resources use the names in pii_categories.
type Kind uint8

// The categories.
const (
	Names Kind = iota
	Emails
	SSN
	Cards
	Health
	Addresses
	Phones
	kinds
)

var kindNames = [kinds]string{"names", "emails", "ssn", "card_numbers", "health_records", "addresses", "phones"}

// String returns the category's name.
func (k Kind) String() string { return kindNames[k] }

// Category returns the category of a name, plural or singular.
func Category(name string) (Kind, bool) {
	switch strings.ToLower(name) {
	case "names", "name":
		return Names, true
	case "emails", "email":
		return Emails, true
	case "ssn", "ssns":
		return SSN, true
	case "card_numbers", "card_number":
		return Cards, true
	case "health_records", "health_record", "health":
		return Health, true
	case "addresses", "address":
		return Addresses, true
	case "phones", "phone", "phone_numbers", "phone_number":
		return Phones, true
	}
	return 0, false
}

// Set is a set of categories.
type Set uint8

// With returns the set with k added.
func (s Set) With(k Kind) Set { return s | 1<<k }

// Has reports whether k is in the set.
func (s Set) Has(k Kind) bool { return s&(1<<k) != 0 }

// Numbers are the categories that consist of digits.
const Numbers = Set(1<<SSN | 1<<Cards | 1<<Phones)

// Span is the position of personal data in a text, in bytes, and its category.
type Span struct {
	Start, End int
	Kind       Kind
}

// Context is how many bytes before a position a scan needs as context, in the original spelling: an
// entity is longer than the character that it encodes. Callers that drop scanned text keep this
// many bytes.
const Context = 512

// reach is how many decoded bytes before a position a scan needs as context.
const reach = 64

// Join is a byte that a caller puts between two pieces of text that may belong to one line or to
// two. A number continues after it, a word does not.
const Join = 0x1f

// window is how much of a text is decoded at a time, in bytes.
const window = 32 << 10

// Cut is a byte that a caller puts into the context in place of text that it wrote before it was
// settled. A word begins after it, which may still be the rest of an address.
const Cut = 0

// Scan finds the categories of the set in text[from:]; the text before from is context. It decodes
// the text with package plaintext; the spans are positions in the original. scanned is how far the
// text is understood: no later span will begin before it. final means that no more text follows;
// scanned is then len(text).
func (s Set) Scan(dst []Span, text []byte, from int, final bool) (spans []Span, scanned int) {
	for size := window; ; {
		end := min(len(text), from+size)
		context := max(0, from-Context)
		n := len(dst)
		dst, scanned = s.read(dst, text[context:end], from-context, final && end == len(text))
		scanned += context
		for i := n; i < len(dst); i++ {
			dst[i].Start, dst[i].End = dst[i].Start+context, dst[i].End+context
		}
		if end == len(text) {
			return dst, scanned
		}
		if scanned == from {
			size *= 2
		}
		from = scanned
	}
}

// read scans a decoded text.
func (s Set) read(dst []Span, text []byte, from int, final bool) (spans []Span, scanned int) {
	if plaintext.Clean(text, final) {
		return s.scanPlain(dst, text, from, final)
	}
	var t plaintext.Text
	t.Fold(text, final)
	n := len(dst)
	dst, scanned = s.scanPlain(dst, t.Bytes, t.At(from), final)
	for i := n; i < len(dst); i++ {
		start, end := t.Original(dst[i].Start, dst[i].End)
		dst[i].Start, dst[i].End = max(start, from), max(end, from)
	}
	return dst, max(t.Place(scanned), from)
}

// scanPlain scans a text without decoding it.
func (s Set) scanPlain(dst []Span, text []byte, from int, final bool) (spans []Span, scanned int) {
	sc := scan{set: s, t: text, final: final, nextAt: -1}
	for i := from; i < len(text); {
		end, kind := 0, Kind(0)
		c := text[i]
		switch class[c] {
		case other:
			if i++; c < 0xc2 {
				continue
			}
			if i += trailingBytes(c); i > len(text) && !final {
				return dst, i - 1 - trailingBytes(c)
			}
			continue
		case letter:
			if sc.letterBefore(i) {
				i++
				continue
			}
			end, kind = sc.word(i)
		case digit:
			if i > 0 && class[text[i-1]] == digit {
				i++
				continue
			}
			end, kind = sc.number(i)
		case mark:
			end, kind = sc.sign(i)
		}
		if sc.starved {
			return dst, i
		}
		if end > i {
			dst = append(dst, Span{i, end, kind})
			i = end
			continue
		}
		i++
	}
	return dst, len(text)
}

// Classes of bytes. Letters are those of scripts that separate words: Latin with its accents,
// Greek, Cyrillic and others with two bytes in UTF-8. Other characters (Chinese, an emoji, a dash)
// end a word.
const (
	other = iota
	letter
	digit
	mark // may begin something: ( + @
)

var class = func() (t [256]byte) {
	for i := range t {
		switch c := byte(i); {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c == '_', c >= 0xc3 && c <= 0xdf:
			t[i] = letter
		case c >= '0' && c <= '9':
			t[i] = digit
		case c == '(', c == '+', c == '@':
			t[i] = mark
		case c >= 0x80 && c < 0xc0: // a continuation byte of a longer character
			t[i] = letter
		}
	}
	return t
}()

// trailingBytes returns how many bytes follow the first byte of a character that is not a letter.
func trailingBytes(c byte) int {
	switch {
	case c < 0xc2:
		return 0
	case c < 0xe0:
		return 1
	case c < 0xf0:
		return 2
	}
	return 3
}

// scan is one pass over a text. It reads bytes through at, which records if the end was reached
// while more text may follow. Then nothing is decided.
type scan struct {
	set     Set
	t       []byte
	final   bool
	starved bool
	nextAt  int // position of the next @ or its equivalent; -1 if unknown
}

// at returns the byte at i, or 0 beyond the end.
func (s *scan) at(i int) byte {
	if i < len(s.t) {
		return s.t[i]
	}
	if !s.final {
		s.starved = true
	}
	return 0
}

// before returns the byte before i, or 0 at the beginning.
func (s *scan) before(i int) byte {
	if i <= 0 {
		return 0
	}
	return s.t[i-1]
}

// letterBefore reports whether a letter is before i.
func (s *scan) letterBefore(i int) bool {
	c := s.before(i)
	if c < 0x80 || c >= 0xc0 {
		return class[c] == letter
	}
	for j := i - 2; j >= 0 && j >= i-4; j-- {
		if lead := s.t[j]; lead >= 0xc0 {
			return lead >= 0xc3 && lead <= 0xdf
		}
	}
	return false
}

// alnumBefore reports whether a letter or a digit is before i.
func (s *scan) alnumBefore(i int) bool { return isDigit(s.before(i)) || s.letterBefore(i) }

func isDigit(c byte) bool { return c >= '0' && c <= '9' }
func isUpper(c byte) bool { return c >= 'A' && c <= 'Z' }
func isAlnum(c byte) bool { return class[c] == letter || class[c] == digit }

// word examines a run of letters that begins at i.
func (s *scan) word(i int) (end int, kind Kind) {
	try := func(k Kind, e int) {
		if e > end {
			end, kind = e, k
		}
	}
	if class[s.before(i)] == digit { // 4th, 12B: examined with the number
		return 0, 0
	}
	if s.set.Has(Emails) {
		try(Emails, s.email(i))
	}
	if s.set.Has(Health) {
		try(Health, s.health(i))
	}
	if s.set.Has(Addresses) {
		try(Addresses, address{s}.namedStreet(i))
	}
	if s.set.Has(Names) {
		try(Names, s.name(i))
	}
	return end, kind
}

// number examines a run of digits that begins at i.
func (s *scan) number(i int) (end int, kind Kind) {
	try := func(k Kind, e int) {
		if e > end {
			end, kind = e, k
		}
	}
	if s.set.Has(Cards) {
		try(Cards, s.card(i))
	}
	if s.set.Has(SSN) {
		try(SSN, s.ssn(i))
	}
	if s.letterBefore(i) {
		return end, kind
	}
	if s.set.Has(Phones) {
		try(Phones, telephone{s}.phone(i))
	}
	if s.set.Has(Addresses) {
		try(Addresses, address{s}.numberedStreet(i))
	}
	if s.set.Has(Emails) {
		try(Emails, s.email(i))
	}
	if s.set.Has(Health) {
		try(Health, s.recordNumber(i))
	}
	return end, kind
}

// sign examines a ( + or @.
func (s *scan) sign(i int) (end int, kind Kind) {
	switch s.t[i] {
	case '@':
		// The beginning was not examined: it was too long, or is already written.
		if s.set.Has(Emails) && i > 0 && (isLocal(s.t[i-1]) || s.t[i-1] == Cut) {
			return s.domain(i + 1), Emails
		}
	default:
		if s.set.Has(Phones) && !s.alnumBefore(i) {
			return telephone{s}.phone(i), Phones
		}
	}
	return 0, 0
}

// near reports whether one of the words is in the context before i.
func (s *scan) near(i, within int, words []string) bool {
	from := max(0, i-within)
	var low [reach]byte
	n := copy(low[:], s.t[from:i])
	for j := range low[:n] {
		if isUpper(low[j]) {
			low[j] |= 0x20
		}
	}
	var has [256]bool
	for _, c := range low[:n] {
		has[c] = true
	}
	text := string(low[:n])
	for _, w := range words {
		if len(w) > n || !has[w[0]] || !has[w[len(w)-1]] || !has[w[len(w)/2]] {
			continue // most words
		}
		at := strings.LastIndex(text, w)
		if at < 0 || at > 0 && class[text[at-1]] == letter {
			continue
		}
		if end := at + len(w); end == n || class[text[end]] != letter {
			return true
		}
	}
	return false
}

// gap returns the length of one separator between groups of digits at i, or 0. It knows the common
// typographic variants.
func (s *scan) gap(i int) int {
	switch s.at(i) {
	case ' ', '-', '.', Join:
		return 1
	case 0xc2:
		if s.at(i+1) == 0xa0 { // no-break space
			return 2
		}
	case 0xe2:
		if s.at(i+1) == 0x80 {
			switch c := s.at(i + 2); {
			case c >= 0x80 && c <= 0x95, c == 0xaf: // spaces, hyphens and dashes, narrow no-break space
				return 3
			}
		}
	}
	return 0
}
