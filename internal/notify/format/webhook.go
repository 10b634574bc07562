package format

import (
	"encoding/base64"

	"github.com/gatehouse-dev/gatehouse/internal/outbound"
)

// webhookType posts the message as JSON. The header X-Service-Signature signs the body.
func webhookType() Type {
	return Type{
		Name: Webhook, Secrets: []string{HMACSecret, BearerToken},
		Credentials: [][]string{{}, {HMACSecret}, {BearerToken}, {HMACSecret, BearerToken}},
		Send: func(call Call, c Channel, m Message) Outcome {
			r, err := jsonRequest("POST", c.Endpoint, m)
			if err != nil {
				return Outcome{Error: "the message cannot be written"}
			}
			if secret := c.Credential[HMACSecret]; secret != "" {
				r.Header["X-Service-Signature"] = []string{outbound.Signature([]byte(secret), r.Body)}
			}
			c.authorize(r)
			_, out := exchange{c, call}.send(r, nil)
			return out
		},
	}
}

// basic returns the credentials of HTTP Basic authentication (RFC 7617).
func basic(user, password string) string {
	return base64.StdEncoding.EncodeToString([]byte(user + ":" + password))
}
