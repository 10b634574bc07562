package pii

import (
	_ "embed"
	"strings"
)

//go:embed names.txt
var namesText string

// given are given names, in lower case.
var given = wordSet(namesText)

var (
	titles = wordSet("mr mrs ms miss mx dr prof professor doctor herr frau monsieur madame mme mlle señor señora sr sra sir dame rev judge")
	// ambiguous are given names that are also ordinary words. They count only with a surname.
	ambiguous = wordSet(`will mark grace rose may june april august hope faith joy art bill jack frank drew chase grant dean dale glen rich rob sue pat
		dawn summer autumn jordan austin paris virginia georgia savannah madison jackson lincoln hunter mason chance angel christian
		ray don ivy iris jade ruby pearl amber crystal violet daisy olive penny gene dick peg max miles reed scott ross wade clay cliff
		rusty sandy carol eve dolly sky star melody harmony destiny victor earl duke major king prince norm bob ben jean joy guy van an
		china india asia chelsea brooklyn london sydney florence charlotte kent troy lance pierce skip buck bud chip colt rocky brook
		heath forest holly hazel heather myrtle lily fern basil jasmine sage rosemary ginger sunny misty stormy windy merry happy
		cash chad israel santiago san jose alma carmen mercedes jack job ali kim lee mario nova phoenix river
		john james michael martin thomas paul peter george david simon luke mary martha victoria alexander douglas leon lena nelson`)
	// particles may occur between a given name and a surname.
	particles = wordSet("van von de der den del della di da dos du la le bin ibn al el ter st")
	// notSurnames are capitalised words that may follow a given name and are not surnames.
	notSurnames = wordSet(`street st avenue road university college school hospital church airport station park bridge day island beach
		county city state university company inc corp llc ltd group bank the a an and or but is was has had will would can could should i
		he she it we they you his her its our their this that these those what when where who why how please thanks thank hello hi dear
		monday tuesday wednesday thursday friday saturday sunday january february march april may june july august september october november december
		sort tree search law theorem model prize award code script notes summary report update test data api json http`)
)

var nameIntroductions = []string{
	"name is", "name's", "named", "patient", "patient name", "customer name", "full name", "signed by", "on behalf of", "regards", "sincerely", "cardholder", "born as", "née",
	"contact person", "beneficiary", "passenger", "account holder", "guardian", "next of kin", "emergency contact",
	"ich heiße", "mein name ist", "me llamo", "mi nombre es", "je m'appelle", "mi chiamo", "meu nome é", "grüße", "atentamente", "cordialement", "saluti",
}

// nameLabels label a field or announce a name. What follows is a name, even if it is a single
// unknown word.
var nameLabels = []string{
	"first name", "last name", "given name", "family name", "middle name", "surname", "first_name", "last_name", "given_name", "family_name", "full_name", "firstname",
	"my name is", "her name is", "his name is", "maiden name is", "last name is", "first name is", "surname is", "family name is", "my name's", "mein name ist", "ich heiße", "me llamo",
	"mi nombre es", "je m'appelle", "mi chiamo", "meu nome é", "maiden name",
	"lastname", "fullname", "vorname", "nachname", "nombre", "apellido", "apellidos", "prénom", "cognome", "sobrenome", "patient_name", "customer_name",
}

// initialled are words after which an initial and a word are a name: by J. Smith.
var initialled = []string{"by", "of", "from", "with", "to", "and", "for", "dear", "von", "par", "por", "da", "di", "signed", "attn", "cc"}

// capitalised reads a word of letters, hyphens and apostrophes at i that begins with a capital and
// is not an abbreviation, or "".
func (s *scan) capitalised(i int, buf *[maxTerm]byte) (word string, end int) {
	first := s.at(i)
	if !isUpper(first) && (first < 0xc3 || first > 0xdf) {
		return "", i
	}
	n := 0
	for at := i; ; at++ {
		c := s.at(at)
		if c == '\'' && s.at(at+1) == 's' && class[s.at(at+2)] != letter { // Ann's
			c = 0
		}
		if class[c] != letter && !(c == '-' || c == '\'') || c == '_' {
			for n > 0 && (buf[n-1] == '-' || buf[n-1] == '\'') {
				n, at = n-1, at-1
			}
			if isDigit(c) {
				return "", i
			}
			return string(buf[:n]), at
		}
		if n == maxTerm {
			return "", i
		}
		if isUpper(c) {
			c |= 0x20
		}
		buf[n] = c
		n++
	}
}

// name returns the end of a person's name at i: a given name with what follows it, or any
// capitalised words after a title or an introduction.
func (s *scan) name(i int) int {
	if c := s.t[i]; c >= 'a' && c <= 'z' { // most words
		return 0
	}
	var buf [maxTerm]byte
	word, at := s.capitalised(i, &buf)
	if len(word) == 1 {
		return s.initials(i, at)
	}
	if word == "" {
		return 0
	}
	if titles[word] {
		return s.titled(at)
	}
	first, _, double := strings.Cut(word, "-") // Jean-Luc
	if given[word] || double && given[first] {
		if end := s.surname(at); end > 0 {
			return end
		}
		if !double && !ambiguous[word] {
			return at
		}
	}
	if !notSurnames[word] && s.introduced(i, nameLabels, "\"'=") {
		if end := s.surname(at); end > 0 {
			return end
		}
		return at
	}
	if !notSurnames[word] && s.introduced(i, nameIntroductions, "") {
		if end := s.surname(at); end > 0 {
			return end
		}
		if given[word] {
			return at
		}
	}
	return 0
}

// initials returns the end of a name that begins with an initial at i, after one of the words
// initialled: of J. Smith, by A. B. Okafor.
func (s *scan) initials(i, at int) int {
	if s.at(at) != '.' || s.before(i) != ' ' || !s.introduced(i, initialled, "") {
		return 0
	}
	var buf [maxTerm]byte
	for range 3 {
		if s.at(at) != '.' {
			return 0
		}
		if at++; s.at(at) == ' ' {
			at++
		}
		word, end := s.capitalised(at, &buf)
		if word == "" || notSurnames[word] {
			return 0
		}
		if len(word) > 2 {
			if more := s.surname(end); more > 0 {
				return more
			}
			return end
		}
		at = end
	}
	return 0
}

// introduced reports whether one of the words is directly before i, separated by spaces, a colon or
// one of the signs.
func (s *scan) introduced(i int, list []string, signs string) bool {
	from := i
	for from > 0 && i-from < 4 && (s.t[from-1] == ' ' || s.t[from-1] == ':' || s.t[from-1] == '\n' || s.t[from-1] == ',' || strings.IndexByte(signs, s.t[from-1]) >= 0) {
		from--
	}
	if from == i || from == 0 {
		return false
	}
	last := s.t[from-1]
	if isUpper(last) {
		last |= 0x20
	}
	for _, words := range list {
		if words[len(words)-1] != last {
			continue // most words
		}
		start := from - len(words)
		if start < 0 || start > 0 && class[s.t[start-1]] == letter {
			continue
		}
		same := true
		for k := range len(words) {
			c := s.t[start+k]
			if isUpper(c) {
				c |= 0x20
			}
			same = same && c == words[k]
		}
		if same {
			return true
		}
	}
	return false
}

// titled returns the end of the name after a title that ends at i.
func (s *scan) titled(i int) int {
	if s.at(i) == '.' {
		i++
	}
	if s.at(i) != ' ' {
		return 0
	}
	var buf [maxTerm]byte
	word, end := s.capitalised(i+1, &buf)
	if word == "" || notSurnames[word] {
		return 0
	}
	if titles[word] {
		return s.titled(end)
	}
	if len(word) == 1 && s.at(end) == '.' {
		end++
	}
	if more := s.surname(end); more > 0 {
		return more
	}
	if len(word) == 1 {
		return 0
	}
	return end
}

// surname returns the end of up to three further words of a name at i: initials, particles,
// surnames. It returns 0 if there are none.
func (s *scan) surname(i int) int {
	end, at := 0, i
	for range 4 {
		if s.at(at) != ' ' {
			break
		}
		var buf [maxTerm]byte
		word, e := s.capitalised(at+1, &buf)
		if word == "" {
			low, next := s.lower(at+1, &buf)
			if !particles[string(low)] {
				break
			}
			at = next
			continue
		}
		if len(word) == 1 {
			if s.at(e) == '.' {
				e++
			}
			at = e
			continue
		}
		if notSurnames[word] {
			break
		}
		end, at = e, e
	}
	return end
}
