package format

import (
	"encoding/base64"
	"maps"
	"net/url"
	"regexp"
	"slices"
	"strings"
)

// hidden replaces a secret.
const hidden = "[redacted]"

// encoded matches text that may be base64.
var encoded = regexp.MustCompile(`[A-Za-z0-9+/_-]{4,}`)

// Redact removes the secrets of a channel from a receiver's answer, which may repeat what it was
// sent. It finds a secret as it is, URL-encoded, or in base64, as SMTP AUTH sends it. Redact a text
// before cutting it, because a part of a secret is not recognised.
func (c Channel) Redact(said string) string {
	secrets := slices.DeleteFunc(append(slices.Collect(maps.Values(c.Credential)), c.Token), func(s string) bool { return len(s) < 4 })
	slices.SortFunc(secrets, func(a, b string) int { return len(b) - len(a) }) // one may contain another
	for _, s := range secrets {
		said = strings.NewReplacer(s, hidden, url.QueryEscape(s), hidden).Replace(said)
	}
	return encoded.ReplaceAllStringFunc(said, func(word string) string {
		text := strings.NewReplacer("-", "+", "_", "/").Replace(word)
		if len(text)%4 == 1 { // not a length of base64: drop the character after it
			text = text[:len(text)-1]
		}
		clear, err := base64.RawStdEncoding.DecodeString(text)
		if err == nil && slices.ContainsFunc(secrets, func(s string) bool { return strings.Contains(string(clear), s) }) {
			return hidden
		}
		return word
	})
}
