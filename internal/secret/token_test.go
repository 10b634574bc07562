package secret

import (
	"bytes"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// TestTokens: ParseToken returns the head of a token, and refuses it if any byte is changed.
func TestTokens(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		raw := rapid.SliceOfN(rapid.Byte(), 32, 32).Draw(t, "raw")
		head := rapid.SampledFrom([]string{"gh_bouncer", "gh_tenant", "x", ""}).Draw(t, "head")
		token, err := NewToken(bytes.NewReader(raw), head)
		if err != nil || len(token) != len(head)+1+43+1+6 {
			t.Fatalf("NewToken = %q, %v", token, err)
		}
		if got, ok := ParseToken(token); !ok || got != head {
			t.Fatalf("ParseToken(%q) = %q, %v, want %q", token, got, ok, head)
		}
		at := rapid.IntRange(0, len(token)-1).Draw(t, "at")
		other := string([]byte{rapid.Byte().Draw(t, "other")})
		for _, bad := range []string{token[:at], token + other, token[:at] + token[at+1:], token[:at] + other + token[at+1:]} {
			if _, ok := ParseToken(bad); ok && bad != token {
				t.Fatalf("ParseToken(%q) accepts it, want not", bad)
			}
		}
	})
}

func TestTokensThatAreNone(t *testing.T) {
	if token, err := NewToken(bytes.NewReader(make([]byte, 31)), "x"); err == nil {
		t.Errorf("NewToken with 31 random bytes = %q, want an error", token)
	}
	body := "x_" + strings.Repeat("a", 42)
	for _, bad := range []string{"", "_", strings.Repeat("_", 51), body + "-_" + checksum(body+"-"), body + "é_" + checksum(body+"é"), body + "a_000000"} {
		if head, ok := ParseToken(bad); ok {
			t.Errorf("ParseToken(%q) = %q, want not a token", bad, head)
		}
	}
}
