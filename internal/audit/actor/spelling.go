package actor

import (
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"

	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

// agentNumber returns the number of the agent that a subject id names; 0: it names none. It also
// accepts spellings that only look like the id or have the same value, such as Agent:007, agent:7.0
// and full-width digits: a control or an application may fold them, and an agent that is stopped must
// not pass under any of them.
func agentNumber(subject string) int64 {
	subject = strings.TrimSpace(subject)
	if subject == "" || subject[0] < utf8.RuneSelf && subject[0]|0x20 != scope.AgentPrefix[0] {
		return 0
	}
	if strings.ContainsFunc(subject, func(r rune) bool { return r >= utf8.RuneSelf }) {
		subject = strings.TrimSpace(plain(subject))
	}
	if !scope.NamesAgent(subject) {
		return 0
	}
	return integer(strings.TrimSpace(subject[len(scope.AgentPrefix):]))
}

// plain returns a text with ASCII in place of the characters that only look different (Unicode's
// compatibility decompositions, spaces, and the digits of all scripts), and without the invisible ones.
// It returns "" if the text has any other character: no agent's id has one.
func plain(s string) string {
	out := make([]byte, 0, 64)
	for i, r := range s {
		switch {
		case r < utf8.RuneSelf:
			out = append(out, byte(r))
		case unicode.In(r, unicode.Cf, unicode.Variation_Selector, unicode.Other_Default_Ignorable_Code_Point):
		case unicode.IsSpace(r):
			out = append(out, ' ')
		case unicode.Is(unicode.Nd, r):
			out = append(out, '0'+digit(r))
		default:
			simple := norm.NFKC.PropertiesString(s[i:]).Decomposition()
			if len(simple) == 0 || slices.ContainsFunc(simple, func(c byte) bool { return c >= utf8.RuneSelf }) {
				return ""
			}
			out = append(out, simple...)
		}
	}
	return string(out)
}

// digit returns the value of a decimal digit. Unicode has the ten digits of a script in a row, and
// its table of digits has only whole rows.
func digit(r rune) byte {
	for _, t := range unicode.Nd.R16 {
		if r <= rune(t.Hi) {
			return byte((r - rune(t.Lo)) % 10)
		}
	}
	for _, t := range unicode.Nd.R32 {
		if r <= rune(t.Hi) {
			return byte((r - rune(t.Lo)) % 10)
		}
	}
	return 0
}

// integer returns the value of a positive integer in any spelling that common parsers accept: with
// a sign, leading zeros, an exponent, a fraction of zeros, in another base. It returns 0 for other
// texts.
func integer(text string) int64 {
	digits := strings.TrimLeft(text, "+")
	if digits == "" || (digits[0] < '0' || digits[0] > '9') && digits[0] != '.' {
		return 0
	}
	if n, err := strconv.ParseInt(text, 10, 64); err == nil {
		return n
	}
	if n, err := strconv.ParseInt(digits, 0, 64); err == nil {
		return n
	}
	const exact = 1 << 53
	if f, err := strconv.ParseFloat(digits, 64); err == nil && f == math.Trunc(f) && f <= exact {
		return int64(f)
	}
	return 0
}
