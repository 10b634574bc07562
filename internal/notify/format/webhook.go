package format

import (
	"encoding/base64"

	"github.com/gatehouse-dev/gatehouse/internal/fault"
	"github.com/gatehouse-dev/gatehouse/internal/outbound"
)

// webhookType posts the message as it is. X-Service-Signature signs the body as sent.
func webhookType() Type {
	return Type{
		Name: Webhook, Secrets: []string{HMACSecret, BearerToken},
		Check: func(ch Channel) []fault.Detail {
			c := &checks{Channel: ch}
			c.secrets([]string{}, []string{HMACSecret}, []string{BearerToken}, []string{HMACSecret, BearerToken})
			return c.found
		},
		Request: func(c Channel, m Message) (outbound.Request, error) {
			r, err := jsonRequest(c.Endpoint, m)
			if err != nil {
				return r, err
			}
			if secret := c.Credential[HMACSecret]; secret != "" {
				r.Header["X-Service-Signature"] = []string{outbound.Signature([]byte(secret), r.Body)}
			}
			c.authorize(r)
			return r, nil
		},
	}
}

func basic(user, password string) string {
	return base64.StdEncoding.EncodeToString([]byte(user + ":" + password))
}
