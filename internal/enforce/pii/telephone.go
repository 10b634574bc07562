package pii

// accountWords precede account numbers, whose groups may look like telephone numbers.
var accountWords = []string{"iban"}

var phoneWords = []string{
	"phone", "phones", "telephone", "tel", "mobile", "cell", "cellphone", "fax", "call", "called", "calling", "whatsapp", "sms", "dial", "ring", "ph",
	"phone_number", "phonenumber", "telefon", "handy", "hotline", "reached at", "reach me",
	"text me", "my number", "our number", "his number", "her number", "reach us", "reach him", "reach her", "contact number", "mobil", "mobilfunk", "rufnummer", "durchwahl", "festnetz", "anrufen", "ruf", "natel",
	"móvil", "movil", "teléfono", "telefono", "llama", "llame", "celular", "fijo", "telefone", "telemóvel", "telemovel", "ligue",
	"téléphone", "portable", "tél", "appelez", "appeler", "appelle", "numéro", "cellulare", "chiama", "chiamare", "fisso", "gsm", "telefoon", "bel", "puhelin", "telefonnummer",
}

// telephone finds telephone numbers.
type telephone struct{ *scan }

// phone returns the end of a telephone number at i: international with its plus sign, North
// American, national with its leading zero, or any plausible one after a word that announces it.
func (s telephone) phone(i int) int {
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

// continued reports whether digits and a typographic hyphen or dash are before i.
func (s telephone) continued(i int) bool {
	return i > 3 && s.t[i-3] == 0xe2 && s.t[i-2] == 0x80 && s.t[i-1] >= 0x90 && s.t[i-1] <= 0x95 && isDigit(s.t[i-4])
}

// international matches +, a country code, and 8 to 15 digits in all.
func (s telephone) international(i int) int {
	if next := s.at(i + 1); next < '1' || next > '9' {
		return 0
	}
	most := 15
	if s.at(i+1) == '1' {
		most = 11
	}
	return s.dialled(i+1, 8, most, 8)
}

// dialled returns the end of least to most digits in at most so many groups, with separators,
// slashes and brackets between them.
func (s telephone) dialled(i, least, most, groups int) int {
	n, end, at := 0, 0, i
	for range groups {
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
		// "(0)30", ") 20": brackets next to a gap.
		next := at
		for range 3 {
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

// american returns the end of a number of the North American plan: (415) 555-2671, 415.555.2671,
// 1-415-555-2671.
func (s telephone) american(i int) int {
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

// extension returns the end of an extension after a number at i (x4587), or i if there is none.
func (s telephone) extension(i int) int {
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

// national returns the end of a number with a leading zero: 030 1234567, (0171) 123 4567, 01 23 45
// 67 89. Except after the area code, all separators are the same. Dates do not match.
func (s telephone) national(i int) int {
	at, bracket := i, s.at(i) == '('
	if bracket {
		at++
	}
	if s.at(at) != '0' || isDigit(s.before(at)) || s.near(i, 40, accountWords) {
		return 0
	}
	sizes, end := s.nationalGroups(at, bracket)
	if sizes[0] > 5 || dateSizes(sizes) || end > 0 && class[s.at(end)] == letter {
		return 0
	}
	return end
}

// dateSizes reports whether the groups may be those of a date: 01 02 2024, 001 02 2024.
func dateSizes(sizes [8]int) bool {
	return (sizes[0] == 2 || sizes[0] == 3) && sizes[1] == 2 && sizes[2] == 4
}

// nationalGroups returns the sizes of the groups of a number at i, and its end or 0. bracket means
// that its area code began with a bracket.
func (s telephone) nationalGroups(i int, bracket bool) (sizes [8]int, end int) {
	at, n := i, 0
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
		area := g == 0 && bracket
		if area {
			if s.at(at) != ')' {
				return sizes, 0
			}
			at++
		}
		gap, sep := s.gap(at), s.at(at)
		if gap == 0 && sep == '/' && g == 0 {
			gap = 1
		}
		if gap == 0 && !area || !isDigit(s.at(at+gap)) || g > 1 && sep != used {
			break
		}
		used = sep
		at += gap
	}
	return sizes, end
}
