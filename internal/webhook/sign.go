package webhook

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"strconv"
	"strings"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/fault"
	"github.com/gatehouse-dev/gatehouse/internal/outbound"
)

// secretPrefix begins secrets whose rest is the base64 key (Standard Webhooks).
const secretPrefix = "whsec_"

// payload is the body without its signature. Its members are written in this order.
type payload struct {
	EventID   string          `json:"event_id"`
	EventType string          `json:"event_type"`
	Timestamp time.Time       `json:"timestamp"`
	Data      json.RawMessage `json:"data"`
}

// message is the body and the signed headers of one request.
type message struct {
	body   []byte
	header map[string][]string
}

// compose writes and signs a request that is sent at the time at. secrets are the decrypted
// secrets: the current one, and the previous one if it still signs.
//
// The member signature is the HMAC of the body without that member, with the current secret.
// X-Service-Signature signs the body as it is sent. X-Service-Signature-Previous signs it with the
// previous secret. The headers webhook-* follow Standard Webhooks: webhook-signature lists a
// signature with each secret, so a receiver that knows either of them accepts the request.
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

// SignatureMatches reports whether a webhook-signature header (Standard Webhooks) contains the
// signature of a message with a secret. It compares signatures in constant time.
func SignatureMatches(id, timestamp string, body []byte, header, secret string) bool {
	mac := hmac.New(sha256.New, standardKey([]byte(secret)))
	mac.Write([]byte(id + "." + timestamp + "."))
	mac.Write(body)
	want, matches := []byte("v1,"+base64.StdEncoding.EncodeToString(mac.Sum(nil))), false
	for one := range strings.FieldsSeq(header) {
		matches = hmac.Equal(want, []byte(one)) || matches
	}
	return matches
}

// Signed writes and signs an event like a delivery to a subscription with one secret. It returns
// the body and the headers. data is JSON.
func Signed(id, kind string, occurred time.Time, data []byte, at time.Time, secret string) (body []byte, header map[string][]string, err error) {
	m, err := compose(payload{id, kind, occurred.UTC(), data}, at, [][]byte{[]byte(secret)})
	return m.body, m.header, err
}

// checkSecret refuses a secret that is blank, or that contains an empty or blank key after whsec_.
// Anybody could sign with such a secret.
func checkSecret(secret string) error {
	if strings.TrimSpace(secret) == "" || strings.TrimSpace(string(standardKey([]byte(secret)))) == "" {
		return fault.Invalidf("/secret", "the secret is empty; use 24 random bytes or more")
	}
	return nil
}

// standardKey returns the key for Standard Webhooks: the decoded base64 after whsec_, or the secret
// itself if it has no such form.
func standardKey(secret []byte) []byte {
	if text, ok := strings.CutPrefix(string(secret), secretPrefix); ok {
		if key, err := base64.StdEncoding.DecodeString(text); err == nil {
			return key
		}
	}
	return secret
}
