package format

import (
	"encoding/base64"
	"net/url"
	"strings"
	"testing"
)

// TestRedact checks that no secret remains, in whichever form a receiver repeats it.
func TestRedact(t *testing.T) {
	c := Channel{Credential: map[string]string{Username: "robot", Password: "p/ss w+rd-9", ClientSecret: "p/ss", HMACSecret: "abc"}, Token: "t0ken-of-the-day"}
	for _, secret := range []string{"robot", "p/ss w+rd-9", "t0ken-of-the-day"} {
		for name, form := range map[string]string{
			"as it is":             secret,
			"in a form":            url.QueryEscape(secret),
			"LOGIN":                base64.StdEncoding.EncodeToString([]byte(secret)),
			"PLAIN":                base64.StdEncoding.EncodeToString([]byte("\x00robot\x00" + secret)),
			"without =":            base64.RawStdEncoding.EncodeToString([]byte("\x00robot\x00" + secret)),
			"for URLs":             base64.URLEncoding.EncodeToString([]byte("??>" + secret + "??>")),
			"XOAUTH2":              base64.StdEncoding.EncodeToString([]byte("user=robot\x01auth=Bearer " + secret + "\x01\x01")),
			"within a longer text": base64.StdEncoding.EncodeToString([]byte("xyz"+secret+"012"[:3-len(secret)%3])) + "x",
		} {
			got := c.Redact("501 syntax error: AUTH PLAIN " + form + ", try again")
			if strings.Contains(got, form) || strings.Contains(got, secret) || !strings.Contains(got, hidden) || !strings.Contains(got, "try again") {
				t.Errorf("%s: Redact = %q, want %q redacted", name, got, form)
			}
		}
	}
	for _, text := range []string{"", "mailbox full", "5.7.8 Authentication credentials invalid abc", "aGVsbG8gd29ybGQ="} {
		if got := c.Redact(text); got != text {
			t.Errorf("Redact(%q) = %q, want it unchanged", text, got)
		}
	}
}
