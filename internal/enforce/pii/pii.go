// Package pii finds personal data in text: names, e-mail addresses, US social
// security numbers, card numbers, health-record words, postal addresses and
// telephone numbers. It looks at text that comes in pieces: what is found does
// not depend on where a piece ends, because nothing is settled that the next
// byte could change. docs/ai.md states what is found, and how often it errs.
package pii

import (
	"strings"

	"github.com/gatehouse-dev/gatehouse/internal/enforce/plaintext"
)

// Kind is a category of personal data, as resources name them (pii_categories).
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

// String is the category's name.
func (k Kind) String() string { return kindNames[k] }

// Category is the category of that name; plain singular forms are understood.
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

// With is the set and k.
func (s Set) With(k Kind) Set { return s | 1<<k }

// Has reports whether k is in the set.
func (s Set) Has(k Kind) bool { return s&(1<<k) != 0 }

// All are all categories.
const All = Set(1<<kinds - 1)

// Numbers are the categories that are digits alone.
const Numbers = Set(1<<SSN | 1<<Cards | 1<<Phones)

// Span is a place in a text, in bytes, and what stands there.
type Span struct {
	Start, End int
	Kind       Kind
}

// Context is how many bytes before a position are looked at to understand what
// stands there, as they are written: an entity takes more than the character it
// stands for. A caller who drops settled text keeps so many.
const Context = 512

// reach is how many bytes before a position are looked at, once they are decoded.
const reach = 64

// Join is a byte that a caller puts between two pieces of a text that a reader
// may take for one line or for two: a number goes on behind it, a word does not.
const Join = 0x1f

// window is how much of a text is decoded at a time, in bytes.
const window = 32 << 10

// Cut is a byte that a caller puts into the context in place of text that it
// let go before it was settled: what follows begins a word, and may all the
// same be the rest of an address.
const Cut = 0

// Scan finds the categories of the set in text[from:]; what is before from is
// context. It looks at the text as package plaintext reads it, and the spans are
// places in the text as it is written. settled is how far the text is understood: no
// span will ever begin before it but those that were given. final says that no
// more text comes; settled is then len(text).
func (s Set) Scan(dst []Span, text []byte, from int, final bool) (spans []Span, settled int) {
	for size := window; ; {
		end := min(len(text), from+size)
		context := max(0, from-Context)
		n := len(dst)
		dst, settled = s.read(dst, text[context:end], from-context, final && end == len(text))
		settled += context
		for i := n; i < len(dst); i++ {
			dst[i].Start, dst[i].End = dst[i].Start+context, dst[i].End+context
		}
		if end == len(text) {
			return dst, settled
		}
		if settled == from {
			size *= 2
		}
		from = settled
	}
}

// read looks at a text in plain reading.
func (s Set) read(dst []Span, text []byte, from int, final bool) (spans []Span, settled int) {
	if plaintext.Clean(text, final) {
		return s.scanPlain(dst, text, from, final)
	}
	var t plaintext.Text
	t.Fold(text, final)
	n := len(dst)
	dst, settled = s.scanPlain(dst, t.Bytes, t.At(from), final)
	for i := n; i < len(dst); i++ {
		start, end := t.Original(dst[i].Start, dst[i].End)
		dst[i].Start, dst[i].End = max(start, from), max(end, from)
	}
	return dst, max(t.Place(settled), from)
}

// scanPlain looks at a text as it is.
func (s Set) scanPlain(dst []Span, text []byte, from int, final bool) (spans []Span, settled int) {
	sc := scan{set: s, t: text, final: final, nextAt: -1}
	for i := from; i < len(text); {
		end, kind := 0, Kind(0)
		c := text[i]
		switch class[c] {
		case other:
			if i++; c < 0xc2 {
				continue
			}
			if i += extra(c); i > len(text) && !final {
				return dst, i - 1 - extra(c)
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

// classes of bytes. Letters are those of scripts that set words apart: Latin
// with its accents, Greek, Cyrillic and what else UTF-8 writes in two bytes.
// Others (Chinese, an emoji, a dash) end a word.
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
		case c >= 0x80 && c < 0xc0: // continues a character of more bytes
			t[i] = letter
		}
	}
	return t
}()

// extra is how many bytes follow the first one of a character that is no letter.
func extra(c byte) int {
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

// scan is one look at a text. Every byte is read through at, which notes that
// the end was reached while more may come: then nothing is decided.
type scan struct {
	set     Set
	t       []byte
	final   bool
	starved bool
	nextAt  int // where the next sign of an e-mail address is; -1: not looked for
}

// at is the byte at i; 0 beyond the end.
func (s *scan) at(i int) byte {
	if i < len(s.t) {
		return s.t[i]
	}
	if !s.final {
		s.starved = true
	}
	return 0
}

// before is the byte before i; 0 at the beginning.
func (s *scan) before(i int) byte {
	if i <= 0 {
		return 0
	}
	return s.t[i-1]
}

// letterBefore reports whether a letter stands before i.
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

// alnumBefore reports whether a letter or a digit stands before i.
func (s *scan) alnumBefore(i int) bool { return isDigit(s.before(i)) || s.letterBefore(i) }

func isDigit(c byte) bool { return c >= '0' && c <= '9' }
func isUpper(c byte) bool { return c >= 'A' && c <= 'Z' }
func isAlnum(c byte) bool { return class[c] == letter || class[c] == digit }

// word looks at a run of letters that begins at i.
func (s *scan) word(i int) (end int, kind Kind) {
	try := func(k Kind, e int) {
		if e > end {
			end, kind = e, k
		}
	}
	if class[s.before(i)] == digit { // 4th, 12B: looked at with the number
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

// number looks at a run of digits that begins at i.
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

// sign looks at a ( + or @.
func (s *scan) sign(i int) (end int, kind Kind) {
	switch s.t[i] {
	case '@':
		// The beginning went by unseen: it was too long, or already let go.
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

// near reports whether one of the words stands in the context before i.
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
			continue // most
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

// gap is the length of one separator between groups of digits at i; 0: none.
// Typography writes them in many ways.
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
