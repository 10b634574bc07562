package pii

import (
	"bytes"
	"strings"
)

func wordSet(list string) map[string]bool {
	out := map[string]bool{}
	for w := range strings.FieldsSeq(list) {
		out[w] = true
	}
	return out
}

var (
	streetTypes = wordSet(`street st avenue ave av road rd boulevard blvd lane ln drive dr court ct place pl square sq terrace ter way
		parkway pkwy circle cir highway hwy route alley crescent cres close row trail trl plaza mews quay grove gardens walk rise loop
		turnpike pike expressway heights commons crossing landing ridge hill park point bend path`)
	// plainStreets mean a street even if nothing is capitalised.
	plainStreets = wordSet("street avenue ave boulevard blvd road rd lane")
	// namedBefore are words for streets in languages that put the word before the name.
	namedBefore = wordSet("rue avenue boulevard place chemin allée quai impasse cours route via viale piazza calle avenida paseo plaza rua largo")
	units       = wordSet("apt apartment suite ste unit floor fl room rm flat bldg building")
	directions  = wordSet("n s e w ne nw se sw north south east west")
	// notStreets are words after a number that count something.
	notStreets = wordSet("people percent years year days day hours hour minutes minute times items men women cars")
)

// germanic are endings of words that name a street.
var germanic = []string{"straße", "strasse", "str.", "gasse", "platz", "allee", "weg", "straat", "laan", "gracht", "gatan", "vej"}

// address finds postal addresses.
type address struct{ *scan }

// token reads a word of an address at i: letters, digits, apostrophes, hyphens. The word is in
// lower case; capital reports whether it began with a capital.
func (s address) token(i int) (word string, capital bool, end int) {
	var buf [32]byte
	n, at := 0, i
	for ; n < len(buf); at++ {
		c := s.at(at)
		if !isAlnum(c) && !(c == '\'' || c == '-') || c == '_' {
			break
		}
		if isUpper(c) {
			capital = capital || at == i
			c |= 0x20
		}
		buf[n] = c
		n++
	}
	if c := s.first(i); c >= 0x80 || isDigit(c) {
		capital = true // Éclair, 5th
	}
	return string(buf[:n]), capital, at
}

func (s address) first(i int) byte {
	if i < len(s.t) {
		return s.t[i]
	}
	return 0
}

// numberedStreet returns the end of an address that begins with a number at i: 221B Baker Street,
// 12 rue de Rivoli.
func (s address) numberedStreet(i int) int {
	if strings.IndexByte(".,-/:$#", s.before(i)) >= 0 {
		return 0
	}
	at := s.afterHouseNumber(i)
	if at == 0 {
		return 0
	}
	street := streetWords{from: i}
	for n := range 6 {
		word, capital, end := s.token(at)
		if n == 0 {
			if e, decided := s.firstWord(word, capital, end); decided {
				return e
			}
		}
		if word == "" {
			return 0
		}
		if street.endsStreet(n, at, word, capital) {
			return s.afterStreet(s.lastKind(word, capital, end))
		}
		street.count(word, capital)
		if s.at(end) == '.' && len(word) <= 3 {
			end++
		}
		if street.plain > 1 || s.at(end) != ' ' {
			return 0
		}
		at = end + 1
	}
	return 0
}

// afterHouseNumber returns where the street begins after a house number at i, such as 221B or 12-14. It
// returns 0 if there is no house number.
func (s address) afterHouseNumber(i int) int {
	at := i
	for ; isDigit(s.at(at)); at++ {
		if at-i > 5 {
			return 0
		}
	}
	switch c := s.at(at); {
	case c == '-' && isDigit(s.at(at+1)):
		at += 2
		for isDigit(s.at(at)) && at-i < 12 {
			at++
		}
	case class[c] == letter:
		if at++; isAlnum(s.at(at)) {
			return 0
		}
	}
	if s.at(at) == ',' && s.at(at+1) == ' ' {
		at++
	}
	if s.at(at) != ' ' {
		return 0
	}
	return at + 1
}

// firstWord examines the first word after a house number, which ends at end. decided means that the
// address ends at the result, or that there is none (0).
func (s address) firstWord(word string, capital bool, end int) (at int, decided bool) {
	switch {
	case word == "", notStreets[word], len(word) == 1 && !directions[word]:
		return 0, true
	case word == "broadway" && capital:
		return s.afterStreet(end), true
	case namedBefore[word]:
		if e := s.streetName(end); e > 0 {
			return s.afterStreet(e), true
		}
	}
	return 0, false
}

// streetWords counts the words of a street's name, which begins after the number at from.
type streetWords struct {
	from, capitals, plain int
}

// endsStreet reports whether the n-th word is the word for a street, such as Road, that ends the name.
func (w *streetWords) endsStreet(n, at int, word string, capital bool) bool {
	if n == 0 || !streetTypes[word] {
		return false
	}
	return w.capitals > 0 && w.plain == 0 && capital || n == 1 && plainStreets[word] && at-w.from < 40
}

func (w *streetWords) count(word string, capital bool) {
	if capital || directions[word] {
		w.capitals++
	} else {
		w.plain++
	}
}

// lastKind returns the end of the last of one or two words for a street, as in Park Street. The first
// one is word, which ends at end.
func (s address) lastKind(word string, capital bool, end int) int {
	if next, more, e := s.peek(end); more && streetTypes[next] && capital {
		end = e
	}
	if s.at(end) == '.' && len(word) <= 4 {
		end++
	}
	return end
}

// peek returns the next word after a space at i.
func (s address) peek(i int) (word string, ok bool, end int) {
	if s.at(i) != ' ' {
		return "", false, 0
	}
	word, capital, end := s.token(i + 1)
	return word, capital && word != "", end
}

var joining = wordSet("de del della di la le les du des da do dos das d' l' von van der den")

// streetName returns the end of a name of one to five words after a space at i, at least one of
// them capitalised.
func (s address) streetName(i int) int {
	end := 0
	for range 5 {
		if s.at(i) != ' ' {
			break
		}
		word, capital, e := s.token(i + 1)
		if word == "" || isDigit(word[0]) || !capital && !joining[word] && !strings.HasPrefix(word, "d'") && !strings.HasPrefix(word, "l'") {
			break
		}
		if capital || len(word) > 3 {
			end = e
		}
		i = e
	}
	return end
}

// namedStreet returns the end of an address that begins with a word at i: P.O. Box 12, Hauptstraße
// 5, Via Roma 7.
func (s address) namedStreet(i int) int {
	if c := s.t[i]; !isUpper(c) && c < 0x80 {
		return 0
	}
	word, _, at := s.token(i)
	switch {
	case word == "p" || word == "po":
		return s.postBox(word, at)
	case namedBefore[word]:
		if e := s.streetName(at); e > 0 {
			return s.houseNumber(e)
		}
		return 0
	}
	for _, suffix := range germanic {
		if short, dotted := strings.CutSuffix(suffix, "."); dotted {
			if strings.HasSuffix(word, short) && len(word) > len(suffix) && s.at(at) == '.' {
				return s.houseNumber(at + 1)
			}
		} else if strings.HasSuffix(word, suffix) && len(word) > len(suffix)+2 {
			return s.houseNumber(at)
		}
	}
	return 0
}

// postBox returns the end of a box whose first word, p or po, ends at i: P.O. Box 12.
func (s address) postBox(word string, i int) int {
	at := i
	if word == "p" {
		if s.at(at) != '.' {
			return 0
		}
		if at++; s.at(at) == ' ' {
			at++
		}
		if s.at(at)|0x20 != 'o' {
			return 0
		}
		at++
	}
	if s.at(at) == '.' {
		at++
	}
	if e := s.follows(at, " box"); e > 0 {
		return s.houseNumber(e)
	}
	return 0
}

// houseNumber returns the end of a house number and a place after a street's name that ends at i, or
// 0 if there is no number.
func (s address) houseNumber(i int) int {
	if s.at(i) == ',' {
		i++
	}
	if s.at(i) != ' ' || !isDigit(s.at(i+1)) {
		return 0
	}
	at := i + 1
	for ; isDigit(s.at(at)); at++ {
		if at-i > 5 {
			return 0
		}
	}
	if class[s.at(at)] == letter {
		if at++; isAlnum(s.at(at)) {
			return 0
		}
	}
	return s.afterStreet(at)
}

// afterStreet returns the end of what may follow a street: a direction, a unit, or a city with its state
// or postcode. Words that only look like a city are left out.
func (s address) afterStreet(i int) int {
	end := i
	if word, ok, e := s.peek(end); ok && directions[word] {
		end = e
	}
	end = s.unit(end)
	at := s.nextPart(end)
	if at == 0 {
		return end
	}
	if e := s.postcode(at); e > 0 {
		// 10115 Berlin: the postcode is before the city.
		if city := s.city(e); city > 0 && isDigit(s.t[at]) {
			return city
		}
		return e
	}
	if e := s.region(at); e > 0 {
		return e
	}
	city := s.city(at - 1)
	if city == 0 {
		return end
	}
	for _, next := range [...]int{s.nextPart(city), s.lastWord(at, city)} {
		if next == 0 {
			continue
		}
		if e := s.region(next); e > 0 {
			return e
		}
		if e := s.postcode(next); e > 0 {
			return e
		}
	}
	// A city alone counts only if nothing follows it.
	if s.t[end] == ',' && s.ends(city) {
		return city
	}
	return end
}

// unit returns the end of a flat, suite or floor after a street at i (#4, Apt. 12), or i if there
// is none.
func (s address) unit(i int) int {
	at := s.nextPart(i)
	if at == 0 {
		return i
	}
	if s.at(at) == '#' {
		if word, _, e := s.token(at + 1); word != "" {
			return e
		}
		return i
	}
	word, _, e := s.token(at)
	if !units[word] {
		return i
	}
	if s.at(e) == '.' {
		e++
	}
	if s.at(e) != ' ' {
		return i
	}
	if number, _, end := s.token(e + 1); number != "" && len(number) <= 5 {
		return end
	}
	return i
}

// ends reports whether a part of a text ends at i: with a sign, a line, or the whole text.
func (s address) ends(i int) bool {
	switch c := s.at(i); c {
	case 0:
		return i >= len(s.t)
	case '\n', '\r', '"', ';', ')', ']', '<', '}', '|', '\t':
		return true
	case '.', ',':
		next := s.at(i + 1)
		return next == ' ' || next == '\n' || next == '"' || next == 0 && i+1 >= len(s.t)
	}
	return false
}

// nextPart returns where the next part of an address begins after a comma, the end of a line or a
// space at i, or 0.
func (s address) nextPart(i int) int {
	at := i
	for range 3 {
		if c := s.at(at); c != ',' && c != ' ' && c != '\n' {
			break
		}
		at++
	}
	if at == i || !isAlnum(s.at(at)) && s.at(at) != '#' {
		return 0
	}
	return at
}

// city returns the end of one to three capitalised words after a byte at i.
func (s address) city(i int) int {
	end := 0
	for n := range 3 {
		if s.at(i) != ' ' && n > 0 {
			break
		}
		word, capital, e := s.token(i + 1)
		if word == "" || !capital || isDigit(word[0]) {
			break
		}
		end, i = e, e
	}
	return end
}

// lastWord returns where the last word of t[from:to] begins, or 0 if it is the only one.
func (s address) lastWord(from, to int) int {
	if at := bytes.LastIndexByte(s.t[from:to], ' '); at >= 0 {
		return from + at + 1
	}
	return 0
}

// region returns the end of a state's two letters at i, with the ZIP code if there is one.
func (s address) region(i int) int {
	if !isUpper(s.at(i)) || !isUpper(s.at(i+1)) || isAlnum(s.at(i+2)) {
		return 0
	}
	if s.at(i+2) == ' ' || s.at(i+2) == ',' && s.at(i+3) == ' ' {
		at := i + 3
		if s.t[i+2] == ',' {
			at++
		}
		if e := s.postcode(at); e > 0 {
			return e
		}
	}
	return i + 2
}

// postcode returns the end of a postcode at i: 12345, 12345-6789, SW1A 1AA.
func (s address) postcode(i int) int {
	at := i
	if isDigit(s.at(i)) {
		for isDigit(s.at(at)) && at-i < 6 {
			at++
		}
		if n := at - i; n < 4 || n > 5 || isAlnum(s.at(at)) {
			return 0
		}
		if s.at(at) == '-' && isDigit(s.at(at+1)) && isDigit(s.at(at+2)) && isDigit(s.at(at+3)) && isDigit(s.at(at+4)) && !isDigit(s.at(at+5)) {
			at += 5
		}
		return at
	}
	for isUpper(s.at(at)) && at-i < 3 {
		at++
	}
	if n := at - i; n == 0 || n > 2 || !isDigit(s.at(at)) {
		return 0
	}
	if at++; isDigit(s.at(at)) || isUpper(s.at(at)) {
		at++
	}
	if s.at(at) != ' ' || !isDigit(s.at(at+1)) || !isUpper(s.at(at+2)) || !isUpper(s.at(at+3)) || isAlnum(s.at(at+4)) {
		return 0
	}
	return at + 4
}
