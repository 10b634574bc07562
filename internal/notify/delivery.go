package notify

import (
	"cmp"
	"context"
	"strconv"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/audit"
	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/fault"
	"github.com/gatehouse-dev/gatehouse/internal/notify/format"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

// The states of a delivery.
const (
	Pending = "pending"
	Sent    = "sent"
	Failed  = "failed"
	DLQ     = "dlq"
	// Held waits for quiet hours to end or for a digest. Digested is part of a digest.
	Held     = "held"
	Digested = "digested"
)

const (
	// keepDeliveries is how long a finished delivery is listed. keepFaults is how long a fault is
	// stored after its last message.
	keepDeliveries = 30 * 24 * time.Hour
	keepFaults     = 90 * 24 * time.Hour
	// keptAttempts is how many of the last attempts of a delivery are listed.
	keptAttempts = 25
)

// Attempt is one try at a delivery.
type Attempt struct {
	At           time.Time `json:"at" doc:"When."`
	ResponseCode int       `json:"response_code,omitempty" doc:"HTTP status or SMTP reply code; absent: the receiver could not be reached."`
	Response     string    `json:"response,omitempty" doc:"The receiver's own error text, if its protocol has one."`
	DurationMS   int64     `json:"duration_ms" doc:"Duration in milliseconds."`
	Error        string    `json:"error,omitempty" doc:"Why it failed."`

	// ticket is the ticket that is open for the fault after the attempt. pause is how long the
	// receiver asks us to wait.
	ticket string
	pause  time.Duration
}

// ok reports whether the receiver accepted the message.
func (a Attempt) ok() bool { return a.Error == "" }

// Delivery is one message on its way to one channel.
type Delivery struct {
	ID            int64          `json:"id" db:"id" doc:"Identifier."`
	ChannelID     int64          `json:"channel_id" db:"channel_id" doc:"The channel."`
	ChannelName   string         `json:"channel_name" db:"channel_name" doc:"Its name."`
	Environment   scope.Env      `json:"environment" db:"environment" enum:"sandbox,production" doc:"Its environment."`
	Alert         string         `json:"alert" db:"alert" doc:"The subject of the message."`
	Severity      string         `json:"severity" db:"severity" enum:"info,warning,error,critical" doc:"Severity."`
	Status        string         `json:"status" db:"status" enum:"pending,held,digested,sent,failed,dlq" doc:"held: it waits for the end of quiet hours, or for a digest; digested: it is in the digest digest_id; failed: it will be tried again, unless it was a test; dlq: given up."`
	ResponseCode  int            `json:"response_code" db:"response_code" doc:"HTTP status or SMTP reply code of the last attempt; 0: the receiver could not be reached, or there was no attempt yet."`
	Response      string         `json:"response" db:"response" doc:"The receiver's own error text at the last attempt, if its protocol has one."`
	Error         string         `json:"error" db:"error" doc:"Why the last attempt failed; empty if it did not."`
	Attempts      int            `json:"attempts" db:"attempts" doc:"Number of attempts."`
	RetryCount    int            `json:"retry_count" db:"-" doc:"Number of attempts after the first."`
	Log           []Attempt      `json:"attempt_log" db:"log" doc:"The attempts, oldest first, at most the last 25."`
	CreatedAt     time.Time      `json:"created_at" db:"created_at" doc:"When it was queued."`
	NextAttemptAt *time.Time     `json:"next_attempt_at" db:"next_at" doc:"When it is tried next; null: never."`
	FinishedAt    *time.Time     `json:"finished_at" db:"finished_at" doc:"When it was sent or given up; null: further attempts follow."`
	DigestID      *int64         `json:"digest_id" db:"digest_id" doc:"The delivery of the digest that contains it; null: none."`
	DigestSize    int            `json:"digest_size" db:"digest_size" doc:"Number of messages in the digest; 0: it is not a digest."`
	Payload       format.Message `json:"payload" db:"message" doc:"The message. Members with secret names are redacted, here and in what is sent."`
}

// filled sets the members that are not stored.
func (d Delivery) filled() Delivery {
	d.RetryCount = max(0, d.Attempts-1)
	return d
}

// DeliveryFilter narrows a list of deliveries.
type DeliveryFilter struct {
	// Channel is 0 for all.
	Channel int64
	// Digest is 0 for all.
	Digest int64
	// Status and Alert are empty for all.
	Status, Alert string
	// Start and End bound the time at which deliveries were queued; zero: no bound.
	Start, End time.Time
}

// DeliveryPage is one page of deliveries.
type DeliveryPage struct {
	Deliveries []Delivery `json:"deliveries" doc:"Newest first."`
	Total      int64      `json:"total" doc:"Number that match the filter."`
	NextCursor string     `json:"next_cursor,omitempty" doc:"For the next page; absent on the last."`
}

// TestResult is the result of a test message.
type TestResult struct {
	Delivered    bool   `json:"delivered" doc:"Whether the receiver accepted it."`
	DeliveryID   int64  `json:"delivery_id" doc:"The delivery in the list. A test is tried once."`
	ResponseCode int    `json:"response_code" doc:"HTTP status or SMTP reply code; 0: the receiver could not be reached."`
	Response     string `json:"response" doc:"The receiver's own error text, if its protocol has one."`
	DurationMS   int64  `json:"duration_ms" doc:"Duration in milliseconds."`
	Error        string `json:"error" doc:"Why it failed; empty if it did not."`
}

// Deliveries returns one page of the deliveries in the scope's environment, or in both, newest
// first.
func (s *Service) Deliveries(ctx context.Context, sc scope.Scope, f DeliveryFilter, cursor string, limit int) (DeliveryPage, error) {
	var page DeliveryPage
	before := int64(0)
	if cursor != "" {
		var err error
		if before, err = strconv.ParseInt(cursor, 10, 64); err != nil || before < 1 {
			return page, fault.New(fault.BadRequest, "bad_cursor", "cursor is not one that the API returned")
		}
	}
	err := s.Stores.Read(ctx, sc.Tenant, func(tx *db.Tx) (err error) {
		if f.Channel != 0 {
			if _, err = load(ctx, tx, sc, f.Channel); err != nil {
				return err
			}
		}
		if page.Total, err = countDeliveries(ctx, tx, sc.Env, f); err != nil {
			return err
		}
		page.Deliveries, err = listDeliveries(ctx, tx, sc.Env, f, before, limit+1)
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
		page.Deliveries[i] = page.Deliveries[i].filled()
	}
	return page, nil
}

// Delivery returns one delivery, or NotFound.
func (s *Service) Delivery(ctx context.Context, sc scope.Scope, id int64) (Delivery, error) {
	d, err := db.Read(ctx, s.Stores, sc.Tenant, func(tx *db.Tx) (Delivery, error) { return loadDelivery(ctx, tx, sc, id) })
	return d.filled(), err
}

// Retry queues a failed delivery again, due now, with all its attempts. It returns Conflict if the
// delivery was not tried yet, was sent, is in a digest, or if its channel is disabled.
func (s *Service) Retry(ctx context.Context, sc scope.Scope, id int64) (Delivery, error) {
	var d Delivery
	err := s.Stores.Write(ctx, sc.Tenant, func(tx *db.Tx) (err error) {
		if d, err = loadDelivery(ctx, tx, sc, id); err != nil {
			return err
		}
		if d.Status == Pending || d.Status == Held {
			return fault.New(fault.Conflict, "delivery_pending", "the delivery has not been tried yet")
		}
		if d.Status == Sent {
			return fault.New(fault.Conflict, "delivery_sent", "the delivery has been sent")
		}
		if d.DigestID != nil {
			return fault.Newf(fault.Conflict, "delivery_sent", "the delivery is in the digest %d, which can be tried again", *d.DigestID)
		}
		c, err := load(ctx, tx, sc, d.ChannelID)
		if err != nil {
			return err
		}
		if !c.Enabled {
			return fault.New(fault.Conflict, "channel_disabled", "the channel is disabled: enable it first")
		}
		if err := retryDelivery(ctx, tx, id, s.Now()); err != nil {
			return err
		}
		if d, err = loadDelivery(ctx, tx, sc, id); err != nil {
			return err
		}
		if err := tx.Notify(ctx, Topic); err != nil {
			return err
		}
		return audit.Append(ctx, tx, sc, s.Now(), c.entry("NOTIFICATION_DELIVERY_RETRIED", map[string]any{"delivery_id": id, "alert": d.Alert}))
	})
	return d.filled(), err
}

// Test sends a message at once and returns the receiver's answer. It makes one attempt, even if the
// channel is disabled, and ignores the severity threshold.
func (s *Service) Test(ctx context.Context, sc scope.Scope, id int64) (TestResult, error) {
	c, err := s.load(ctx, sc, id)
	if err != nil {
		return TestResult{}, err
	}
	severity, _ := c.Settings["default_severity"].(string)
	m, stored, err := s.testMessage(sc.Tenant, Note{
		Alert: "test", Severity: cmp.Or(severity, format.Info), Env: c.Environment, Fault: "test:" + strconv.FormatInt(id, 10), Title: "Test of the channel " + c.Name,
		Text: sc.Actor.Name + " sent this message to test the channel. Nothing has happened.",
	})
	if err != nil {
		return TestResult{}, err
	}
	target, a := s.attempt(ctx, sc.Tenant, c, "", m)
	status := Failed
	if a.ok() {
		status = Sent
		s.endTest(ctx, c.Type, target, m, a)
	}
	out := TestResult{Delivered: a.ok(), ResponseCode: a.ResponseCode, Response: a.Response, DurationMS: a.DurationMS, Error: a.Error}
	err = s.Stores.Write(ctx, sc.Tenant, func(tx *db.Tx) error {
		if _, err := load(ctx, tx, sc, id); err != nil {
			return err // deleted meanwhile
		}
		if out.DeliveryID, err = insertTested(ctx, tx, id, m, stored, status, a); err != nil {
			return err
		}
		return audit.Append(ctx, tx, sc, s.Now(), c.entry("NOTIFICATION_CHANNEL_TESTED", map[string]any{"delivered": a.ok(), "response_code": a.ResponseCode}))
	})
	return out, err
}

// endTest closes the incident or ticket that a test opened.
func (s *Service) endTest(ctx context.Context, kind string, c format.Channel, m format.Message, a Attempt) {
	t, _ := format.Find(kind)
	if !t.Lasting {
		return
	}
	c.Ticket, m.Status = a.ticket, format.Resolved
	_ = s.send(ctx, kind, c, m) // best effort: the test is over, and a person can close the ticket
}

// Forget removes deliveries of a tenant that ended more than keepDeliveries ago, and faults without
// a message for keepFaults.
func (s *Service) Forget(ctx context.Context, tenant scope.TenantID) error {
	const batch = 500
	_, err := s.Stores.WriteBatches(ctx, tenant, batch, func(tx *db.Tx) (int64, error) {
		return forgetDeliveries(ctx, tx, s.Now().Add(-keepDeliveries), s.Now().Add(-keepFaults), batch)
	})
	return err
}

func loadDelivery(ctx context.Context, tx *db.Tx, sc scope.Scope, id int64) (Delivery, error) {
	d, err := getDelivery(ctx, tx, id)
	return db.Found(d, err, sc.Sees(d.Environment), "delivery")
}
