package integration

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/audit"
	"github.com/gatehouse-dev/gatehouse/internal/audit/tail"
	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/job"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

// Topic is the topic of the notifications that wake the Forwarder when a tenant has something to
// send.
const Topic = "integrations"

// lanes is the table with one lane for each integration.
const lanes job.LaneTable = "integrations"

const (
	// perRequest is the largest number of entries of each log in one request.
	perRequest = 500
	// requestBytes is the approximate limit for the entries of each log in one request, in bytes.
	requestBytes = 4 << 20
	// turnTime is how long a lane sends before other lanes get a turn.
	turnTime = 20 * time.Second
	// lookEvery is how often the logs and the revisions of bundles are checked if nothing waits.
	lookEvery = 2 * time.Second
	// longestWait is the longest pause after a failure. longestPause is the longest pause that a
	// system can ask for with Retry-After.
	longestWait  = 5 * time.Minute
	longestPause = time.Hour
	// outage is the number of failures in a row after which the audit reports an outage.
	outage = 5
	// maxAttempts is how often a message of an action is tried before it is dropped.
	maxAttempts = 20
)

// Backoff returns the pause after the nth failure in a row, counted from 1.
func Backoff(failures int64) time.Duration {
	return min(time.Second<<min(max(failures, 1), 12), longestWait)
}

// Forwarder sends everything that waits for the integrations of all tenants. Each replica has one.
type Forwarder struct {
	*Service
	// Holder identifies this process. No other process has the same value.
	Holder string
	// Active reports whether data is sent for a tenant.
	Active func(ctx context.Context, tenant scope.TenantID) (bool, error)
	// Poll is how often all tenants are checked. It covers notifications that were lost.
	Poll   time.Duration
	Logger *slog.Logger

	producers producers
}

// Run sends until ctx ends, and returns when the last lane has stopped.
func (f *Forwarder) Run(ctx context.Context) error {
	l := &job.Lanes{
		Cluster: f.Stores, Topic: Topic, Holder: f.Holder, Active: f.Active, Now: f.Now, Poll: f.Poll, Logger: f.Logger,
		List: f.list, Turn: f.runLane,
	}
	defer f.closeProducers()
	return l.Run(ctx)
}

// closeProducers closes the connections to Kafka.
func (f *Forwarder) closeProducers() { f.producers.closeUnused(f.Now().Add(time.Hour)) }

// list returns when each lane has something to send. The logs do not announce new entries, so a
// forwarder that has sent all of them is checked again soon.
func (f *Forwarder) list(ctx context.Context, tx *db.Tx) ([]job.Lane, error) {
	all, err := enabledLanes(ctx, tx)
	if err != nil {
		return nil, err
	}
	now := f.Now()
	f.producers.closeUnused(now.Add(-keepProducer))
	var out []job.Lane
	for _, l := range all {
		due, waits, err := l.due(ctx, tx, now)
		if err != nil {
			return nil, err
		}
		if !waits {
			continue
		}
		if l.NextAt != nil && l.NextAt.After(due) {
			due = *l.NextAt
		}
		out = append(out, job.Lane{ID: l.ID, Due: &due, Until: l.Until, Holder: l.Holder})
	}
	return out, nil
}

// due returns when a lane has something to send, and false if nothing waits. The logs and the
// bundles are checked again after lookEvery.
func (l lane) due(ctx context.Context, tx *db.Tx, now time.Time) (due time.Time, waits bool, err error) {
	var behind bool
	switch {
	case l.Kind == PolicyEngine:
		var at storeRevisions
		at, err = readRevisions(ctx, tx, l.Environment)
		behind = !l.Looked.current(at) || !now.Before(l.Looked.askAt())
	case l.Kind == SIEM && l.Place != nil:
		behind, err = tail.Behind(ctx, tx, *l.Place)
	default:
		return now, l.Waiting > 0, nil
	}
	if !behind {
		now = now.Add(lookEvery)
	}
	return now, true, err
}

// errLost rolls back the transaction of a lane that another replica has taken over meanwhile.
var errLost = errors.New("another replica has taken over the queue")

// runLane takes a lane and sends until nothing waits, a request fails or turnTime is over.
func (f *Forwarder) runLane(ctx context.Context, key job.LaneKey, renew func()) (time.Time, error) {
	for began := f.Now(); ; {
		it, ours, err := f.acquireLane(ctx, key)
		if err != nil || !ours { // disabled, or another replica holds it: try again soon
			return f.Now().Add(time.Second), err
		}
		p, err := f.next(ctx, key.Tenant, it)
		if err == nil && !p.empty() {
			renew()
			err = f.send(ctx, key.Tenant, it, p)
		}
		if err != nil || p.empty() || ctx.Err() != nil || f.Now().Sub(began) > turnTime {
			done, stop := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
			defer stop()
			free := f.Stores.Write(done, key.Tenant, func(tx *db.Tx) error { return job.ReleaseLane(done, tx, lanes, key.Lane, f.Holder) })
			if errors.Is(err, errFailed) {
				err = nil // already recorded
			}
			return time.Time{}, errors.Join(err, free)
		}
	}
}

// acquireLane takes a lane, or extends the hold on it.
func (f *Forwarder) acquireLane(ctx context.Context, key job.LaneKey) (it Integration, ours bool, err error) {
	err = f.Stores.Write(ctx, key.Tenant, func(tx *db.Tx) (err error) {
		if ours, err = job.AcquireLane(ctx, tx, lanes, key.Lane, f.Holder, f.Now()); err != nil || !ours {
			return err
		}
		it, err = load(ctx, tx, key.Lane)
		return err
	})
	return it, ours && err == nil, err
}

// errFailed ends a turn after a failure that is already recorded.
var errFailed = errors.New("the system did not accept it")

// send sends a parcel and records the outcome.
func (f *Forwarder) send(ctx context.Context, tenant scope.TenantID, it Integration, p parcel) error {
	var a answer
	body, err := f.withCallback(ctx, tenant, it, p)
	switch {
	case errors.Is(err, errRunEnded): // nothing is sent, so nothing is known of the system
		return f.Stores.Write(ctx, tenant, func(tx *db.Tx) error { return deleteMessage(ctx, tx, p.message.ID) })
	case err != nil:
		return err
	default:
		p.body = body
		a = f.post(ctx, tenant, it, p)
	}
	if ctx.Err() != nil && a.Error != "" {
		return nil // this process is stopping: not a failure of the system
	}
	done, stop := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer stop()
	err = f.Stores.Write(done, tenant, func(tx *db.Tx) error {
		if a.Error == "" && p.bundle != nil {
			if err := f.stored(done, tx, tenant, it, *p.bundle, a); err != nil {
				return err
			}
		}
		if a.Error == "" {
			return f.succeeded(done, tx, tenant, it, p)
		}
		return f.failed(done, tx, tenant, it, p, a)
	})
	if err == nil && a.Error != "" {
		return errFailed
	}
	if errors.Is(err, errLost) && p.bundle != nil { // even after a failure: only the answer may have been lost
		err = errors.Join(err, f.resetPushed(done, tenant, it))
	}
	return err
}

// withCallback returns the body of a parcel, with the callback if the parcel starts a run.
func (f *Forwarder) withCallback(ctx context.Context, tenant scope.TenantID, it Integration, p parcel) ([]byte, error) {
	if p.message == nil || p.message.Run == nil {
		return p.body, nil
	}
	return f.openCallback(ctx, tenant, it, *p.message.Run, p.body)
}

// succeeded records that the system accepted a parcel, or that its run has ended.
func (f *Forwarder) succeeded(ctx context.Context, tx *db.Tx, tenant scope.TenantID, it Integration, p parcel) error {
	now := db.Stamp(f.Now())
	ours, err := saveSuccess(ctx, tx, it.ID, f.Holder, now, p.place)
	if err == nil && !ours {
		err = errLost
	}
	if err == nil && p.message != nil {
		err = deleteMessage(ctx, tx, p.message.ID)
	}
	if err == nil && p.message != nil && p.message.Run != nil {
		err = f.started(ctx, tx, tenant, it, *p.message.Run)
	}
	if err == nil && it.Failures >= outage {
		err = audit.Append(ctx, tx, it.system(tenant), now, it.entry("INTEGRATION_RECOVERED", nil))
	}
	return err
}

// failed records a failed attempt. After maxAttempts it drops the message, and its run fails.
func (f *Forwarder) failed(ctx context.Context, tx *db.Tx, tenant scope.TenantID, it Integration, p parcel, a answer) error {
	now := db.Stamp(f.Now())
	ours, err := saveFailure(ctx, tx, it.ID, f.Holder, now, now.Add(max(Backoff(it.Failures+1), a.pause)), a.Error)
	if err != nil {
		return err
	}
	if !ours {
		return errLost
	}
	record := func(kind string, more map[string]any) error {
		e := it.entry(kind, nil)
		e.EventContext = map[string]any{"response_code": a.ResponseCode, "error": a.Error}
		maps.Copy(e.EventContext, more)
		return audit.Append(ctx, tx, it.system(tenant), now, e)
	}
	if it.Failures+1 == outage {
		if err := record("INTEGRATION_FAILING", nil); err != nil {
			return err
		}
	}
	if p.message == nil {
		return nil
	}
	if p.message.Attempts+1 < maxAttempts {
		return noteAttempt(ctx, tx, p.message.ID)
	}
	if err := deleteMessage(ctx, tx, p.message.ID); err != nil {
		return err
	}
	if p.message.Run != nil {
		if err := f.failRun(ctx, tx, tenant, it, *p.message.Run, "the system did not accept the message: "+a.Error); err != nil {
			return err
		}
	}
	return record("INTEGRATION_MESSAGE_DROPPED", map[string]any{"event_id": p.message.EventID, "event_type": p.message.Type, "attempts": p.message.Attempts + 1})
}

// system returns the scope of the Forwarder's own audit entries.
func (it Integration) system(tenant scope.TenantID) scope.Scope {
	return scope.Scope{Tenant: tenant, Env: it.Environment, Actor: scope.Actor{Kind: scope.System, ID: "integrations", Name: "integrations"}}
}
