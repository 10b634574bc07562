// Package notify tells people what happened: by mail and by webhooks. A Channel says
// where; each Message that a channel gets is a Delivery:
//
//	event ─▶ Sink.Take ─┐
//	Queue, Broadcast ───┴─▶ notification_deliveries (pending)
//	                            │ Deliverer: one lane a channel
//	                            ├─ accepted ───────────────▶ sent
//	                            ├─ else, 15 min … 1 h ─────▶ failed, tried again
//	                            └─ after max_attempts ─────▶ dlq
//
// One replica at a time serves a channel. A delivery is sent at least once: a process
// that is killed between sending and writing that down leaves it to be sent again, with
// the same id. Messages about one fault keep their order. Channels share nothing but the
// number of lanes, so a slow or dead receiver holds up no other.
package notify

import (
	"encoding/json"
	"slices"
	"strings"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/fault"
	"github.com/gatehouse-dev/gatehouse/internal/notify/format"
	"github.com/gatehouse-dev/gatehouse/internal/patch"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

const (
	// maxChannels bounds the channels of a tenant.
	maxChannels = 200
	// defaultAttempts is how often a delivery is tried.
	defaultAttempts = 5
	// maxSettings bounds the settings of a channel, in bytes of JSON.
	maxSettings = 16 << 10
)

// Channel is a place that messages go to.
type Channel struct {
	ID                int64          `json:"id" db:"id" doc:"Identifier."`
	Name              string         `json:"name" db:"name" doc:"Name, unique." example:"on call"`
	Type              string         `json:"type" db:"type" enum:"email,webhook" doc:"Type of receiver."`
	Endpoint          string         `json:"endpoint" db:"endpoint" doc:"Address of the receiver." example:"https://hooks.example.com/gatehouse"`
	Environment       scope.Env      `json:"environment" db:"environment" enum:"sandbox,production" doc:"Only messages about this environment, and those about the whole tenant."`
	SeverityThreshold string         `json:"severity_threshold" db:"severity_threshold" enum:"info,warning,error,critical" doc:"Only messages of this severity or a higher one."`
	MaxAttempts       int            `json:"max_attempts" db:"max_attempts" doc:"How often a delivery is tried."`
	Enabled           bool           `json:"enabled" db:"enabled" doc:"Whether messages are sent."`
	Settings          map[string]any `json:"settings" db:"settings" doc:"Settings of the type; docs/notifications.md lists them."`
	CredentialSet     bool           `json:"credential_set" db:"-" doc:"Whether a credential is stored. It is never returned."`
	Pending           int64          `json:"pending_deliveries" db:"pending" doc:"Number of deliveries that are still tried."`
	Dead              int64          `json:"dlq_deliveries" db:"dead" doc:"Number of deliveries that were given up."`
	LastSuccessAt     *time.Time     `json:"last_success_at" db:"last_success_at" doc:"When the receiver last accepted a message; null: never."`
	LastFailureAt     *time.Time     `json:"last_failure_at" db:"last_failure_at" doc:"When an attempt last failed; null: never."`
	CreatedBy         string         `json:"created_by" db:"created_by" doc:"Who created it."`
	CreatedAt         time.Time      `json:"created_at" db:"created_at" doc:"When it was created."`
	UpdatedAt         time.Time      `json:"updated_at" db:"updated_at" doc:"When it was last changed."`

	// ChangeNo is the ETag: it grows with changes by people, not with deliveries.
	ChangeNo int64 `json:"-" db:"change_no"`
	// Credential is sealed.
	Credential []byte `json:"-" db:"credential"`
}

// Draft is what a create takes.
type Draft struct {
	Name              string         `json:"name" minLength:"1" maxLength:"200" doc:"Name, unique." example:"on call"`
	Type              string         `json:"type" enum:"email,webhook" doc:"Type of receiver."`
	Endpoint          string         `json:"endpoint,omitempty" maxLength:"2000" doc:"Address of the receiver: an https URL, or http to an address that the operator allows; for email smtp://host:port or smtps://host:port. No internal network. Types with a fixed address need none." example:"https://hooks.example.com/gatehouse"`
	Environment       scope.Env      `json:"environment,omitempty" enum:"sandbox,production" doc:"Only messages about this environment, and those about the whole tenant; sandbox by default."`
	SeverityThreshold string         `json:"severity_threshold,omitempty" enum:"info,warning,error,critical" doc:"Only messages of this severity or a higher one; info by default."`
	MaxAttempts       *int           `json:"max_attempts,omitempty" minimum:"1" maximum:"10" doc:"How often a delivery is tried, 5 by default."`
	Enabled           *bool          `json:"enabled,omitempty" doc:"Whether messages are sent; true by default."`
	Settings          map[string]any `json:"settings,omitempty" doc:"Settings of the type; docs/notifications.md lists them."`
	Credential        any            `json:"credential,omitempty" writeOnly:"true" doc:"An object with the secrets of the type, or a string for its main secret. It is stored encrypted and never returned."`
}

// Change is what an update takes: the members sent change, the others stay.
type Change struct {
	Name              *string                     `json:"name,omitempty" minLength:"1" maxLength:"200" doc:"Name, unique."`
	Endpoint          *string                     `json:"endpoint,omitempty" maxLength:"2000" doc:"Address of the receiver. Another host needs the credential again: the stored one is not sent to a host that it was not given for."`
	SeverityThreshold *string                     `json:"severity_threshold,omitempty" enum:"info,warning,error,critical" doc:"Only messages of this severity or a higher one."`
	MaxAttempts       *int                        `json:"max_attempts,omitempty" minimum:"1" maximum:"10" doc:"How often a delivery is tried."`
	Enabled           *bool                       `json:"enabled,omitempty" doc:"Whether messages are sent."`
	Settings          patch.Field[map[string]any] `json:"settings,omitzero" doc:"Settings of the type; replaces all of them."`
	Credential        any                         `json:"credential,omitempty" writeOnly:"true" doc:"Replaces the credential: an object with the secrets of the type, or a string for its main secret; an empty object removes it."`
}

// Page is one page of the channels, by id.
type Page struct {
	Channels []Channel `json:"channels" doc:"The page, by id."`
	Total    int64     `json:"total" doc:"How many there are."`
}

// rank orders severities.
func rank(severity string) int { return slices.Index(format.Severities(), severity) }

// secretsOf reads a credential as it was sent: an object of texts, or the text of the
// main secret of the type.
func secretsOf(t format.Type, sent any) (map[string]string, []fault.Detail) {
	switch v := sent.(type) {
	case nil:
		return map[string]string{}, nil
	case string:
		if v == "" {
			return map[string]string{}, nil
		}
		return map[string]string{t.Secrets[0]: v}, nil
	case map[string]any:
		out := map[string]string{}
		var wrong []fault.Detail
		for name, value := range v {
			s, isText := value.(string)
			switch {
			case !slices.Contains(t.Secrets, name):
				wrong = append(wrong, fault.Detail{Pointer: "/credential/" + name, Message: "is no member of the credential of this type"})
			case !isText:
				wrong = append(wrong, fault.Detail{Pointer: "/credential/" + name, Message: "must be a string"})
			case len(s) > 8000:
				wrong = append(wrong, fault.Detail{Pointer: "/credential/" + name, Message: "must not be longer than 8000 characters"})
			case s != "":
				out[name] = s
			}
		}
		slices.SortFunc(wrong, func(a, b fault.Detail) int { return strings.Compare(a.Pointer, b.Pointer) })
		return out, wrong
	}
	return nil, []fault.Detail{{Pointer: "/credential", Message: "must be an object of strings, or a string"}}
}

// tooLarge reports whether settings are larger than a channel may have.
func tooLarge(settings map[string]any) bool {
	text, err := json.Marshal(settings)
	return err != nil || len(text) > maxSettings
}
