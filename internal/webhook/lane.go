package webhook

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/event"
	"github.com/gatehouse-dev/gatehouse/internal/fault"
	"github.com/gatehouse-dev/gatehouse/internal/job"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

// The limits of a lane.
const (
	// batchTime is how long a lane sends before it stores the results.
	batchTime = 10 * time.Second
	// settleTime is how long storing the results of a batch may take.
	settleTime = 30 * time.Second
	// perBatch is how many deliveries a lane reads at a time. maxConcurrent is how many deliveries about
	// different objects it sends at once.
	perBatch      = 64
	maxConcurrent = 4
	// recheck is how often a lane checks that its subscription is unchanged.
	recheck = time.Second
	// awayAfter is the number of failures in a row after which a receiver counts as away.
	awayAfter = 5
	// awayFor is how long a receiver must have accepted nothing before its next success makes all
	// waiting deliveries due.
	awayFor = time.Minute
	// longestPause is the longest pause that a receiver can ask for with Retry-After.
	longestPause = 12 * time.Hour
)

// lanes is the table with one lane for each subscription. job.LaneTime is longer than batchTime,
// one more call and settleTime together.
const lanes job.LaneTable = "webhooks"

// Backoff returns the pause after the nth failed attempt, counted from 1.
func Backoff(attempt int) time.Duration {
	steps := []time.Duration{
		5 * time.Second, 30 * time.Second, 2 * time.Minute, 10 * time.Minute, 30 * time.Minute,
		time.Hour, 2 * time.Hour, 4 * time.Hour, 8 * time.Hour, 12 * time.Hour,
	}
	return steps[min(max(attempt, 1), len(steps))-1]
}

// Deliverer sends the waiting deliveries of all tenants. Each replica has one.
type Deliverer struct {
	*Service
	// Holder identifies this process. No other process has the same value.
	Holder string
	// Active reports whether the events of a tenant are sent.
	Active func(ctx context.Context, tenant scope.TenantID) (bool, error)
	// Poll is how often all tenants are checked. It covers notifications that were lost.
	Poll   time.Duration
	Logger *slog.Logger
	// Backoff returns the pause after the nth failed attempt; nil: the function Backoff.
	Backoff func(attempt int) time.Duration
}

// Run sends until ctx ends, and returns when the last lane has stopped.
func (d *Deliverer) Run(ctx context.Context) error {
	l := &job.Lanes{
		Cluster: d.Stores, Topic: Topic, Holder: d.Holder, Active: d.Active, Now: d.Now, Poll: d.Poll, Logger: d.Logger,
		List: laneStates, Turn: d.runLane,
	}
	return l.Run(ctx)
}

// runLane takes a lane, sends the deliveries that are due and stores their results. While more are
// due, it takes another batch, until batchTime has passed.
func (d *Deliverer) runLane(ctx context.Context, key job.LaneKey, renew func()) (time.Time, error) {
	var b batch
	err := d.Stores.Write(ctx, key.Tenant, func(tx *db.Tx) (err error) {
		b, err = d.takeBatch(ctx, tx, key.Lane)
		return err
	})
	if err != nil {
		return time.Time{}, err
	}
	if !b.ours { // disabled, or another replica holds it: try again soon
		return d.Now().Add(time.Second), nil
	}
	for began := d.Now(); len(b.due) > 0; {
		renew()
		var sent outcome
		secrets, err := d.secrets(key.Tenant, b.hook)
		if err == nil {
			s := &sender{Deliverer: d, key: key, hook: b.hook, secrets: secrets, until: d.Now().Add(batchTime), checked: d.Now()}
			sent = s.send(ctx, b.due)
		}
		last := err != nil || ctx.Err() != nil || d.Now().Sub(began) >= batchTime
		next, failed := d.storeOutcomes(ctx, key, b.hook, sent, last)
		if err := errors.Join(err, failed); err != nil {
			return time.Time{}, err
		}
		b = next
	}
	return time.Time{}, nil
}

// batch is a set of deliveries that a lane sends before it stores their results.
type batch struct {
	ours bool
	hook Webhook
	due  []parcel
}

// takeBatch takes or renews the lane, and reads the deliveries that are due. It frees the lane if
// nothing is due.
func (d *Deliverer) takeBatch(ctx context.Context, tx *db.Tx, webhook int64) (b batch, err error) {
	now := d.Now()
	if b.ours, err = job.AcquireLane(ctx, tx, lanes, webhook, d.Holder, now); err != nil || !b.ours {
		return b, err
	}
	if b.hook, err = getLane(ctx, tx, webhook); err != nil {
		return b, err
	}
	n := perBatch
	if paused := b.hook.PausedUntil; paused != nil {
		if paused.After(now) {
			return b, job.ReleaseLane(ctx, tx, lanes, webhook, d.Holder)
		}
		n = maxConcurrent // a few show whether the receiver is back
	}
	if b.due, err = dueParcels(ctx, tx, webhook, now, n); err != nil || len(b.due) > 0 {
		return b, err
	}
	return b, job.ReleaseLane(ctx, tx, lanes, webhook, d.Holder)
}

// errLost rolls back the transaction of a lane that another replica has taken over meanwhile.
var errLost = errors.New("another replica has taken over the queue")

// storeOutcomes stores the results of a lane, and takes the next batch or frees the lane. It retries
// while this process has the lane, because a delivery without a stored result is sent again.
func (d *Deliverer) storeOutcomes(ctx context.Context, key job.LaneKey, hook Webhook, sent outcome, last bool) (next batch, err error) {
	limit := settleTime
	if ctx.Err() != nil {
		limit = 10 * time.Second
	}
	bounded, stop := context.WithTimeout(context.WithoutCancel(ctx), limit)
	defer stop()
	var away bool
	for {
		err = d.Stores.Write(bounded, key.Tenant, func(tx *db.Tx) (err error) {
			if away, err = d.record(bounded, tx, hook, sent); err != nil {
				return err
			}
			if next = (batch{}); last || away {
				return job.ReleaseLane(bounded, tx, lanes, hook.ID, d.Holder)
			}
			next, err = d.takeBatch(bounded, tx, hook.ID)
			return err
		})
		if err == nil || errors.Is(err, errLost) || fault.Is(err, fault.NotFound) || ctx.Err() != nil {
			break
		}
		d.Logger.Warn("results of webhook deliveries could not be stored; retrying", "tenant", key.Tenant, "webhook", key.Lane, "error", err)
		select {
		case <-time.After(500 * time.Millisecond):
			continue
		case <-bounded.Done():
		}
		break
	}
	if err == nil && away {
		err = d.expire(ctx, key)
	}
	return next, err
}

// record stores the results of a lane, and reports whether its receiver is away.
func (d *Deliverer) record(ctx context.Context, tx *db.Tx, hook Webhook, sent outcome) (away bool, err error) {
	now := db.Stamp(d.Now())
	failures, err := noteOutcome(ctx, tx, hook.ID, d.Holder, now, sent)
	if errors.Is(err, db.ErrNoRows) {
		if _, err := load(ctx, tx, hook.ID); err != nil {
			return false, err // deleted: the results have no row
		}
		return false, errLost
	}
	if err != nil {
		return false, err
	}
	if sent.failed > 0 || hook.PausedUntil != nil || hook.ConsecutiveFailures >= awayAfter {
		// The times of waiting deliveries change. Without this lock, a delivery that Take queues at
		// the same moment would keep the old time, and overtake those of its object or wait for hours.
		if err := event.Hold(ctx, tx, Sink{}); err != nil {
			return false, err
		}
	}
	for _, res := range sent.results {
		if err := d.recordOne(ctx, tx, hook.ID, res, now); err != nil {
			return false, err
		}
	}
	paused := hook.PausedUntil != nil
	if sent.delivered > 0 {
		quiet := hook.LastSuccessAt == nil || now.Sub(*hook.LastSuccessAt) >= awayFor
		if paused || hook.ConsecutiveFailures >= awayAfter && quiet {
			return false, makeAllDue(ctx, tx, hook.ID, now)
		}
		return false, nil
	}
	if sent.failed == 0 {
		return false, nil
	}
	pause := sent.asked
	if sent.unreached == sent.failed && failures >= awayAfter {
		away = true
		pause = max(pause, d.pauseAfter(int(failures-awayAfter)/maxConcurrent+1))
	}
	switch {
	case pause > 0:
		err = pauseLane(ctx, tx, hook.ID, now.Add(pause))
	case paused: // it answers again, with errors
		err = resumeLane(ctx, tx, hook.ID)
	}
	return away, err
}

// recordOne stores the result of one delivery. If it failed, the waiting deliveries of the same
// object are postponed.
func (d *Deliverer) recordOne(ctx context.Context, tx *db.Tx, webhook int64, res result, now time.Time) error {
	p := res.parcel
	switch {
	case res.attempt.ok():
		return updateDelivery(ctx, tx, p, Delivered, res.attempt, &now)
	case !now.Before(p.ExpiresAt):
		return updateDelivery(ctx, tx, p, Dead, res.attempt, &now)
	}
	if err := updateDelivery(ctx, tx, p, Pending, res.attempt, nil); err != nil {
		return err
	}
	return postpone(ctx, tx, webhook, p.Object, now.Add(max(d.pauseAfter(p.Attempts), res.asked)))
}

// pauseAfter returns the pause after the nth failed attempt.
func (d *Deliverer) pauseAfter(n int) time.Duration {
	if d.Backoff != nil {
		return d.Backoff(n)
	}
	return Backoff(n)
}

// expire gives up the deliveries that have waited for three days for a receiver that is away,
// without further attempts.
func (d *Deliverer) expire(ctx context.Context, key job.LaneKey) error {
	const portion = 1000
	_, err := d.Stores.WriteBatches(ctx, key.Tenant, portion, func(tx *db.Tx) (int64, error) {
		return expireDeliveries(ctx, tx, key.Lane, db.Stamp(d.Now()), portion)
	})
	return err
}
