package redact

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/gatehouse-dev/gatehouse/internal/rego/value/valuetest"
)

func TestNames(t *testing.T) {
	for name, want := range map[string]bool{
		"password": true, "API-Key": true, "apiKey": true, "refresh_token": true, "Authorization": true, "owner_email": true, "ownerEmail": true,
		"tokens": false, "max_tokens": false, "email": false, "owner": false, "": false,
	} {
		if IsHidden(name) != want {
			t.Errorf("Hides(%q) = %t, want %t", name, !want, want)
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
		if got := FindSecrets(valuetest.Decode(t, tc.in)).Text(tc.text); got != tc.want {
			t.Errorf("%s: Text = %q, want %q", name, got, tc.want)
		}
	}
}

// TestDocument: an explanation keeps its shape, even if a secret equals one of its own words.
func TestDocument(t *testing.T) {
	found := FindSecrets(valuetest.Decode(t, `{"password":"condition_eval","secret":"deny","token":1234,"api_key":"path","cookie":"line 9"}`))
	const doc = `{"step_type":"condition_eval","rule":"deny","line":1234,"description":"deny at line 9","details":{"source":"x == \"deny\"","values":{"input.deny":1234,"rule":"deny"}},
		"conditions":[{"line":1234,"values":[{"path":"input.deny","variable":"x","value":{"line":1234,"a":["condition_eval"]}}]}]}`
	const want = `{"step_type":"condition_eval","rule":"deny","line":1234,"description":"[redacted] at [redacted]","details":{"source":"x == \"[redacted]\"","values":{"input.[redacted]":"[redacted]","rule":"[redacted]"}},` +
		`"conditions":[{"line":1234,"values":[{"path":"input.[redacted]","variable":"x","value":{"line":"[redacted]","a":["[redacted]"]}}]}]}`
	if got := string(found.Document([]byte(doc))); got != want {
		t.Errorf("Document = %s\nwant\n%s", got, want)
	}
	if got := string(Secrets(nil).Document([]byte(doc))); got != doc {
		t.Errorf("Document with nothing to hide = %s, want %s", got, doc)
	}
	if got := found.Document([]byte(`{"broken"`)); string(got) != "null" || !json.Valid(got) {
		t.Errorf("Document of broken JSON = %s, want null", got)
	}
}

// TestNothingToHide: a search that finds nothing allocates nothing.
func TestNothingToHide(t *testing.T) {
	v := valuetest.Decode(t, `{"id":"ann","roles":["a","b"],"attributes":{"level":3,"password":null}}`)
	if n := testing.AllocsPerRun(100, func() {
		if FindSecrets(v) != nil {
			t.Error("In of a value without secrets finds some, want none")
		}
	}); n > 4 {
		t.Errorf("In makes %v allocations, want at most 4", n)
	}
}
