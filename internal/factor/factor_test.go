package factor

import (
	"crypto/rand"
	"net/url"
	"strings"
	"testing"
	"testing/quick"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/errtest"
	"github.com/gatehouse-dev/gatehouse/internal/totptest"
)

// TestVectors uses the vectors of RFC 6238 appendix B for SHA-1, with six digits.
func TestVectors(t *testing.T) {
	for at, want := range map[int64]string{
		59: "287082", 1111111109: "081804", 1111111111: "050471", 1234567890: "005924", 2000000000: "279037", 20000000000: "353130",
	} {
		if got := codeOf([]byte("12345678901234567890"), stepAt(time.Unix(at, 0))); got != want {
			t.Errorf("code at %d = %s, want %s", at, got, want)
		}
	}
}

// TestDrift: a code is valid in its own step, and in the ones before and after it.
func TestDrift(t *testing.T) {
	var raw [secretBytes]byte
	_, _ = rand.Read(raw[:])
	now := time.Unix(1_800_000_015, 0)
	for off, want := range map[time.Duration]bool{-60 * time.Second: false, -30 * time.Second: true, 0: true, 30 * time.Second: true, 60 * time.Second: false} {
		code := totptest.Code(t, encoding.EncodeToString(raw[:]), now.Add(off))
		if got := len(matches(raw[:], code, now)) > 0; got != want {
			t.Errorf("a code of %v from now: accepted %t, want %t", off, got, want)
		}
	}
}

// TestAddress: apps can read the secret, the account and the tenant, whatever characters the names
// contain.
func TestAddress(t *testing.T) {
	for _, name := range []string{"alice", "a b/c?d&e=f#g:h%20+", "ａｌｉｃｅ", "alice@example.com"} {
		u, err := url.Parse(address("ABC", "acme", name))
		errtest.Must(t, err)
		q := u.Query()
		if u.Scheme != "otpauth" || u.Host != "totp" || u.Path != "/gatehouse:"+name+" (acme)" || q.Get("secret") != "ABC" || q.Get("issuer") != issuer || q.Get("digits") != "6" || q.Get("period") != "30" || q.Get("algorithm") != "SHA1" {
			t.Errorf("address of %q = %s", name, u)
		}
	}
}

// TestClean: people may type codes with spaces, dashes and capitals.
func TestClean(t *testing.T) {
	for in, want := range map[string]string{" 123 456 ": "123456", "ABCD-efgh-IJKL-mnop": "abcdefghijklmnop", "": ""} {
		if got := clean(in); got != want {
			t.Errorf("clean(%q) = %q, want %q", in, got, want)
		}
	}
	if !IsTimed("123 456") || !IsTimed("12345") || IsTimed("abcd-efgh-ijkl-mnop") {
		t.Error("IsTimed confuses codes of apps and recovery codes")
	}
}

// TestDrawing: any name can be drawn, and the image contains only shapes.
func TestDrawing(t *testing.T) {
	check := func(name string) bool {
		if len(name) > 128 {
			name = name[:128]
		}
		svg, err := drawing(address(strings.Repeat("A", 32), "acme", name))
		return err == nil && strings.HasPrefix(svg, "<svg ") && strings.Count(svg, "<") == 4
	}
	if err := quick.Check(check, &quick.Config{MaxCount: 50}); err != nil {
		t.Error(err)
	}
}
