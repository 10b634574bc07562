// Package notify tells people what happened: by mail, in chats, by pagers, in tickets and by
// webhooks. A Channel says where messages go. A Delivery is one Message on its way to one channel:
//
//	event ─▶ Sink.Take ─┐
//	Queue, Broadcast ───┴─▶ notification_deliveries (pending)
//	                            │ Deliverer: one lane a channel
//	                            ├─ quiet hours, a burst ───▶ held ─▶ digested: one digest for several
//	                            ├─ accepted ───────────────▶ sent
//	                            ├─ else, 15 min … 1 h ─────▶ failed, tried again
//	                            └─ after max_attempts ─────▶ dlq
//
// One replica at a time serves a channel. A delivery is sent at least once: if a process is killed
// after it sent a message and before it stored the result, the message is sent again with the same
// id. Messages about one fault keep their order. Channels share only the number of lanes, so a slow
// or dead receiver does not delay the others.
package notify

import (
	"encoding/json"
	"slices"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/notify/format"
	"github.com/gatehouse-dev/gatehouse/internal/patch"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

const (
	// maxChannels is the largest number of channels of a tenant.
	maxChannels = 200
	// defaultAttempts is how often a delivery is tried if the channel does not say.
	defaultAttempts = 5
	// maxDigestWindow is the longest window of a digest, in seconds.
	maxDigestWindow = 24 * 60 * 60
	// maxSettings is the largest size of a channel's settings, in bytes of JSON.
	maxSettings = 16 << 10
)

// Channel is a place to which messages are sent.
type Channel struct {
	ID                int64          `json:"id" db:"id" doc:"Identifier."`
	Name              string         `json:"name" db:"name" doc:"Name, unique." example:"on call"`
	Type              string         `json:"type" db:"type" enum:"email,slack,teams,pagerduty,servicenow,jira,webhook" doc:"Type of receiver."`
	Endpoint          string         `json:"endpoint" db:"endpoint" doc:"Address of the receiver." example:"https://hooks.example.com/gatehouse"`
	Environment       scope.Env      `json:"environment" db:"environment" enum:"sandbox,production" doc:"Only messages about this environment, and those about the whole tenant."`
	SeverityThreshold string         `json:"severity_threshold" db:"severity_threshold" enum:"info,warning,error,critical" doc:"Only messages of this severity or a higher one."`
	MaxAttempts       int            `json:"max_attempts" db:"max_attempts" doc:"How often a delivery is tried."`
	Enabled           bool           `json:"enabled" db:"enabled" doc:"Whether messages are sent."`
	Settings          map[string]any `json:"settings" db:"settings" doc:"Settings of the type; docs/notifications.md lists them."`
	QuietHours        *QuietHours    `json:"quiet_hours" db:"quiet_hours" doc:"When messages are held; null: never."`
	DigestWindow      int            `json:"digest_window_seconds" db:"digest_window" doc:"For how long after a message further ones are held, to be sent as one digest, in seconds; 0: they are not held."`
	CredentialSet     bool           `json:"credential_set" db:"-" doc:"Whether a credential is stored. It is never returned."`
	Pending           int64          `json:"pending_deliveries" db:"pending" doc:"Number of deliveries that wait for another attempt."`
	Held              int64          `json:"held_deliveries" db:"held" doc:"Number of deliveries that are held for a digest or because of quiet hours."`
	Dead              int64          `json:"dlq_deliveries" db:"dead" doc:"Number of deliveries that were given up."`
	LastSuccessAt     *time.Time     `json:"last_success_at" db:"last_success_at" doc:"When the receiver last accepted a message; null: never."`
	LastFailureAt     *time.Time     `json:"last_failure_at" db:"last_failure_at" doc:"When an attempt last failed; null: never."`
	CreatedBy         string         `json:"created_by" db:"created_by" doc:"Who created it."`
	CreatedAt         time.Time      `json:"created_at" db:"created_at" doc:"When it was created."`
	UpdatedAt         time.Time      `json:"updated_at" db:"updated_at" doc:"When it was last changed."`

	// ChangeNo is the ETag. Changes by people increase it; deliveries do not.
	ChangeNo int64 `json:"-" db:"change_no"`
	// Credential is encrypted.
	Credential []byte `json:"-" db:"credential"`
	// DigestUntil is the end of the digest window that the last message opened; nil: there was
	// none.
	DigestUntil *time.Time `json:"-" db:"digest_until"`
}

// Draft is the input of Create.
type Draft struct {
	Name              string         `json:"name" minLength:"1" maxLength:"200" doc:"Name, unique." example:"on call"`
	Type              string         `json:"type" enum:"email,slack,teams,pagerduty,servicenow,jira,webhook" doc:"Type of receiver."`
	Endpoint          string         `json:"endpoint,omitempty" maxLength:"2000" doc:"Address of the receiver: an https URL, or http to an address that the operator allows; for email smtp://host:port or smtps://host:port. No internal network. Types with a fixed address need none. The URL of a chat's incoming webhook is a secret: it becomes the credential, and the endpoint shows only its scheme and host." example:"https://hooks.example.com/gatehouse"`
	Environment       scope.Env      `json:"environment,omitempty" enum:"sandbox,production" doc:"Only messages about this environment, and those about the whole tenant; sandbox by default."`
	SeverityThreshold string         `json:"severity_threshold,omitempty" enum:"info,warning,error,critical" doc:"Only messages of this severity or a higher one; info by default."`
	MaxAttempts       *int           `json:"max_attempts,omitempty" minimum:"1" maximum:"10" doc:"How often a delivery is tried, 5 by default."`
	Enabled           *bool          `json:"enabled,omitempty" doc:"Whether messages are sent; true by default."`
	Settings          map[string]any `json:"settings,omitempty" doc:"Settings of the type; docs/notifications.md lists them."`
	QuietHours        *QuietHours    `json:"quiet_hours,omitempty" doc:"When messages are held, and sent as one digest afterwards; absent: never."`
	DigestWindow      int            `json:"digest_window_seconds,omitempty" minimum:"0" maximum:"86400" doc:"For how long after a message further ones are held, to be sent as one digest, in seconds; 0 by default: they are not held. Critical messages are never held for a digest. Not for types that keep an incident or a ticket for each fault."`
	Credential        any            `json:"credential,omitempty" writeOnly:"true" doc:"An object with the secrets of the type, or a string for its main secret. It is stored encrypted and never returned."`
}

// Change is the input of Update. Only the members that are sent change.
type Change struct {
	Name              *string                     `json:"name,omitempty" minLength:"1" maxLength:"200" doc:"Name, unique."`
	Endpoint          *string                     `json:"endpoint,omitempty" maxLength:"2000" doc:"Address of the receiver. A change to another host needs the credential again: the stored one is sent only to the host that it was given for."`
	SeverityThreshold *string                     `json:"severity_threshold,omitempty" enum:"info,warning,error,critical" doc:"Only messages of this severity or a higher one."`
	MaxAttempts       *int                        `json:"max_attempts,omitempty" minimum:"1" maximum:"10" doc:"How often a delivery is tried."`
	Enabled           *bool                       `json:"enabled,omitempty" doc:"Whether messages are sent."`
	Settings          patch.Field[map[string]any] `json:"settings,omitzero" doc:"Settings of the type; replaces all of them."`
	QuietHours        patch.Field[QuietHours]     `json:"quiet_hours,omitzero" doc:"When messages are held, and sent as one digest afterwards; replaces all of it, null: never."`
	DigestWindow      *int                        `json:"digest_window_seconds,omitempty" minimum:"0" maximum:"86400" doc:"For how long after a message further ones are held, to be sent as one digest, in seconds; 0: they are not held."`
	Credential        any                         `json:"credential,omitempty" writeOnly:"true" doc:"Replaces the credential: an object with the secrets of the type, or a string for its main secret; an empty object removes it."`
}

// Page is one page of the channels, sorted by id.
type Page struct {
	Channels []Channel `json:"channels" doc:"The page, sorted by id."`
	Total    int64     `json:"total" doc:"How many there are."`
}

// severityRank returns the position of a severity, from 0 for the least severe.
func severityRank(severity string) int { return slices.Index(format.Severities(), severity) }

// tooLarge reports whether settings are larger than maxSettings.
func tooLarge(settings map[string]any) bool {
	text, err := json.Marshal(settings)
	return err != nil || len(text) > maxSettings
}
