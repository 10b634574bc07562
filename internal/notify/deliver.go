package notify

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"strconv"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/audit"
	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/fault"
	"github.com/gatehouse-dev/gatehouse/internal/job"
	"github.com/gatehouse-dev/gatehouse/internal/notify/format"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

// The limits of one turn of a lane.
const (
	// turnTime is how long a lane starts new deliveries in one turn. The last one may end later.
	turnTime = 10 * time.Second
	// perTurn is how many deliveries a lane reads for one turn.
	perTurn = 16
)

// lanes is the table with one lane for each channel.
const lanes job.LaneTable = "notification_channels"

// Backoff returns the pause after the nth failed attempt, counted from 1: 15 minutes, doubled each
// time, at most an hour.
func Backoff(attempt int) time.Duration {
	return min(15*time.Minute<<min(max(attempt-1, 0), 4), time.Hour)
}

// Deliverer sends the waiting deliveries of all tenants. Each replica has one.
type Deliverer struct {
	*Service
	// Holder identifies this process. No other process has the same value.
	Holder string
	// Active reports whether the messages of a tenant are sent.
	Active func(ctx context.Context, tenant scope.TenantID) (bool, error)
	// Poll is how often all tenants are checked. It covers notifications that were lost.
	Poll   time.Duration
	Logger *slog.Logger
}

// Run sends until ctx ends, and returns when the last lane has stopped.
func (d *Deliverer) Run(ctx context.Context) error {
	l := &job.Lanes{
		Cluster: d.Stores, Topic: Topic, Holder: d.Holder, Active: d.Active, Now: d.Now, Poll: d.Poll, Logger: d.Logger,
		List: channelLanes, Turn: d.runLane,
	}
	return l.Run(ctx)
}

// errLost rolls back the transaction of a lane that another replica has taken over meanwhile.
var errLost = errors.New("another replica has taken over the queue")

// runLane takes the lane of a channel and sends the deliveries that are due. It returns when to run
// the lane again; the zero time means at once.
func (d *Deliverer) runLane(ctx context.Context, key job.LaneKey, renew func()) (time.Time, error) {
	tenant, id := key.Tenant, key.Lane
	var c Channel
	var due []parcel
	var ours bool
	err := d.Stores.Write(ctx, tenant, func(tx *db.Tx) (err error) {
		now := d.Now()
		if ours, err = job.AcquireLane(ctx, tx, lanes, id, d.Holder, now); err != nil || !ours {
			return err
		}
		if c, err = getLane(ctx, tx, id); err != nil {
			return err
		}
		if err = d.holdDue(ctx, tx, tenant, c, db.Stamp(now)); err != nil {
			return err
		}
		due, err = dueParcels(ctx, tx, id, now, perTurn)
		return err
	})
	if err != nil {
		return time.Time{}, err
	}
	if !ours { // disabled, or another replica holds it: try again soon
		return d.Now().Add(time.Second), nil
	}
	err = d.sendAll(ctx, tenant, c, due, renew)
	done, stop := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer stop()
	return time.Time{}, errors.Join(err, d.Stores.Write(done, tenant, func(tx *db.Tx) error {
		return job.ReleaseLane(done, tx, lanes, id, d.Holder)
	}))
}

// sendAll sends parcels one after another. After a failure it skips the other parcels of the same
// fault, so that messages about one fault keep their order.
func (d *Deliverer) sendAll(ctx context.Context, tenant scope.TenantID, c Channel, due []parcel, renew func()) error {
	until := d.Now().Add(turnTime)
	failed, tickets := map[string]bool{}, map[string]string{}
	for _, p := range due {
		if ctx.Err() != nil || d.Now().After(until) {
			return nil // the rest stays due
		}
		if failed[p.Fault] {
			continue
		}
		renew()
		if ticket, changed := tickets[p.Fault]; changed {
			p.Ticket = ticket
		}
		a, err := d.deliver(ctx, tenant, c, p)
		if err != nil {
			return err
		}
		if failed[p.Fault] = !a.ok(); a.ok() {
			tickets[p.Fault] = a.ticket
		}
		if a.pause > 0 || p.Size > 0 && !a.ok() {
			return nil // storeAttempt has postponed the rest, or the parcels about the faults of the digest
		}
	}
	return nil
}

// deliver sends one parcel and stores the result.
func (d *Deliverer) deliver(ctx context.Context, tenant scope.TenantID, c Channel, p parcel) (Attempt, error) {
	var m format.Message
	if err := json.Unmarshal(p.Message, &m); err != nil {
		return Attempt{}, err
	}
	_, a := d.attempt(ctx, tenant, c, p.Ticket, m)
	if ctx.Err() != nil && !a.ok() {
		return a, nil // this process is stopping, and the delivery stays due
	}
	return d.finishAttempt(ctx, tenant, c, p, a)
}

// attempt sends a message once, and returns the receiver with the result. ticket is the open ticket or
// incident of the fault that the message is about; "": none.
func (s *Service) attempt(ctx context.Context, tenant scope.TenantID, c Channel, ticket string, m format.Message) (format.Channel, Attempt) {
	target, err := s.channel(tenant, c)
	if err != nil {
		return target, Attempt{At: db.Stamp(s.Now()), Error: "the stored credential cannot be decrypted"}
	}
	target.Ticket = ticket
	return target, s.send(ctx, c.Type, target, m)
}

// finishAttempt stores the result of an attempt, and returns it as stored. If the store refuses the
// receiver's answer, the attempt counts as failed. Otherwise the message would be sent again and
// again.
func (d *Deliverer) finishAttempt(ctx context.Context, tenant scope.TenantID, c Channel, p parcel, a Attempt) (Attempt, error) {
	done, stop := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer stop()
	record := func() error {
		return d.Stores.Write(done, tenant, func(tx *db.Tx) error { return d.storeAttempt(done, tx, tenant, c, p, a) })
	}
	err := record()
	if fault.Is(err, fault.Invalid) {
		a = Attempt{At: a.At, ResponseCode: a.ResponseCode, DurationMS: a.DurationMS, Error: "the receiver's answer cannot be stored"}
		err = record()
	}
	return a, err
}

// storeAttempt stores the result of an attempt and its audit entry. It postpones deliveries that
// must wait after a failure. It returns errLost if another replica has taken over the lane.
func (d *Deliverer) storeAttempt(ctx context.Context, tx *db.Tx, tenant scope.TenantID, c Channel, p parcel, a Attempt) error {
	now := db.Stamp(d.Now())
	ours, err := noteAttempt(ctx, tx, c.ID, d.Holder, now, a.ok())
	if err != nil {
		return err
	}
	if !ours {
		return errLost
	}
	p.Attempts++
	p.Log = append(p.Log, a)
	p.Log = p.Log[max(0, len(p.Log)-keptAttempts):]
	sc := scope.Scope{Tenant: tenant, Env: c.Environment, Actor: scope.Actor{Kind: scope.System, ID: "notifications", Name: "notifications"}}
	record := func(kind string) error {
		return audit.Append(ctx, tx, sc, now, audit.Entry{
			Type: kind, Object: "notification_channel", ObjectID: strconv.FormatInt(c.ID, 10), ObjectName: c.Name, Env: c.Environment,
			EventContext: map[string]any{
				"delivery_id": p.ID, "alert": p.Alert, "attempts": p.Attempts, "response_code": a.ResponseCode, "error": a.Error, "digest_size": p.Size,
			},
		})
	}
	switch {
	case a.ok():
		if err := saveAttempt(ctx, tx, p, Sent, a, nil, &now); err != nil {
			return err
		}
		if err := saveTicket(ctx, tx, c.ID, p.Fault, a.ticket, now); err != nil {
			return err
		}
		return record("NOTIFICATION_DELIVERY_SENT")
	case p.Attempts >= c.MaxAttempts:
		if err := saveAttempt(ctx, tx, p, DLQ, a, nil, &now); err != nil {
			return err
		}
		return record("notification_dlq")
	}
	next := now.Add(max(Backoff(p.Attempts), a.pause))
	if a.pause > 0 {
		if err := postponeAll(ctx, tx, c.ID, now.Add(a.pause)); err != nil {
			return err
		}
	}
	if err := saveAttempt(ctx, tx, p, Failed, a, &next, nil); err != nil {
		return err
	}
	if err := postpone(ctx, tx, c.ID, p, next); err != nil {
		return err
	}
	return record("NOTIFICATION_DELIVERY_FAILED")
}
