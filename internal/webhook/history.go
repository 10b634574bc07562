package webhook

import (
	"context"
	"encoding/json"
	"strconv"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/audit"
	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/fault"
	"github.com/gatehouse-dev/gatehouse/internal/patch"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

// The states of a delivery.
const (
	Pending   = "pending"
	Delivered = "delivered"
	Dead      = "dead"
)

const (
	// patience is how long a delivery is tried.
	patience = 3 * 24 * time.Hour
	// keepDeliveries is how long a finished delivery is listed.
	keepDeliveries = 30 * 24 * time.Hour
	// keptAttempts is how many of the last attempts of a delivery are listed.
	keptAttempts = 25
)

// Attempt is one try at a delivery.
type Attempt struct {
	At             time.Time `json:"at" doc:"When."`
	ResponseStatus int       `json:"response_status,omitempty" doc:"HTTP status of the receiver's answer; absent: it could not be reached."`
	DurationMS     int64     `json:"duration_ms" doc:"Duration in milliseconds."`
	Error          string    `json:"error,omitempty" doc:"Why it failed."`
}

// ok reports whether the receiver accepted the delivery.
func (a Attempt) ok() bool { return a.Error == "" }

// Delivery is one event on its way to one subscription.
type Delivery struct {
	ID             int64      `json:"id" db:"id" doc:"Identifier."`
	WebhookID      int64      `json:"webhook_id" db:"webhook_id" doc:"The subscription."`
	EventID        string     `json:"event_id" db:"event_id" doc:"The event; the same in each attempt and each redelivery."`
	EventType      string     `json:"event_type" db:"event_type" doc:"Its type."`
	Status         string     `json:"status" db:"state" enum:"pending,delivered,dead" doc:"pending: still to be sent; dead: given up after three days."`
	Redelivery     bool       `json:"redelivery" db:"redelivery" doc:"Whether it is a requested redelivery."`
	Attempts       int        `json:"attempts" db:"attempts" doc:"Number of attempts."`
	Log            []Attempt  `json:"attempt_log" db:"log" doc:"The attempts, oldest first, at most the last 25."`
	ResponseStatus int        `json:"response_status" db:"response_status" doc:"HTTP status of the last attempt; 0: the receiver could not be reached, or there was no attempt yet."`
	Error          string     `json:"error" db:"error" doc:"Reason of the last failure; empty: the last attempt did not fail."`
	CreatedAt      time.Time  `json:"created_at" db:"created_at" doc:"When it was queued."`
	NextAttemptAt  *time.Time `json:"next_attempt_at" db:"next_at" doc:"When it is sent next; null: never."`
	FinishedAt     *time.Time `json:"finished_at" db:"finished_at" doc:"When it was delivered or given up; null: pending."`
	Payload        Payload    `json:"payload" db:"-" doc:"The body without its signature. Members with secret names are redacted, here and in the delivery."`

	At   time.Time       `json:"-" db:"at"`
	Data json.RawMessage `json:"-" db:"data"`
}

// Payload is the body of a delivery without its signature.
type Payload struct {
	EventID   string         `json:"event_id" doc:"The event."`
	EventType string         `json:"event_type" doc:"Its type."`
	Timestamp time.Time      `json:"timestamp" doc:"When it happened."`
	Data      map[string]any `json:"data" doc:"The data of the event; GET /webhooks/event-types has its schema."`
}

// DeliveryFilter narrows a list of deliveries.
type DeliveryFilter struct {
	// Status and EventType are empty for all.
	Status, EventType string
	// Start and End bound the time at which deliveries were queued; zero: no bound.
	Start, End time.Time
}

// DeliveryPage is one page of deliveries.
type DeliveryPage struct {
	Deliveries []Delivery `json:"deliveries" doc:"Newest first."`
	Total      int64      `json:"total" doc:"Number of items that match the filter."`
	NextCursor string     `json:"next_cursor,omitempty" doc:"For the next page; absent on the last."`
}

// Range selects the deliveries to send again.
type Range struct {
	Start     *time.Time `json:"start_date,omitempty" doc:"Only deliveries queued at this time or later."`
	End       *time.Time `json:"end_date,omitempty" doc:"Only deliveries queued at this time or before."`
	Status    string     `json:"status,omitempty" enum:"dead,delivered" doc:"Which deliveries; dead by default."`
	EventType string     `json:"event_type,omitempty" maxLength:"100" doc:"Only events of this type; absent: of all."`
}

// Requeued says how many deliveries were queued again.
type Requeued struct {
	Message string `json:"message" doc:"What was done."`
	Queued  int64  `json:"queued" doc:"Number of queued deliveries, at most 10,000; at that number, repeat the call for more."`
}

// TestResult is the result of a test event.
type TestResult struct {
	Delivered      bool   `json:"delivered" doc:"Whether the receiver answered 2xx within 10 s."`
	DeliveryID     int64  `json:"delivery_id" doc:"The delivery in the list. A test is tried once."`
	EventID        string `json:"event_id" doc:"The event that was sent."`
	EventType      string `json:"event_type" doc:"Its type. Its data is the catalogue's example, with test set."`
	ResponseStatus int    `json:"response_status" doc:"HTTP status of the receiver's answer; 0: it could not be reached."`
	DurationMS     int64  `json:"duration_ms" doc:"Duration in milliseconds."`
	Error          string `json:"error" doc:"Reason of the failure; empty: none."`
}

// Deliveries returns one page of a subscription's deliveries, newest first.
func (s *Service) Deliveries(ctx context.Context, sc scope.Scope, webhook int64, f DeliveryFilter, cursor string, limit int) (DeliveryPage, error) {
	var page DeliveryPage
	before := int64(0)
	if cursor != "" {
		var err error
		if before, err = strconv.ParseInt(cursor, 10, 64); err != nil || before < 1 {
			return page, fault.New(fault.BadRequest, "bad_cursor", "cursor is not one that the API returned")
		}
	}
	err := s.Stores.Read(ctx, sc.Tenant, func(tx *db.Tx) (err error) {
		if _, err = load(ctx, tx, webhook); err != nil {
			return err
		}
		if page.Total, err = countDeliveries(ctx, tx, webhook, f); err != nil {
			return err
		}
		page.Deliveries, err = listDeliveries(ctx, tx, webhook, f, before, limit+1)
		return err
	})
	if err != nil {
		return page, err
	}
	if len(page.Deliveries) > limit {
		page.Deliveries = page.Deliveries[:limit]
		page.NextCursor = strconv.FormatInt(page.Deliveries[limit-1].ID, 10)
	}
	for i := range page.Deliveries {
		if err := page.Deliveries[i].fill(); err != nil {
			return page, err
		}
	}
	return page, nil
}

// Delivery returns one delivery of a subscription, or NotFound.
func (s *Service) Delivery(ctx context.Context, sc scope.Scope, webhook, id int64) (Delivery, error) {
	d, err := db.Read(ctx, s.Stores, sc.Tenant, func(tx *db.Tx) (Delivery, error) { return loadDelivery(ctx, tx, webhook, id) })
	if err != nil {
		return d, err
	}
	return d, d.fill()
}

// Redeliver queues the event of a delivery again, whatever the state of that delivery. It returns
// Conflict if the event is still waiting or the subscription is disabled.
func (s *Service) Redeliver(ctx context.Context, sc scope.Scope, webhook, id int64) (Delivery, error) {
	var d Delivery
	err := s.Stores.WriteUnder(ctx, sc.Tenant, changes, func(tx *db.Tx) error {
		w, err := loadEnabled(ctx, tx, webhook)
		if err != nil {
			return err
		}
		old, err := loadDelivery(ctx, tx, webhook, id)
		if err != nil {
			return err
		}
		if waits, err := isWaiting(ctx, tx, webhook, old.EventID); err != nil {
			return err
		} else if waits {
			return fault.New(fault.Conflict, "delivery_pending", "the event is still waiting to be sent")
		}
		made, err := requeue(ctx, tx, webhook, id, s.Now())
		if err != nil {
			return err
		}
		if d, err = getDelivery(ctx, tx, webhook, made); err != nil {
			return err
		}
		return s.requeued(ctx, tx, sc, w, map[string]any{"event_id": old.EventID, "queued": 1})
	})
	if err != nil {
		return d, err
	}
	return d, d.fill()
}

// RedeliverRange queues the events of the deliveries in a range again, each event once, in their
// order. Without a status in the range it takes the dead ones.
func (s *Service) RedeliverRange(ctx context.Context, sc scope.Scope, webhook int64, r Range) (Requeued, error) {
	f := DeliveryFilter{Status: r.Status, EventType: r.EventType}
	if f.Status == "" {
		f.Status = Dead
	}
	patch.Assign(&f.Start, r.Start)
	patch.Assign(&f.End, r.End)
	if r.Start != nil && r.End != nil && r.End.Before(*r.Start) {
		return Requeued{}, fault.Invalidf("/end_date", "end_date is before start_date")
	}
	out := Requeued{Message: "Deliveries queued again"}
	err := s.Stores.WriteUnder(ctx, sc.Tenant, changes, func(tx *db.Tx) error {
		w, err := loadEnabled(ctx, tx, webhook)
		if err != nil {
			return err
		}
		if out.Queued, err = requeueMany(ctx, tx, webhook, f, s.Now(), maxRedeliveries); err != nil || out.Queued == 0 {
			return err
		}
		return s.requeued(ctx, tx, sc, w, map[string]any{"status": f.Status, "event_type": f.EventType, "queued": out.Queued})
	})
	return out, err
}

// requeued wakes the lane and records who asked for the deliveries.
func (s *Service) requeued(ctx context.Context, tx *db.Tx, sc scope.Scope, w Webhook, what map[string]any) error {
	if err := wake(ctx, tx, w.ID); err != nil {
		return err
	}
	return audit.Append(ctx, tx, sc, s.Now(), w.entry("WEBHOOK_REDELIVERED", what))
}

// wake makes a lane send the due deliveries now, even if its receiver is away.
func wake(ctx context.Context, tx *db.Tx, webhook int64) error {
	if err := resumeLane(ctx, tx, webhook); err != nil {
		return err
	}
	return tx.Notify(ctx, Topic)
}

// Forget removes deliveries of a tenant that ended more than keepDeliveries ago.
func (s *Service) Forget(ctx context.Context, tenant scope.TenantID) error {
	const batch = 500
	_, err := s.Stores.WriteBatches(ctx, tenant, batch, func(tx *db.Tx) (int64, error) {
		return forgetDeliveries(ctx, tx, s.Now().Add(-keepDeliveries), batch)
	})
	return err
}

// fill sets the payload from the stored columns.
func (d *Delivery) fill() error {
	d.Payload = Payload{EventID: d.EventID, EventType: d.EventType, Timestamp: d.At.UTC()}
	if err := json.Unmarshal(d.Data, &d.Payload.Data); err != nil {
		return fault.Wrap(err, "a stored payload")
	}
	return nil
}

func loadDelivery(ctx context.Context, tx *db.Tx, webhook, id int64) (Delivery, error) {
	if _, err := load(ctx, tx, webhook); err != nil {
		return Delivery{}, err
	}
	d, err := getDelivery(ctx, tx, webhook, id)
	return db.Found(d, err, true, "delivery")
}

// loadEnabled loads a subscription. It returns Conflict if it is disabled.
func loadEnabled(ctx context.Context, tx *db.Tx, id int64) (Webhook, error) {
	w, err := load(ctx, tx, id)
	if err == nil && !w.Enabled {
		return w, fault.New(fault.Conflict, "webhook_disabled", "the webhook is disabled: enable it first")
	}
	return w, err
}
