package actor

import (
	"strconv"
	"strings"
	"testing"
	"unicode"

	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

// TestDigits: the value of a digit relies on Unicode's digits being in whole rows of ten.
func TestDigits(t *testing.T) {
	rows := 0
	row := func(lo, hi, stride rune) {
		if stride != 1 || (hi-lo+1)%10 != 0 {
			t.Errorf("the digits from %U to %U are not in whole rows", lo, hi)
		}
		for r := lo; r <= hi; r++ {
			if got := plain(string(r)); got != strconv.Itoa(int(r-lo)%10) {
				t.Errorf("plain(%U) = %q, want its value", r, got)
			}
			rows++
		}
	}
	for _, r := range unicode.Nd.R16 {
		row(rune(r.Lo), rune(r.Hi), rune(r.Stride))
	}
	for _, r := range unicode.Nd.R32 {
		row(rune(r.Lo), rune(r.Hi), rune(r.Stride))
	}
	if rows < 600 {
		t.Errorf("%d digits, want those of all scripts", rows)
	}
}

// FuzzAgentNumber: the id of an agent is its own number, no text is a negative one, and a text
// with other characters that look alike names the same agent.
func FuzzAgentNumber(f *testing.F) {
	for _, s := range []string{"agent:7", " AGENT:\u00a0007", "agent:7.0", "agent:７", "agent:0x7", "agent:", "ann", "agent:-7", "agent:9223372036854775807", "agent:9223372036854775808"} {
		f.Add(s)
	}
	wide := func(r rune) rune {
		if r > ' ' && r < 0x7f {
			return r - '!' + '！'
		}
		return r
	}
	f.Fuzz(func(t *testing.T, s string) {
		n := agentNumber(s)
		if n < 0 {
			t.Errorf("agentNumber(%q) = %d, want no negative number", s, n)
		}
		if again := agentNumber(strings.Map(wide, s)); again != n {
			t.Errorf("agentNumber of %q in full width = %d, want %d", s, again, n)
		}
		text, found := strings.CutPrefix(s, scope.AgentPrefix)
		if id, err := strconv.ParseInt(text, 10, 64); found && err == nil && id > 0 && n != id {
			t.Errorf("agentNumber(%q) = %d, want %d", s, n, id)
		}
	})
}
