package format

import (
	"encoding/base64"
	"maps"
	"net/url"
	"regexp"
	"slices"
	"strings"
)

// hidden stands for a secret.
const hidden = "[redacted]"

// encoded is what may be base64.
var encoded = regexp.MustCompile(`[A-Za-z0-9+/_-]{4,}`)

// Redact removes the secrets of a channel from what a receiver said, which may repeat what
// it was sent: a secret as it is, as a form has it, or within base64, as AUTH sends it. A
// text is redacted before it is cut, because half a secret is not recognised.
func (c Channel) Redact(said string) string {
	secrets := slices.DeleteFunc(append(slices.Collect(maps.Values(c.Credential)), c.Token), func(s string) bool { return len(s) < 4 })
	slices.SortFunc(secrets, func(a, b string) int { return len(b) - len(a) }) // one may be part of another
	for _, s := range secrets {
		said = strings.NewReplacer(s, hidden, url.QueryEscape(s), hidden).Replace(said)
	}
	return encoded.ReplaceAllStringFunc(said, func(word string) string {
		text := strings.NewReplacer("-", "+", "_", "/").Replace(word)
		if len(text)%4 == 1 { // no length of base64: something stands behind it
			text = text[:len(text)-1]
		}
		clear, err := base64.RawStdEncoding.DecodeString(text)
		if err == nil && slices.ContainsFunc(secrets, func(s string) bool { return strings.Contains(string(clear), s) }) {
			return hidden
		}
		return word
	})
}
