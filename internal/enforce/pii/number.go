package pii

import (
	"bytes"
	"strconv"
)

// card is the end of a card number at i: 13 to 19 digits of a length that its
// issuer uses, in groups as cards are written, with a right check digit (Luhn).
func (s *scan) card(i int) int {
	if first := s.at(i); first < '1' || first > '6' {
		return s.scientific(i)
	}
	if s.before(i) == '.' && i > 1 && isDigit(s.t[i-2]) {
		return 0 // decimals
	}
	var num [19]byte
	var groups [19]int
	var ends [19]struct{ digits, groups, at int }
	n, g, e, at := 0, 0, 0, i
	for n < len(num) && isDigit(s.at(at)) {
		num[n] = s.at(at) - '0'
		groups[g]++
		n, at = n+1, at+1
		if isDigit(s.at(at)) {
			continue
		}
		ends[e] = struct{ digits, groups, at int }{n, g + 1, at}
		e++
		gap := s.cardGap(at)
		if gap == 0 || n == len(num) || !grouped(groups[:g+1], false) {
			break
		}
		at, g = at+gap, g+1
	}
	joined := s.letterBefore(i)
	if end := s.scientific(i); end > 0 {
		return end
	}
	for e--; e >= 0; e-- {
		end := ends[e]
		if joined && class[s.at(end.at)] == letter {
			continue
		}
		if end.digits >= 13 && grouped(groups[:end.groups], true) && issued(num[:end.digits]) && luhn(num[:end.digits]) {
			return end.at
		}
	}
	return 0
}

// cardGap is the length of what parts the groups of a card's number at i: what
// parts those of any number, also with spaces around, or a sign that none of them
// has otherwise, or one end of a line. The check digit tells the rest.
func (s *scan) cardGap(i int) int {
	if n := s.parted(i); n > 0 {
		return n
	}
	at := i
	for s.at(at) == ' ' && at-i < 2 {
		at++
	}
	switch s.at(at) {
	case '/', '_', '|', ',', ':', '*', '+', '\'', '\t', '\n', Join:
		at++
	case '\r':
		if at++; s.at(at) == '\n' {
			at++
		}
	case '-', '.':
		if at > i {
			at++
		}
	}
	for at > i && s.at(at) == ' ' && at-i < 3 {
		at++
	}
	n := s.gap(i)
	if n > 0 && s.at(i) != ' ' {
		n += s.lineEnd(i + n)
	}
	return max(at-i, n)
}

// grouped reports whether digits in such groups look like a card number, or,
// while it is not whole, like its beginning.
func grouped(sizes []int, whole bool) bool {
	if len(sizes) > 1 && sizes[0] == 4 && sizes[1] == 6 {
		return len(sizes) <= 3
	}
	if len(sizes) == 1 && !whole {
		return sizes[0] <= 18
	}
	return even(sizes) || thousands(sizes)
}

// even groups are of one length, or all of multiples of four, but for the last,
// which may be shorter.
func even(sizes []int) bool {
	for i, n := range sizes {
		last := i == len(sizes)-1
		if n != sizes[0] && !(last && n < sizes[0]) && !(sizes[0]%4 == 0 && n%4 == 0) {
			return false
		}
	}
	return true
}

// thousands are groups of three, but for the first: 4,111,111.
func thousands(sizes []int) bool {
	for _, n := range sizes[1:] {
		if n != 3 {
			return false
		}
	}
	return sizes[0] < 3
}

// scientific is the end of a card number at i that was taken for a number and is
// written with an exponent: 4.111111111111111E+15.
func (s *scan) scientific(i int) int {
	if b := s.before(i); b == '.' && i > 1 && isDigit(s.t[i-2]) {
		return 0
	}
	at := i
	for isDigit(s.at(at)) && at-i < maxNumber {
		at++
	}
	if c := s.at(at); c == '.' || c == ',' {
		for at++; isDigit(s.at(at)) && at-i < maxNumber; {
			at++
		}
	}
	if s.at(at)|0x20 != 'e' {
		return 0
	}
	if at++; s.at(at) == '+' || s.at(at) == '-' {
		at++
	}
	from := at
	for isDigit(s.at(at)) && at-from < 3 {
		at++
	}
	if at == from || class[s.at(at)] == digit || class[s.at(at)] == letter || !CardNumber(s.t[i:at]) {
		return 0
	}
	return at
}

// maxNumber bounds the digits of a number that may be a card's.
const maxNumber = 40

// CardNumber reports whether the value of a decimal number, which may have a
// fraction and an exponent, is the number of a card.
func CardNumber(number []byte) bool {
	digits := make([]byte, 0, 2*maxNumber)
	point, exponent := -1, 0
	for i, c := range number {
		switch {
		case isDigit(c) && len(digits) < maxNumber:
			digits = append(digits, c-'0')
			continue
		case (c == '.' || c == ',') && point < 0:
			point = len(digits)
			continue
		case c == 'e' || c == 'E':
			n, err := strconv.Atoi(string(number[i+1:]))
			if err != nil || n > maxNumber || n < -maxNumber {
				return false
			}
			exponent = n
		default:
			return false
		}
		break
	}
	if point < 0 {
		point = len(digits)
	}
	point += exponent
	for point > len(digits) && len(digits) < cap(digits) {
		digits = append(digits, 0)
	}
	if point < 13 || point > len(digits) || bytes.Count(digits[point:], []byte{0}) != len(digits)-point {
		return false
	}
	digits = bytes.TrimLeft(digits[:point], "\x00")
	return len(digits) >= 13 && len(digits) <= 19 && issued(digits) && luhn(digits)
}

// issued reports whether a number has a length that cards of its range have.
func issued(d []byte) bool {
	n := len(d)
	two := int(d[0])*10 + int(d[1])
	four := (two*10+int(d[2]))*10 + int(d[3])
	switch {
	case d[0] == 4:
		return n == 13 || n == 16 || n == 19
	case two >= 51 && two <= 55, four >= 2221 && four <= 2720:
		return n == 16
	case two == 34 || two == 37, four == 1800, four == 2131:
		return n == 15
	case four >= 3000 && four <= 3059, two == 36, two == 38, two == 39:
		return n == 14 || n == 16
	case two == 35, two == 62, two == 65, four == 6011, four >= 6440 && four <= 6499:
		return n >= 16
	case two == 50, two >= 56 && two <= 58, two == 60, two == 63, two == 67:
		return n >= 13
	}
	return false
}

// luhn checks the check digit.
func luhn(d []byte) bool {
	sum, same := 0, true
	for i := len(d) - 1; i >= 0; i-- {
		v := int(d[i])
		if (len(d)-1-i)%2 == 1 {
			if v *= 2; v > 9 {
				v -= 9
			}
		}
		sum += v
		same = same && d[i] == d[0]
	}
	return sum%10 == 0 && !same
}

var ssnWords = []string{"ssn", "ssns", "social security", "social-security", "socialsecurity", "social_security_number", "soc sec"}

// ssn is the end of a social security number at i: area, group and serial as
// they are given out, apart from one another, or nine digits after a word that
// says so.
func (s *scan) ssn(i int) int {
	if b := s.before(i); (b == '-' || b == '.') && i > 1 && isDigit(s.t[i-2]) {
		return 0
	}
	var d [9]byte
	at, gaps := i, 0
	for n := range d {
		if n == 3 || n == 5 {
			gap := s.ssnGap(at)
			if n == 5 && (gap == 0) != (gaps == 0) {
				return 0
			}
			if gap > 0 {
				gaps++
			}
			at += gap
		}
		c := s.at(at)
		if !isDigit(c) {
			return 0
		}
		d[n] = c - '0'
		at++
	}
	next := s.at(at)
	if class[next] == digit || class[next] == letter || (next == '-' || next == '.') && isDigit(s.at(at+1)) {
		return 0
	}
	area := int(d[0])*100 + int(d[1])*10 + int(d[2])
	switch {
	case area == 0, area == 666, area >= 900, d[3] == 0 && d[4] == 0, d[5]+d[6]+d[7]+d[8] == 0:
		return 0
	case gaps > 0:
		return at
	case s.near(i, 40, ssnWords):
		return at
	}
	return 0
}

// ssnGap is the length of what parts the groups of a social security number at i: what
// parts those of any number, a few signs more, and a hyphen with a space on either
// side or at the end of a line.
func (s *scan) ssnGap(i int) int {
	if n := s.parted(i); n > 0 {
		return n
	}
	switch s.at(i) {
	case '/', '_', '\t':
		return 1
	}
	at := i
	if s.at(at) == ' ' {
		at++
	}
	switch n := s.gap(at); {
	case n == 0 || s.at(at) == ' ' || s.at(at) == '.' && at > i || s.at(at) == Join:
		return s.gap(i)
	default:
		at += n
	}
	switch {
	case s.at(at-1) == '.':
	case s.at(at) == ' ':
		at++
	default:
		at += s.lineEnd(at)
	}
	return at - i
}

// lineEnd is the length of one end of a line at i; 0: none.
func (s *scan) lineEnd(i int) int {
	switch s.at(i) {
	case '\n', Join:
		return 1
	case '\r':
		if s.at(i+1) == '\n' {
			return 2
		}
		return 1
	}
	return 0
}

// accountWords stand before numbers of accounts, whose groups may look like others.
var accountWords = []string{"iban"}

var phoneWords = []string{
	"phone", "phones", "telephone", "tel", "mobile", "cell", "cellphone", "fax", "call", "called", "calling", "whatsapp", "sms", "dial", "ring", "ph",
	"phone_number", "phonenumber", "telefon", "handy", "hotline", "reached at", "reach me",
	"text me", "my number", "our number", "his number", "her number", "reach us", "reach him", "reach her", "contact number", "mobil", "mobilfunk", "rufnummer", "durchwahl", "festnetz", "anrufen", "ruf", "natel",
	"móvil", "movil", "teléfono", "telefono", "llama", "llame", "celular", "fijo", "telefone", "telemóvel", "telemovel", "ligue",
	"téléphone", "portable", "tél", "appelez", "appeler", "appelle", "numéro", "cellulare", "chiama", "chiamare", "fisso", "gsm", "telefoon", "bel", "puhelin", "telefonnummer",
}

// phone is the end of a telephone number at i: international with its plus
// sign, North American, national with its leading zero, or any plausible one
// after a word that says so.
func (s *scan) phone(i int) int {
	b := s.before(i)
	if (b == '-' || b == '.' || b == ',' || b == '/' || b == ':') && i > 1 && isDigit(s.t[i-2]) {
		return 0
	}
	if s.continued(i) {
		return 0
	}
	c := s.at(i)
	if c == '+' {
		return s.international(i)
	}
	if end := s.american(i); end > 0 && !s.near(i, 24, recordWords) {
		return end
	}
	if c == '0' || c == '(' {
		if end := s.national(i); end > 0 {
			return end
		}
	}
	if !isDigit(c) {
		return 0
	}
	end := s.dialled(i, 7, 15, 5)
	if end > 0 && !s.near(i, 28, phoneWords) {
		return 0
	}
	return end
}

// continued reports whether digits and a typographic hyphen or dash stand before i.
func (s *scan) continued(i int) bool {
	return i > 3 && s.t[i-3] == 0xe2 && s.t[i-2] == 0x80 && s.t[i-1] >= 0x90 && s.t[i-1] <= 0x95 && isDigit(s.t[i-4])
}

// international is +, a country, and 8 to 15 digits in all.
func (s *scan) international(i int) int {
	if next := s.at(i + 1); next < '1' || next > '9' {
		return 0
	}
	most := 15
	if s.at(i+1) == '1' {
		most = 11
	}
	return s.dialled(i+1, 8, most, 8)
}

// dialled is the end of least to most digits in at most so many groups, with
// separators, slashes and brackets between them.
func (s *scan) dialled(i, least, most, groups int) int {
	n, end, at := 0, 0, i
	for g := 0; g < groups; g++ {
		for ; n <= most && isDigit(s.at(at)); at++ {
			n++
		}
		if n > most {
			break
		}
		end = at
		if n < least {
			end = 0
		}
		// "(0)30", ") 20": brackets beside a gap.
		next := at
		for k := 0; k < 3; k++ {
			switch c := s.at(next); {
			case c == '(' || c == ')' || c == '/':
				next++
			default:
				next += s.gap(next)
			}
		}
		if next == at || !isDigit(s.at(next)) {
			break
		}
		at = next
	}
	if end > 0 {
		end = s.extension(end)
	}
	if end > 0 && class[s.at(end)] == letter {
		return 0
	}
	return end
}

// american is the end of a number of the North American plan: (415) 555-2671,
// 415.555.2671, 1-415-555-2671.
func (s *scan) american(i int) int {
	at := i
	if s.at(at) == '1' {
		gap := s.gap(at + 1)
		if gap == 0 {
			return 0
		}
		at += 1 + gap
	}
	bracket := s.at(at) == '('
	if bracket {
		at++
	}
	if c := s.at(at); c < '2' || c > '9' || !isDigit(s.at(at+1)) || !isDigit(s.at(at+2)) {
		return 0
	}
	at += 3
	if bracket {
		if s.at(at) != ')' {
			return 0
		}
		at++
	}
	gap := s.gap(at)
	slashes := gap == 0 && s.at(at) == '/'
	if slashes {
		gap = 1
	}
	if gap == 0 && !bracket {
		return 0
	}
	at += gap
	if c := s.at(at); c < '2' || c > '9' || !isDigit(s.at(at+1)) || !isDigit(s.at(at+2)) {
		return 0
	}
	if gap = s.gap(at + 3); slashes && s.at(at+3) == '/' {
		gap = 1
	}
	if gap == 0 {
		return 0
	}
	at += 3 + gap
	for range 4 {
		if !isDigit(s.at(at)) {
			return 0
		}
		at++
	}
	at = s.extension(at)
	if next := s.at(at); isAlnum(next) || (next == '-' || next == '.') && isDigit(s.at(at+1)) {
		return 0
	}
	return at
}

// extension is the end of an extension that follows a number at i (x4587); i: none follows.
func (s *scan) extension(i int) int {
	if s.at(i)|0x20 != 'x' {
		return i
	}
	at := i + 1
	for at-i <= 6 && isDigit(s.at(at)) {
		at++
	}
	if at == i+1 {
		return i
	}
	return at
}

// national is the end of a number with a leading zero: 030 1234567,
// (0171) 123 4567, 01 23 45 67 89. One separator is used throughout but for
// the one after the area code; dates are none.
func (s *scan) national(i int) int {
	at, bracket := i, s.at(i) == '('
	if bracket {
		at++
	}
	if s.at(at) != '0' || isDigit(s.before(at)) || s.near(i, 40, accountWords) {
		return 0
	}
	n, end := 0, 0
	var sizes [8]int
	var used byte
	for g := range sizes {
		from := at
		for ; at-from <= 8 && isDigit(s.at(at)); at++ {
		}
		sizes[g] = at - from
		if n += sizes[g]; sizes[g] < 2 || sizes[g] > 8 || n > 12 {
			break
		}
		if g > 0 && n >= 9 {
			end = at
		}
		if g == 0 && bracket {
			if s.at(at) != ')' {
				return 0
			}
			at++
		}
		gap := s.gap(at)
		sep := s.at(at)
		if gap == 0 && sep == '/' && g == 0 {
			gap = 1
		}
		if gap == 0 && !(g == 0 && bracket) || !isDigit(s.at(at+gap)) || g > 1 && sep != used {
			break
		}
		used = sep
		at += gap
	}
	if sizes[0] > 5 || sizes[0] == 2 && sizes[1] == 2 && sizes[2] == 4 || sizes[0] == 3 && sizes[1] == 2 && sizes[2] == 4 || end > 0 && class[s.at(end)] == letter {
		return 0
	}
	return end
}
