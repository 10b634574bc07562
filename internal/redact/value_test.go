package redact

import (
	"bytes"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/gatehouse-dev/gatehouse/internal/errtest"
	"github.com/gatehouse-dev/gatehouse/internal/rego/value"
)

// names are drawn for members: secrets, names that are nearly one, and harmless ones.
var names = []string{
	"password", "passwd", "passphrase", "my_secret", "Credential", "X-Authorization", "api-key", "privateKey", "set_cookie", "bearer",
	"token", "refresh_token", "tokens", "max_tokens", "owner_email", "Owner-Email", "owner_emails", "id", "", "path", "ser\"cret", "geheim€", "pass\tword", "apike", "coo", "a", "b", "c", "p", "s",
}

func drawValue(t *rapid.T, depth int) value.Value {
	kind := rapid.IntRange(0, 6).Draw(t, "kind")
	if depth > 3 {
		kind %= 4
	}
	switch kind {
	case 0:
		return value.Null()
	case 1:
		return value.Bool(rapid.Bool().Draw(t, "bool"))
	case 2:
		return value.Int(int64(rapid.IntRange(-5, 5).Draw(t, "int")))
	case 3:
		return value.String(rapid.SampledFrom([]string{"", "text", "a\"b", "é\n", "password"}).Draw(t, "text"))
	case 4:
		list := make([]value.Value, rapid.IntRange(0, 3).Draw(t, "len"))
		for i := range list {
			list[i] = drawValue(t, depth+1)
		}
		return value.Array(list...)
	}
	members := make([]value.Member, rapid.IntRange(0, 5).Draw(t, "len"))
	for i := range members {
		members[i] = value.Member{Key: rapid.SampledFrom(names).Draw(t, "name"), Value: drawValue(t, depth+1)}
	}
	return value.Object(members...)
}

// TestAppendValue: a value is redacted like its text.
func TestAppendValue(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		v := drawValue(t, 0)
		want, ok := JSON(nil, v.AppendJSON(nil))
		if got := AppendValue(nil, v); !ok || !bytes.Equal(got, want) {
			t.Fatalf("AppendValue of %s = %s, want %s", v.AppendJSON(nil), got, want)
		}
		name := rapid.SampledFrom(names).Draw(t, "member")
		want, _ = JSON(nil, value.Object(value.Member{Key: name, Value: v}).AppendJSON(nil))
		if got := fmt.Sprintf("{%s}", AppendMember(nil, 0, name, v)); got != string(want) {
			t.Fatalf("AppendMember of %q = %s, want %s", name, got, want)
		}
	})
}

// TestAppendDeepValue: values that are nested too deeply are omitted, not written in clear.
func TestAppendDeepValue(t *testing.T) {
	v := value.String("deep")
	for range maxDepth + 2 {
		v = value.Array(v)
	}
	if got := string(AppendValue(nil, v)); strings.Contains(got, "deep") || !strings.Contains(got, "[null]") {
		t.Errorf("AppendValue of a deep value = %s, want null inside", got)
	}
}

// TestSecretWords: each word is found anywhere in a name, but not by its beginning alone.
func TestSecretWords(t *testing.T) {
	for _, word := range []string{"password", "passwd", "passphrase", "secret", "credential", "authorization", "apikey", "privatekey", "cookie", "bearer"} {
		for _, name := range []string{word, "x" + word, word + "x", "my_" + strings.ToUpper(word) + "-9", word[:1] + word, word[:3] + word} {
			if !IsHidden(name) {
				t.Errorf("Hides(%q) = false, want true", name)
			}
		}
		for _, name := range []string{word[:len(word)-1], word[1:]} {
			if IsHidden(name) {
				t.Errorf("Hides(%q) = true, want false", name)
			}
		}
	}
}

// TestUsualNames: no name on the fast path is one that hides its value.
func TestUsualNames(t *testing.T) {
	source, err := os.ReadFile("value.go")
	errtest.Must(t, err)
	_, list, _ := strings.Cut(string(source), "switch name {")
	found := regexp.MustCompile(`"([^"]+)"`).FindAllStringSubmatch(list, -1)
	for _, m := range found {
		if !isCommon(m[1]) || IsHidden(m[1]) {
			t.Errorf("%q: usual = %t and Hides = %t, want true and false", m[1], isCommon(m[1]), IsHidden(m[1]))
		}
	}
	if len(found) < 10 {
		t.Errorf("%d names on the fast path, want at least 10", len(found))
	}
}
