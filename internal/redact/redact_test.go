package redact

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/gatehouse-dev/gatehouse/internal/rego/value"
)

func decode(t testing.TB, text string) value.Value {
	t.Helper()
	v, err := value.Decode([]byte(text), value.Limits{})
	if err != nil {
		t.Fatal(text, err)
	}
	return v
}

func TestNames(t *testing.T) {
	for name, want := range map[string]bool{
		"password": true, "API-Key": true, "apiKey": true, "refresh_token": true, "Authorization": true, "owner_email": true, "ownerEmail": true,
		"tokens": false, "max_tokens": false, "email": false, "owner": false, "": false,
	} {
		if IsHidden(name) != want {
			t.Errorf("%q hides: %t", name, !want)
		}
	}
}

// TestText: texts of hidden members are removed from any text, in every form in which a control may
// show them; other texts stay.
func TestText(t *testing.T) {
	for name, tc := range map[string]struct{ in, text, want string }{
		"plain":           {`{"user":{"password":"hunter2"}}`, "no hunter2, please: hunter2", "no [redacted], please: [redacted]"},
		"deep":            {`{"credentials":{"a":[{"b":"hunter2"}]}}`, "hunter2", "[redacted]"},
		"number":          {`{"token":123456}`, "sent 123456", "sent [redacted]"},
		"quoted":          {`{"secret":"a\"bc\\d"}`, `{"secret":"a\"bc\\d"}`, `{"secret":"[redacted]"}`},
		"one in another":  {`{"token":"abcd","secret":"abcdef"}`, "abcdef abcd", "[redacted] [redacted]"},
		"scheme":          {`{"authorization":"Bearer t0k3n"}`, "t0k3n is old", "[redacted] is old"},
		"a line of a key": {`{"private_key":"-- BEGIN --\nMIIE1234\n-- END --\n"}`, "MIIE1234", "[redacted]"},
		"short":           {`{"password":"abc"}`, "abc", "abc"},
		"boolean":         {`{"credential_set":true}`, "true", "true"},
		"named otherwise": {`{"user":{"name":"hunter2","tokens":12345}}`, "hunter2 12345", "hunter2 12345"},
		"cut within":      {`{"password":"hunter2hunter2"}`, strings.Repeat("x", cutFrom) + "hunter2hun", strings.Repeat("x", cutFrom) + "[redacted]"},
	} {
		if got := FindSecrets(decode(t, tc.in)).Text(tc.text); got != tc.want {
			t.Errorf("%s: %q, want %q", name, got, tc.want)
		}
	}
}

// TestDocument: an explanation keeps its shape, even if a secret equals one of its own words.
func TestDocument(t *testing.T) {
	found := FindSecrets(decode(t, `{"password":"condition_eval","secret":"deny","token":1234,"api_key":"path","cookie":"line 9"}`))
	const doc = `{"step_type":"condition_eval","rule":"deny","line":1234,"description":"deny at line 9","details":{"source":"x == \"deny\"","values":{"input.deny":1234,"rule":"deny"}},
		"conditions":[{"line":1234,"values":[{"path":"input.deny","variable":"x","value":{"line":1234,"a":["condition_eval"]}}]}]}`
	const want = `{"step_type":"condition_eval","rule":"deny","line":1234,"description":"[redacted] at [redacted]","details":{"source":"x == \"[redacted]\"","values":{"input.[redacted]":"[redacted]","rule":"[redacted]"}},` +
		`"conditions":[{"line":1234,"values":[{"path":"input.[redacted]","variable":"x","value":{"line":"[redacted]","a":["[redacted]"]}}]}]}`
	if got := string(found.Document([]byte(doc))); got != want {
		t.Errorf("%s\nwant\n%s", got, want)
	}
	if got := string(Secrets(nil).Document([]byte(doc))); got != doc {
		t.Errorf("with nothing to hide: %s", got)
	}
	if got := found.Document([]byte(`{"broken"`)); string(got) != "null" || !json.Valid(got) {
		t.Errorf("what cannot be read: %s", got)
	}
}

// TestNothingToHide: a search that finds nothing allocates nothing.
func TestNothingToHide(t *testing.T) {
	v := decode(t, `{"id":"ann","roles":["a","b"],"attributes":{"level":3,"password":null}}`)
	if n := testing.AllocsPerRun(100, func() {
		if FindSecrets(v) != nil {
			t.Error("found something")
		}
	}); n > 4 {
		t.Errorf("%v allocations", n)
	}
}
