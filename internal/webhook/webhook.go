// Package webhook sends events to the servers of subscribers. The Sink queues a delivery of each
// event for each subscription, in the transaction that moves its cursor. The Deliverer sends them:
//
//	event.Dispatcher ─▶ Sink.Take ─▶ webhook_deliveries (pending)
//	                                     │ Deliverer: one lane a subscription
//	                                     ├─ 2xx ─────────────▶ delivered
//	                                     ├─ else, 5 s … 12 h ─▶ pending
//	                                     └─ after three days ─▶ dead
//
// One replica at a time leases a lane, so the deliveries about one object are sent in the order of
// its events. A delivery is sent at least once: if a process is killed after it sent an event and
// before it stored the result, the event is sent again with the same event_id.
//
// A slow or dead receiver does not delay the others: lanes whose receivers hang run separately
// (job.Lanes). A receiver that cannot be reached several times in a row counts as away: its lane
// pauses, and then sends a few deliveries to find out whether it is back.
package webhook

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/event"
	"github.com/gatehouse-dev/gatehouse/internal/fault"
	"github.com/gatehouse-dev/gatehouse/internal/patch"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

// The limits of a tenant's subscriptions.
const (
	maxWebhooks     = 200
	maxRedeliveries = 10_000
	// defaultOverlap is how long the previous secret signs too, if a rotation does not say.
	defaultOverlap = 24 * time.Hour
)

// Webhook is a subscription.
type Webhook struct {
	ID     int64    `json:"id" db:"id" doc:"Identifier."`
	Name   string   `json:"name" db:"name" doc:"Name, unique." example:"audit trail"`
	URL    string   `json:"url" db:"url" doc:"Where events are posted." example:"https://hooks.example.com/gatehouse"`
	Events []string `json:"events" db:"events" doc:"Types of the events that are sent; GET /webhooks/event-types lists them."`
	// Environment is AnyEnv for events of both environments.
	Environment         scope.Env  `json:"environment" db:"environment" enum:",sandbox,production" doc:"Only events of this environment, and those without one; empty: both."`
	Enabled             bool       `json:"enabled" db:"enabled" doc:"Whether events are sent. Events from the time while it is disabled are never sent."`
	SecretSet           bool       `json:"secret_set" db:"-" doc:"Whether a secret is stored. It is never returned."`
	PreviousSecretUntil *time.Time `json:"previous_secret_until" db:"previous_until" doc:"Until when the previous secret also signs; null: it does not."`
	ConsecutiveFailures int64      `json:"consecutive_failures" db:"failures" doc:"Number of failed attempts since the last success."`
	LastSuccessAt       *time.Time `json:"last_success_at" db:"last_success_at" doc:"When the receiver last accepted an event; null: never."`
	LastFailureAt       *time.Time `json:"last_failure_at" db:"last_failure_at" doc:"When an attempt last failed; null: never."`
	Pending             int64      `json:"pending_deliveries" db:"pending" doc:"Number of pending deliveries."`
	Dead                int64      `json:"dead_deliveries" db:"dead" doc:"Number of dead deliveries among those that are listed."`
	CreatedBy           string     `json:"created_by" db:"created_by" doc:"Who created it."`
	CreatedAt           time.Time  `json:"created_at" db:"created_at" doc:"When it was created."`
	UpdatedAt           time.Time  `json:"updated_at" db:"updated_at" doc:"When a person last changed it."`

	// ChangeNo is the ETag. Changes by people increase it; deliveries do not.
	ChangeNo int64 `json:"-" db:"change_no"`
	// Secret and Previous are encrypted.
	Secret   []byte `json:"-" db:"secret"`
	Previous []byte `json:"-" db:"previous_secret"`
	// SinceSeq is the position of the last event before the subscription was created or enabled.
	SinceSeq int64 `json:"-" db:"since_seq"`
	// UntilSeq is the position of the last event before it was disabled.
	UntilSeq int64 `json:"-" db:"until_seq"`
	// PausedUntil is when a receiver that is away, or that asked for a pause, is called next; nil:
	// there is no pause.
	PausedUntil *time.Time `json:"-" db:"paused_until"`
}

// Issued is a subscription with its secret, if the server generated it.
type Issued struct {
	Webhook
	Secret string `json:"secret,omitempty" doc:"The secret, shown only once; absent if the request set it."`
}

// Draft is the input of Create.
type Draft struct {
	Name        string    `json:"name" minLength:"1" maxLength:"200" doc:"Name, unique." example:"audit trail"`
	URL         string    `json:"url" minLength:"1" maxLength:"2000" doc:"URL that events are posted to: https, or http to an address that the operator allows; no internal network." example:"https://hooks.example.com/gatehouse"`
	Events      []string  `json:"events" minItems:"1" maxItems:"50" doc:"Types of the events to send." example:"[\"policy.deployed\"]"`
	Environment scope.Env `json:"environment,omitempty" enum:",sandbox,production" doc:"Only events of this environment, and those without one; absent: both."`
	Secret      string    `json:"secret,omitempty" writeOnly:"true" maxLength:"500" doc:"Key of the signatures; absent: one is generated and shown once. Use 24 random bytes or more."`
	Enabled     *bool     `json:"enabled,omitempty" doc:"Whether events are sent; true by default."`
}

// Change is the input of Update. Only the members that are sent change.
type Change struct {
	Name        *string                `json:"name,omitempty" minLength:"1" maxLength:"200" doc:"Name, unique."`
	URL         *string                `json:"url,omitempty" minLength:"1" maxLength:"2000" doc:"URL that events are posted to. A change to another host needs secret: the stored one is used only for the host that it was given for."`
	Events      *[]string              `json:"events,omitempty" minItems:"1" maxItems:"50" doc:"Types of the events to send; replaces the complete list."`
	Environment patch.Field[scope.Env] `json:"environment,omitzero" enum:",sandbox,production" doc:"Only events of this environment, and those without one; null: both."`
	Secret      *string                `json:"secret,omitempty" writeOnly:"true" minLength:"1" maxLength:"500" doc:"Replaces the secret at once. With POST /webhooks/{webhook_id}/rotate-secret, the old one also signs for a while."`
	Enabled     *bool                  `json:"enabled,omitempty" doc:"Whether events are sent."`
}

// Rotation is the input of RotateSecret.
type Rotation struct {
	Secret  string `json:"secret,omitempty" writeOnly:"true" maxLength:"500" doc:"The new secret; absent: one is generated and shown once."`
	Overlap *int   `json:"overlap_seconds,omitempty" minimum:"0" maximum:"604800" doc:"How long the old secret also signs, in seconds; a day by default."`
}

// Page is one page of the subscriptions, sorted by id.
type Page struct {
	Webhooks []Webhook `json:"webhooks" doc:"The page, sorted by id."`
	Total    int64     `json:"total" doc:"How many there are."`
}

// Offences returns the errors in a draft that its schema cannot express.
func (d Draft) Offences() []fault.Detail { return unknownEvents(d.Events) }

// Offences returns the errors in a change that its schema cannot express.
func (c Change) Offences() []fault.Detail {
	if c.Events == nil {
		return nil
	}
	return unknownEvents(*c.Events)
}

func unknownEvents(names []string) []fault.Detail {
	var out []fault.Detail
	for i, name := range names {
		if !slices.Contains(event.Types(), name) {
			out = append(out, fault.Detail{
				Pointer: "/events/" + strconv.FormatInt(int64(i), 10), Message: "no such event type; GET /webhooks/event-types lists them",
			})
		}
	}
	return out
}

func (w Webhook) apply(c Change) Webhook {
	if c.Name != nil {
		w.Name = strings.TrimSpace(*c.Name)
	}
	if c.URL != nil {
		w.URL = *c.URL
	}
	if c.Events != nil {
		w.Events = sortTypes(*c.Events)
	}
	c.Environment.Apply(&w.Environment)
	if c.Enabled != nil {
		w.Enabled = *c.Enabled
	}
	return w
}

// sortTypes returns the event types in the order of the catalogue, each once.
func sortTypes(names []string) []string {
	out := []string{}
	for _, t := range event.Types() {
		if slices.Contains(names, t) {
			out = append(out, t)
		}
	}
	return out
}
