package webhook

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"strconv"
	"strings"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/fault"
	"github.com/gatehouse-dev/gatehouse/internal/outbound"
)

// secretPrefix marks secrets whose rest is the key in base64 (Standard Webhooks).
const secretPrefix = "whsec_"

// payload is the body without its signature, in the order in which it is written.
type payload struct {
	EventID   string          `json:"event_id"`
	EventType string          `json:"event_type"`
	Timestamp time.Time       `json:"timestamp"`
	Data      json.RawMessage `json:"data"`
}

// message is one request: its body and the headers that sign it.
type message struct {
	body   []byte
	header map[string][]string
}

// compose writes and signs a request for at. secrets are in clear, the present one
// first; the one before may follow.
//
// The member signature is the HMAC of the body as it is without that member, keyed
// with the present secret. X-Service-Signature signs the body as it is sent. The
// headers webhook-* follow Standard Webhooks; webhook-signature lists one signature a
// secret, so a receiver that knows either accepts. For receivers that read
// X-Service-Signature, X-Service-Signature-Previous is that of the secret before.
func compose(p payload, at time.Time, secrets [][]byte) (message, error) {
	unsigned, err := json.Marshal(p)
	if err != nil {
		return message{}, err
	}
	signature, err := json.Marshal(outbound.Signature(secrets[0], unsigned))
	if err != nil {
		return message{}, err
	}
	body := append(append(append(append([]byte{}, unsigned[:len(unsigned)-1]...), `,"signature":`...), signature...), '}')
	stamp := strconv.FormatInt(at.Unix(), 10)
	var standard []string
	for _, s := range secrets {
		mac := hmac.New(sha256.New, standardKey(s))
		mac.Write([]byte(p.EventID + "." + stamp + "."))
		mac.Write(body)
		standard = append(standard, "v1,"+base64.StdEncoding.EncodeToString(mac.Sum(nil)))
	}
	header := map[string][]string{
		"Content-Type":        {"application/json"},
		"User-Agent":          {"gatehouse-webhooks"},
		"X-Service-Event":     {p.EventType},
		"X-Service-Signature": {outbound.Signature(secrets[0], body)},
		"Webhook-Id":          {p.EventID},
		"Webhook-Timestamp":   {stamp},
		"Webhook-Signature":   {strings.Join(standard, " ")},
	}
	if len(secrets) > 1 {
		header["X-Service-Signature-Previous"] = []string{outbound.Signature(secrets[1], body)}
	}
	return message{body, header}, nil
}

// SignatureMatches reports whether a header of Standard Webhooks has the signature of a message
// by a secret. It takes the same time for all signatures of a length.
func SignatureMatches(id, timestamp string, body []byte, header, secret string) bool {
	mac := hmac.New(sha256.New, standardKey([]byte(secret)))
	mac.Write([]byte(id + "." + timestamp + "."))
	mac.Write(body)
	want, matches := []byte("v1,"+base64.StdEncoding.EncodeToString(mac.Sum(nil))), false
	for _, one := range strings.Fields(header) {
		matches = hmac.Equal(want, []byte(one)) || matches
	}
	return matches
}

// Signed writes an event and signs it as a subscription does, with one secret: the body and its
// headers. data is JSON.
func Signed(id, kind string, occurred time.Time, data []byte, at time.Time, secret string) (body []byte, header map[string][]string, err error) {
	m, err := compose(payload{id, kind, occurred.UTC(), data}, at, [][]byte{[]byte(secret)})
	return m.body, m.header, err
}

// checkSecret refuses a secret of which nothing is secret: blanks, or a key of Standard
// Webhooks without a byte. Whoever knows that could sign.
func checkSecret(secret string) error {
	if strings.TrimSpace(secret) == "" || strings.TrimSpace(string(standardKey([]byte(secret)))) == "" {
		return fault.Invalidf("/secret", "the secret is empty; use 24 random bytes or more")
	}
	return nil
}

func hexOf(b []byte) string { return hex.EncodeToString(b) }

// standardKey is the key of Standard Webhooks: what follows whsec_, decoded, else the
// secret as it is.
func standardKey(secret []byte) []byte {
	if text, ok := strings.CutPrefix(string(secret), secretPrefix); ok {
		if key, err := base64.StdEncoding.DecodeString(text); err == nil {
			return key
		}
	}
	return secret
}
