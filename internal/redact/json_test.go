package redact

import (
	"encoding/json"
	"strings"
	"testing"
)

// TestJSON: secrets and personal data are removed from a document, whatever the form of its names, and a
// document that cannot be read is not copied.
func TestJSON(t *testing.T) {
	for name, in := range map[string]string{
		"named":     `{"a":{"password":"c4n4ry","x":1}}`,
		"case":      `{"API-Key":"c4n4ry","apiKey":"c4n4ry","X-Api_Key":"c4n4ry"}`,
		"escaped":   `{"pass\u0077ord":"c4n4ry"}`,
		"number":    `{"client_secret":7123,"credentials":{"id":"c4n4ry"}}`,
		"list":      `[{"headers":{"authorization":["Bearer c4n4ry"],"cookie":["s=c4n4ry"]}}]`,
		"token":     `{"access_token":"c4n4ry","ssl_private_key":"c4n4ry"}`,
		"mail":      `{"owner_email":"c4n4ry@x","ownerEmail":"c4n4ry@x","last":1}`,
		"mail last": `{"first":1,"owner_email":"c4n4ry@x"}`,
		"broken":    `{"password":"c4n4ry"`,
		"trailing":  `{"a":1} c4n4ry`,
	} {
		out, _ := JSON([]byte("x"), []byte(in))
		if out[0] != 'x' || !json.Valid(out[1:]) {
			t.Errorf("%s: JSON(x, %s) = %s, want JSON after x", name, in, out)
		}
		for _, secret := range []string{"c4n4ry", "7123", "mail"} {
			if strings.Contains(string(out), secret) {
				t.Errorf("%s: JSON(%s) = %s, want no %s", name, in, out, secret)
			}
		}
	}
	const harmless = `{"credential_set":true,"max_tokens":512,"estimated_tokens":3,"user":{"id":"a","email":"a@b"},"list":[1,"two",{},[]]}`
	if out, ok := JSON(nil, []byte(harmless)); !ok || string(out) != harmless {
		t.Errorf("JSON(%s) = %s, want it unchanged", harmless, out)
	}
}

func FuzzJSON(f *testing.F) {
	f.Add([]byte(`{"password":"x","a":[1,{"token":2}]}`))
	f.Fuzz(func(t *testing.T, in []byte) {
		out, ok := JSON(nil, in)
		if json.Valid(in) && (!ok || !json.Valid(out)) {
			t.Fatalf("JSON(%q) = %q, %t, want valid JSON", in, out, ok)
		}
	})
}
