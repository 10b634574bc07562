package simulator

import (
	"encoding/json"
	"math/rand/v2"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/gatehouse-dev/gatehouse/internal/errtest"
	"github.com/gatehouse-dev/gatehouse/internal/fault"
	"github.com/gatehouse-dev/gatehouse/internal/rego/masking"
	"github.com/gatehouse-dev/gatehouse/internal/rego/value"
	"github.com/gatehouse-dev/gatehouse/internal/rego/value/valuetest"
)

// A summary names the members that matter first, on one line.
func TestSummary(t *testing.T) {
	for in, want := range map[string]string{
		`{}`:     "",
		`"text"`: "",
		`{"context":{"ip":"::1"},"resource":{"path":"/x"},"action":{"method":"GET"},"user":{"id":"ada"},"more":1}`: "user.id=ada action.method=GET resource.path=/x context.ip=::1 more=1",
		`{"user":{"roles":["a","b"],"tags":[],"of":{}}}`:                                                           "user.roles=a, b user.tags=[] user.of={}",
		`{"user":{"teams":[{"name":"x"},{"name":"y"}]}}`:                                                           "user.teams[0].name=x user.teams[1].name=y",
		`{"user":{"name":"a\nb\u0000c","n":null,"t":true,"f":1.5}}`:                                                "user.name=a b c user.n=null user.t=true user.f=1.5",
	} {
		if got := summary(valuetest.Decode(t, in)); got != want {
			t.Errorf("summary(%s) = %q, want %q", in, got, want)
		}
	}
}

// TestSummaryIsCut checks that a summary is cut at 240 letters, not bytes, and ends in an ellipsis then.
func TestSummaryIsCut(t *testing.T) {
	for _, letter := range []string{"x", "é", "日", "🙂"} {
		for _, n := range []int{100, 238, 239, 500, 5000} {
			in := value.Object(value.Member{Key: "u", Value: value.String(strings.Repeat(letter, n))})
			got := summary(in)
			letters := utf8.RuneCountInString(got)
			if whole := n+2 <= summaryRunes; whole && letters != n+2 || !whole && (letters != summaryRunes+1 || !strings.HasSuffix(got, "…")) {
				t.Errorf("%d × %s: %d letters that end in %q", n, letter, letters, got[len(got)-4:])
			}
		}
		var members []value.Member
		for _, key := range []string{"a", "b", "c", "d", "e", "f"} {
			members = append(members, value.Member{Key: key, Value: value.String(strings.Repeat(letter, 50))})
		}
		if got := summary(value.Object(members...)); utf8.RuneCountInString(got) != summaryRunes+1 || !strings.HasSuffix(got, "…") {
			t.Errorf("six parts of 50 × %s: %q, want it cut", letter, got)
		}
	}
}

// Attributes with dots in their names become nested objects, if they do not contradict each other.
func TestExpand(t *testing.T) {
	for in, want := range map[string]string{
		`{}`: `{}`,
		`{"user.role":"hr","user.id":"ada","action.method":"GET"}`: `{"action":{"method":"GET"},"user":{"id":"ada","role":"hr"}}`,
		`{"user":{"id":"ada"},"user.role":"hr"}`:                   `{"user":{"id":"ada","role":"hr"}}`,
		`{"flag":true,"list":[1,{"a":2}]}`:                         `{"flag":true,"list":[1,{"a":2}]}`,
		`{"user.role":"hr","user.role.x":1}`:                       "/attributes/user.role.x",
		`{"user":"ada","user.role":"hr"}`:                          "/attributes/user.role",
		`{"user":{"role":"a"},"user.role":"b"}`:                    "/attributes/user.role",
		`{"":1}`:                                                   "/attributes/",
		`{"a..b":1}`:                                               "/attributes/a..b",
		`{".a":1}`:                                                 "/attributes/.a",
		`{"a.":1}`:                                                 "/attributes/a.",
		`{"a":null}`:                                               `{"a":null}`,
		`{"` + strings.TrimSuffix(strings.Repeat("a.", 33), ".") + `":1}`: "/attributes/" + strings.TrimSuffix(strings.Repeat("a.", 33), "."),
	} {
		var attributes map[string]any
		errtest.Must(t, json.Unmarshal([]byte(in), &attributes))
		got, err := expand(attributes)
		if strings.HasPrefix(want, "/") {
			f, ok := err.(*fault.Error)
			if !ok || f.Kind != fault.Invalid || f.Details[0].Pointer != want {
				t.Errorf("expand(%s) = %v %v, want an offence at %s", in, string(got.AppendJSON(nil)), err, want)
			}
			continue
		}
		if err != nil || !value.Equal(got, valuetest.Decode(t, want)) {
			t.Errorf("expand(%s) = %s %v, want %s", in, got.AppendJSON(nil), err, want)
		}
	}
	if _, err := expand(map[string]any{"a": func() {}}); !fault.Is(err, fault.Invalid) {
		t.Errorf("a value that JSON cannot express: %v, want Invalid", err)
	}
	if (Scenario{}).check() == nil || (Scenario{Name: "n", Attributes: map[string]any{"a": 1}}).check() != nil {
		t.Error("check requires more than a name, or no name")
	}
}

// TestHide checks that a secret is hidden in every text, but a short one only if it is the whole text,
// and never in members whose numbers are ours.
func TestHide(t *testing.T) {
	long := strings.Repeat("s", minSecret)
	for _, c := range []struct{ text, name, want string }{
		{long, "reason", masking.Redacted},
		{"it was " + long + "!", "reason", "it was " + masking.Redacted + "!"},
		{long + long, "", masking.Redacted + masking.Redacted},
		{"7", "reason", masking.Redacted},
		{"17", "reason", "17"},
		{"7", "line", "7"},
		{"nothing", "reason", "nothing"},
		{"", "reason", ""},
	} {
		if got := hide(c.text, c.name, []string{long, "7"}); got != c.want {
			t.Errorf("hide(%q) in %q = %q, want %q", c.text, c.name, got, c.want)
		}
	}
}

// TestScrubbed checks that no random document keeps a value of a member with a secret name.
func TestScrubbed(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	for range 200 {
		secret := "secret-" + string(rune('a'+random.IntN(26))) + strings.Repeat("z", random.IntN(20))
		var nest func(depth int) value.Value
		nest = func(depth int) value.Value {
			switch {
			case depth == 0 || random.IntN(4) == 0:
				return value.String("before " + secret + " after")
			case random.IntN(2) == 0:
				return value.Array(nest(depth-1), value.String(secret))
			default:
				return value.Object(value.Member{Key: "k" + secret, Value: nest(depth - 1)}, value.Member{Key: "reason", Value: nest(depth - 1)})
			}
		}
		input := value.Object(value.Member{Key: "user", Value: value.Object(value.Member{Key: "password", Value: value.Array(value.String(secret))})})
		clean := scrub(value.Object(value.Member{Key: "input", Value: input}, value.Member{Key: "trace", Value: nest(4)}), "", secretsIn(input))
		if text := string(clean.AppendJSON(nil)); strings.Contains(text, secret) {
			t.Fatalf("the document is %s, want no %s in it", text, secret)
		}
	}
}
