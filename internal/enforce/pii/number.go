package pii

import (
	"bytes"
	"slices"
	"strconv"
	"strings"
)

// card returns the end of a card number at i: 13 to 19 digits, of a length that its issuer uses,
// grouped like a card number, with a valid check digit (Luhn).
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
		if end.digits >= 13 && grouped(groups[:end.groups], true) && hasIssuer(num[:end.digits]) && luhn(num[:end.digits]) {
			return end.at
		}
	}
	return 0
}

// cardGap returns the length of the separator between groups of a card number at i: that of any
// number, also with spaces around it, some further signs, or the end of a line. The check digit
// excludes false matches.
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

// grouped reports whether digits in such groups look like a card number or, if whole is false, like
// the beginning of one.
func grouped(sizes []int, whole bool) bool {
	if len(sizes) > 1 && sizes[0] == 4 && sizes[1] == 6 {
		return len(sizes) <= 3
	}
	if len(sizes) == 1 && !whole {
		return sizes[0] <= 18
	}
	return evenGroups(sizes) || thousands(sizes)
}

// evenGroups reports whether all groups have one length, or lengths that are multiples of four. The last
// one may be shorter.
func evenGroups(sizes []int) bool {
	for i, n := range sizes {
		last := i == len(sizes)-1
		if n != sizes[0] && !(last && n < sizes[0]) && !(sizes[0]%4 == 0 && n%4 == 0) {
			return false
		}
	}
	return true
}

// thousands reports whether all groups but the first have three digits: 4,111,111.
func thousands(sizes []int) bool {
	for _, n := range sizes[1:] {
		if n != 3 {
			return false
		}
	}
	return sizes[0] < 3
}

// scientific returns the end of a card number at i that a spreadsheet has converted to scientific
// notation: 4.111111111111111E+15.
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

// maxNumber limits the digits of a number that may be a card number.
const maxNumber = 40

// CardNumber reports whether the value of a decimal number, possibly with fraction and exponent, is
// a card number.
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
	return len(digits) >= 13 && len(digits) <= 19 && hasIssuer(digits) && luhn(digits)
}

// issuer is a range of card numbers by their first four digits, with the lengths of its numbers.
type issuer struct {
	from, to int
	lengths  string // a letter for each: "d" is 13, "e" 14, and so on to "j", 19
}

// issuers are the ranges of card numbers. The first match counts.
var issuers = [...]issuer{
	{4000, 4999, "dgj"},
	{5100, 5599, "g"},
	{2221, 2720, "g"},
	{3400, 3499, "f"},
	{3700, 3799, "f"},
	{1800, 1800, "f"},
	{2131, 2131, "f"},
	{3000, 3059, "eg"},
	{3600, 3699, "eg"},
	{3800, 3999, "eg"},
	{3500, 3599, "ghij"},
	{6200, 6299, "ghij"},
	{6500, 6599, "ghij"},
	{6011, 6011, "ghij"},
	{6440, 6499, "ghij"},
	{5000, 5099, "defghij"},
	{5600, 5899, "defghij"},
	{6000, 6099, "defghij"},
	{6300, 6399, "defghij"},
	{6700, 6799, "defghij"},
}

// hasIssuer reports whether a number has a valid length for its range.
func hasIssuer(d []byte) bool {
	four := ((int(d[0])*10+int(d[1]))*10+int(d[2]))*10 + int(d[3])
	for _, r := range issuers {
		if four >= r.from && four <= r.to {
			return strings.IndexByte(r.lengths, byte('d'+len(d)-13)) >= 0
		}
	}
	return false
}

// luhn verifies the check digit.
func luhn(d []byte) bool {
	sum, same := 0, true
	for i, c := range slices.Backward(d) {
		v := int(c)
		if (len(d)-1-i)%2 == 1 {
			if v *= 2; v > 9 {
				v -= 9
			}
		}
		sum += v
		same = same && c == d[0]
	}
	return sum%10 == 0 && !same
}

var ssnWords = []string{"ssn", "ssns", "social security", "social-security", "socialsecurity", "social_security_number", "soc sec"}

// ssn returns the end of a social security number at i: separated groups in the ranges that are
// assigned, or nine digits after a word that announces them.
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

// ssnGap returns the length of the separator between groups of a social security number at i: that
// of any number, some further signs, and a hyphen with spaces or the end of a line.
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

// lineEnd returns the length of the line ending at i, or 0.
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
