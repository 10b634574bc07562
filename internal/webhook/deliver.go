package webhook

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/fault"
	"github.com/gatehouse-dev/gatehouse/internal/job"
	"github.com/gatehouse-dev/gatehouse/internal/outbound"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

// How a lane works.
const (
	// leaseTime is how long a lane stays with a replica that gives no sign of life. It
	// is longer than a round: roundTime and one last call.
	leaseTime = time.Minute
	roundTime = 10 * time.Second
	// perRound is how many deliveries a lane takes at a time, and abreast how many of
	// different objects are sent at once.
	perRound = 64
	abreast  = 4
	// lanes is how many subscriptions are served at once, of all tenants.
	lanes = 512
	// longGone is after how many failures in a row a success makes all that waits due.
	longGone = 5
)

// Backoff is the pause after the nth failed attempt, the first being 1.
func Backoff(attempt int) time.Duration {
	steps := []time.Duration{
		5 * time.Second, 30 * time.Second, 2 * time.Minute, 10 * time.Minute, 30 * time.Minute,
		time.Hour, 2 * time.Hour, 4 * time.Hour, 8 * time.Hour, 12 * time.Hour,
	}
	return steps[min(max(attempt, 1), len(steps))-1]
}

// Deliverer sends what waits, for all tenants. Replicas each have one.
type Deliverer struct {
	*Service
	// Holder names this process; it differs from that of every other.
	Holder string
	// Active reports whether a tenant's events are to be sent.
	Active func(ctx context.Context, tenant scope.TenantID) (bool, error)
	// Poll is how often all tenants are looked at, in case that a wake was missed.
	Poll   time.Duration
	Logger *slog.Logger
	// Backoff is the pause after the nth failed attempt; nil means the package's.
	Backoff func(attempt int) time.Duration

	agenda  *job.Agenda
	slots   chan struct{}
	running sync.WaitGroup
	mu      sync.Mutex
	busy    map[laneKey]bool // lanes of this process
}

type laneKey struct {
	tenant  scope.TenantID
	webhook int64
}

// Run sends until ctx ends, and returns when the last lane has stopped.
func (d *Deliverer) Run(ctx context.Context) error {
	d.agenda = &job.Agenda{Cluster: d.Stores, Topic: Topic, Now: d.Now, Poll: d.Poll, Logger: d.Logger}
	d.slots, d.busy = make(chan struct{}, lanes), map[laneKey]bool{}
	defer d.agenda.Begin()()
	defer d.running.Wait()
	for {
		tenant, ok := d.agenda.Next(ctx)
		if !ok {
			return nil
		}
		if err := d.look(ctx, tenant); err != nil && ctx.Err() == nil {
			if !fault.Is(err, fault.NotFound) { // deleted meanwhile
				d.Logger.Warn("webhooks: a tenant was left out", "tenant", tenant, "error", err)
				d.agenda.Schedule(tenant, d.Now().Add(2*time.Second))
			}
		}
	}
}

// look starts the lanes of a tenant that have something to send, and notes when to
// look again.
func (d *Deliverer) look(ctx context.Context, tenant scope.TenantID) error {
	var states []laneState
	err := d.Stores.Read(ctx, tenant, func(tx *db.Tx) (err error) {
		states, err = laneStates(ctx, tx)
		return err
	})
	waiting := slices.DeleteFunc(states, func(l laneState) bool { return l.Due == nil })
	if err != nil || len(waiting) == 0 {
		return err
	}
	if active, err := d.Active(ctx, tenant); err != nil || !active {
		return err
	}
	now := d.Now()
	for _, l := range waiting {
		foreign := l.Owner != "" && l.Owner != d.Holder && l.Until.After(now)
		switch {
		case l.Due.After(now):
			d.agenda.Schedule(tenant, *l.Due)
		case foreign:
			d.agenda.Schedule(tenant, l.Until)
		default:
			d.start(ctx, laneKey{tenant, l.ID})
		}
	}
	return nil
}

// start runs one round of a lane, unless it runs already; whoever ends a round has
// the tenant looked at again.
func (d *Deliverer) start(ctx context.Context, key laneKey) {
	d.mu.Lock()
	busy := d.busy[key]
	d.busy[key] = true
	d.mu.Unlock()
	if busy {
		return
	}
	select {
	case d.slots <- struct{}{}:
	case <-ctx.Done():
		return
	}
	d.running.Go(func() {
		again, err := d.round(ctx, key)
		if err != nil && ctx.Err() == nil && !fault.Is(err, fault.NotFound) {
			d.Logger.Warn("webhooks: deliveries were not sent", "tenant", key.tenant, "webhook", key.webhook, "error", err)
			again = d.Now().Add(2 * time.Second)
		}
		d.mu.Lock()
		delete(d.busy, key)
		d.mu.Unlock()
		<-d.slots
		d.agenda.Schedule(key.tenant, again)
	})
}

// round is what a lane did in one turn.
type round struct {
	delivered, failed int
	// failedSince is how many failed after the last that was delivered.
	failedSince int
	results     []result
}

type result struct {
	parcel  parcel
	attempt Attempt
	// pause is how long the receiver asked to be left alone; 0: it did not.
	pause time.Duration
}

// round takes the lane, sends what is due, and writes down what became of it. It says
// when to look again; the zero time is at once.
func (d *Deliverer) round(ctx context.Context, key laneKey) (time.Time, error) {
	var w Webhook
	var due []parcel
	var ours bool
	err := d.Stores.Write(ctx, key.tenant, func(tx *db.Tx) (err error) {
		now := d.Now()
		if ours, err = holdLane(ctx, tx, key.webhook, d.Holder, now, now.Add(leaseTime)); err != nil || !ours {
			return err
		}
		if w, err = load(ctx, tx, key.webhook); err != nil {
			return err
		}
		due, err = dueParcels(ctx, tx, key.webhook, now, perRound)
		return err
	})
	if err != nil {
		return time.Time{}, err
	}
	if !ours { // disabled, or another replica was faster: its next round is soon
		return d.Now().Add(time.Second), nil
	}
	var r round
	secrets, err := d.secrets(key.tenant, w)
	if err == nil {
		r = d.send(ctx, w, secrets, due)
	}
	done, stop := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer stop()
	return time.Time{}, errors.Join(err, d.Stores.Write(done, key.tenant, func(tx *db.Tx) error { return d.settle(done, tx, w, r) }))
}

// send sends parcels: several objects abreast, those of one object one after another
// until one fails. What it does not come to stays due.
func (d *Deliverer) send(ctx context.Context, w Webhook, secrets [][]byte, due []parcel) round {
	var objects []string
	byObject := map[string][]parcel{}
	for _, p := range due {
		if byObject[p.Object] == nil {
			objects = append(objects, p.Object)
		}
		byObject[p.Object] = append(byObject[p.Object], p)
	}
	until := d.Now().Add(roundTime)
	var r round
	var mu sync.Mutex
	var sending sync.WaitGroup
	room := make(chan struct{}, abreast)
	for _, object := range objects {
		room <- struct{}{}
		sending.Go(func() {
			defer func() { <-room }()
			for _, p := range byObject[object] {
				if ctx.Err() != nil || d.Now().After(until) {
					return
				}
				res := d.attempt(ctx, w.URL, secrets, p)
				if ctx.Err() != nil && !res.attempt.ok() {
					return // our own end, not the receiver's fault
				}
				mu.Lock()
				r.add(res)
				mu.Unlock()
				if !res.attempt.ok() {
					return
				}
			}
		})
	}
	sending.Wait()
	return r
}

func (r *round) add(res result) {
	r.results = append(r.results, res)
	if res.attempt.ok() {
		r.delivered++
		r.failedSince = 0
		return
	}
	r.failed++
	r.failedSince++
}

// attempt sends one parcel.
func (d *Deliverer) attempt(ctx context.Context, url string, secrets [][]byte, p parcel) result {
	began := d.Now()
	a, pause := d.post(ctx, url, secrets, payload{p.EventID, p.EventType, p.OccurredAt.UTC(), p.Data}, began)
	p.Attempts++
	p.Log = append(p.Log, a)
	p.Log = p.Log[max(0, len(p.Log)-keptAttempts):]
	return result{p, a, pause}
}

// post sends a payload once.
func (s *Service) post(ctx context.Context, url string, secrets [][]byte, p payload, began time.Time) (Attempt, time.Duration) {
	a := Attempt{At: db.Stamp(began)}
	m, err := compose(p, began, secrets)
	if err != nil {
		a.Error = "the event cannot be written"
		return a, 0
	}
	res, err := s.Target.Do(ctx, outbound.Request{Method: "POST", URL: url, Header: m.header, Body: m.body})
	a.DurationMS = s.Now().Sub(began).Milliseconds()
	if err != nil {
		a.Error = fault.Message(err)
		return a, 0
	}
	a.ResponseStatus = res.Status
	if res.OK() {
		return a, 0
	}
	a.Error = "the receiver answered " + strconv.Itoa(res.Status)
	seconds, err := strconv.Atoi(res.Header.Get("Retry-After"))
	if err != nil || seconds < 0 {
		return a, 0
	}
	return a, time.Duration(min(seconds, 12*60*60)) * time.Second
}

// errLost rolls back what a lane did that another replica has taken meanwhile.
var errLost = errors.New("the lane belongs to another replica now")

// settle writes down a round and frees the lane.
func (d *Deliverer) settle(ctx context.Context, tx *db.Tx, w Webhook, r round) error {
	now := db.Stamp(d.Now())
	ours, err := noteRound(ctx, tx, w.ID, d.Holder, now, r)
	if err != nil {
		return err
	}
	if !ours {
		if len(r.results) == 0 {
			return nil
		}
		return errLost
	}
	for _, res := range r.results {
		if err := d.settleOne(ctx, tx, w.ID, res, now); err != nil {
			return err
		}
	}
	if r.delivered > 0 && w.ConsecutiveFailures >= longGone {
		if err := hurry(ctx, tx, w.ID, now); err != nil {
			return err
		}
	}
	return freeLane(ctx, tx, w.ID, d.Holder)
}

func (d *Deliverer) settleOne(ctx context.Context, tx *db.Tx, webhook int64, res result, now time.Time) error {
	p := res.parcel
	switch {
	case res.attempt.ok():
		return settle(ctx, tx, p, Delivered, res.attempt, &now)
	case !now.Before(p.ExpiresAt):
		return settle(ctx, tx, p, Dead, res.attempt, &now)
	}
	if err := settle(ctx, tx, p, Pending, res.attempt, nil); err != nil {
		return err
	}
	pause := d.Backoff
	if pause == nil {
		pause = Backoff
	}
	return postpone(ctx, tx, webhook, p.Object, now.Add(max(pause(p.Attempts), res.pause)))
}
