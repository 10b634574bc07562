package pii

import (
	_ "embed"
	"slices"
	"strings"
)

//go:embed health.txt
var healthText string

// healthTerms are the words of health records, by their first word, longest first.
var healthTerms = terms(healthText)

// terms reads a list with one term on each line, ignoring case; # begins a comment.
func terms(text string) map[string][]string {
	out := map[string][]string{}
	for line := range strings.Lines(text) {
		line = strings.ToLower(strings.TrimSpace(line))
		if line == "" || line[0] == '#' {
			continue
		}
		first, rest := splitWord(line)
		out[first] = append(out[first], rest)
	}
	for _, rests := range out {
		slices.SortFunc(rests, func(a, b string) int { return len(b) - len(a) })
	}
	return out
}

// splitWord splits off the letters and digits at the beginning of a term.
func splitWord(term string) (first, rest string) {
	i := 0
	for i < len(term) && isAlnum(term[i]) {
		i++
	}
	return term[:i], term[i:]
}

// maxTerm limits the first word of a term, in bytes.
const maxTerm = 24

// lower reads the word at i in lower case into buf, or nothing if it is too long. It returns bytes,
// so that looking it up allocates no string.
func (s *scan) lower(i int, buf *[maxTerm]byte) (word []byte, end int) {
	n := 0
	for at := i; ; at++ {
		c := s.at(at)
		if !isAlnum(c) {
			return buf[:n], at
		}
		if n == maxTerm {
			return nil, at
		}
		if isUpper(c) {
			c |= 0x20
		}
		buf[n] = c
		n++
	}
}

// health returns the end of a term of health records at i: a condition, a medicine, a finding, a
// code of ICD-10.
func (s *scan) health(i int) int {
	var buf [maxTerm]byte
	word, at := s.lower(i, &buf)
	if len(word) == 0 {
		return 0
	}
	if isUpper(s.t[i]) && at-i >= 3 && at-i <= 7 {
		if end := s.diagnosisCode(i, at); end > 0 {
			return end
		}
	}
	rests, known := healthTerms[string(word)]
	if !known && word[len(word)-1] == 's' {
		if rests, known = healthTerms[string(word[:len(word)-1])]; known && slices.Contains(rests, "") {
			return at
		}
		rests = nil
	}
	for _, rest := range rests {
		if end := s.follows(at, rest); end > 0 {
			return end
		}
	}
	if medical(word) {
		return at
	}
	return 0
}

// medical reports whether a word is medical by its ending: inflammations, operations, tumours, and
// the stems that the WHO defines for medicines.
func medical(word []byte) bool {
	if len(word) < 8 {
		return false
	}
	last := word[len(word)-1]
	if int(last) >= len(medicalEnds) || medicalEnds[last] == nil {
		return false
	}
	for _, end := range medicalEnds[last] {
		if len(word) >= len(end)+3 && string(word[len(word)-len(end):]) == end {
			return true
		}
	}
	return false
}

// medicalEnds are word endings by their last letter.
var medicalEnds = func() (out ['z' + 1][]string) {
	for end := range strings.FieldsSeq(`arthritis bronchitis dermatitis hepatitis gastritis colitis sinusitis tonsillitis meningitis nephritis neuritis ngitis cystitis
		ditis osteitis myelitis cephalitis titis ritis ectomy otomy ostomy oplasty oscopy carcinoma sarcoma lymphoma melanoma blastoma adenoma leukemia leukaemia anemia anaemia
		glycemia glycaemia lipidemia uremia opathy algesia myalgia uralgia cardia pnea plegia phrenia cillin mycin floxacin cycline statin sartan azepam zolam oxetine
		pramine triptyline prazole conazole gliptin gliflozin formin oprofen profen tidine setron triptan olol azosin thiazide mab tinib vudine navir ciclovir vir
		codone morphone sclerosis cirrhosis fibrosis thrombosis stenosis psychosis neurosis porosis tuberculosis scoliosis phoma`) {
		out[end[len(end)-1]] = append(out[end[len(end)-1]], end)
	}
	return out
}()

// follows returns where rest, in lower case, ends if it is at i and a word ends with it.
func (s *scan) follows(i int, rest string) int {
	at := i
	for k := 0; k < len(rest); k++ {
		c := s.at(at)
		if isUpper(c) {
			c |= 0x20
		}
		if rest[k] == ' ' && (c == '-' || c == '\n') {
			c = ' '
		}
		if c != rest[k] {
			return 0
		}
		at++
	}
	if rest != "" && s.at(at) == 's' {
		at++
	}
	if isAlnum(s.at(at)) {
		return 0
	}
	return at
}

var codeWords = []string{"icd", "icd10", "icd-10", "icd-10-cm", "diagnosis", "diagnoses", "dx", "diagnosed with", "code", "codes"}

// diagnosisCode returns the end of a code of ICD-10 whose first part is t[i:at]: with its point, or
// after a word that announces it.
func (s *scan) diagnosisCode(i, at int) int {
	if !isDigit(s.t[i+1]) || s.t[i] == 'U' || at-i < 3 {
		return 0
	}
	if at-i > 3 { // without the point
		if s.near(i, 24, codeWords) && at-i <= 7 {
			return at
		}
		return 0
	}
	if s.at(at) == '.' && isAlnum(s.at(at+1)) {
		end := at + 1
		for ; end < at+5 && (isDigit(s.at(end)) || isUpper(s.at(end))); end++ {
		}
		if end == at+1 || isAlnum(s.at(end)) || !isDigit(s.t[i+2]) && !isUpper(s.t[i+2]) {
			return 0
		}
		return end
	}
	if s.near(i, 24, codeWords) {
		return at
	}
	return 0
}

var recordWords = []string{
	"mrn", "medical record", "medical record number", "medical record no", "patient id", "patient number", "patient no", "patient #",
	"health card", "health insurance number", "nhs number", "nhs no", "nhs", "insurance id", "member id", "chart number", "medicare", "medicaid", "medical_record_number", "patient_id",
}

// recordNumber returns the end of the number of a record or of a patient at i: 5 to 12 digits after
// a word that announces it.
func (s *scan) recordNumber(i int) int {
	n, at := 0, i
	for n <= 12 && isDigit(s.at(at)) {
		n, at = n+1, at+1
		if !isDigit(s.at(at)) {
			if gap := s.gap(at); gap > 0 && s.t[at] != '.' && isDigit(s.at(at+gap)) {
				at += gap
			}
		}
	}
	if n < 5 || n > 12 || class[s.at(at)] == letter || !s.near(i, 32, recordWords) {
		return 0
	}
	return at
}
