package webhook

import (
	"context"
	"strconv"
	"sync"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/fault"
	"github.com/gatehouse-dev/gatehouse/internal/job"
	"github.com/gatehouse-dev/gatehouse/internal/outbound"
)

// outcome is the result of a batch.
type outcome struct {
	delivered, failed int
	// unreached is how many of the failed deliveries got no answer at all.
	unreached int
	// failedSince is how many failed since the last success.
	failedSince int
	// asked is the longest pause that the receiver asked for.
	asked   time.Duration
	results []result
}

type result struct {
	parcel  parcel
	attempt Attempt
	// asked is the pause that the receiver asked for; 0: none.
	asked time.Duration
}

func (o *outcome) add(res result) {
	o.results = append(o.results, res)
	if res.attempt.ok() {
		o.delivered++
		o.failedSince = 0
		return
	}
	o.failed++
	o.failedSince++
	o.asked = max(o.asked, res.asked)
	if res.attempt.ResponseStatus == 0 {
		o.unreached++
	}
}

// sender sends one batch of deliveries.
type sender struct {
	*Deliverer
	key     job.LaneKey
	hook    Webhook
	secrets [][]byte
	until   time.Time

	mu      sync.Mutex
	sent    outcome
	checked time.Time // when the subscription was last known to be unchanged
	stopped bool
}

// send sends parcels. It sends those of different objects concurrently, and those of one object one
// after another until one fails. Parcels that it does not send stay due.
func (s *sender) send(ctx context.Context, due []parcel) outcome {
	var objects []string
	byObject := map[string][]parcel{}
	for _, p := range due {
		if byObject[p.Object] == nil {
			objects = append(objects, p.Object)
		}
		byObject[p.Object] = append(byObject[p.Object], p)
	}
	var sending sync.WaitGroup
	room := make(chan struct{}, maxConcurrent)
	for _, object := range objects {
		room <- struct{}{}
		sending.Go(func() {
			defer func() { <-room }()
			for _, p := range byObject[object] {
				if !s.mayContinue(ctx) || !s.deliver(ctx, p) {
					return
				}
			}
		})
	}
	sending.Wait()
	return s.sent
}

// mayContinue reports whether the next parcel may be sent: time is left, the receiver is not away,
// and nobody has changed the subscription.
func (s *sender) mayContinue(ctx context.Context) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.Now()
	away := s.sent.delivered == 0 && s.sent.unreached >= awayAfter
	if s.stopped = s.stopped || away || ctx.Err() != nil || now.After(s.until); s.stopped {
		return false
	}
	if now.Sub(s.checked) >= recheck {
		s.checked = now
		s.stopped = !s.isCurrent(ctx)
	}
	return !s.stopped
}

// isCurrent reports whether the subscription is unchanged since the batch was taken.
func (s *sender) isCurrent(ctx context.Context) bool {
	change, err := db.Read(ctx, s.Stores, s.key.Tenant, func(tx *db.Tx) (int64, error) { return changeOf(ctx, tx, s.hook.ID) })
	return err == nil && change == s.hook.ChangeNo
}

// deliver sends one parcel, and reports whether the receiver accepted it.
func (s *sender) deliver(ctx context.Context, p parcel) bool {
	res := s.attempt(ctx, s.hook.URL, s.secrets, p)
	if ctx.Err() != nil && !res.attempt.ok() {
		return false // this process is stopping, and the delivery stays due
	}
	s.mu.Lock()
	s.sent.add(res)
	s.mu.Unlock()
	return res.attempt.ok()
}

// attempt sends one parcel and adds the attempt to its log.
func (d *Deliverer) attempt(ctx context.Context, url string, secrets [][]byte, p parcel) result {
	began := d.Now()
	a, pause := d.post(ctx, url, secrets, payload{p.EventID, p.EventType, p.OccurredAt.UTC(), p.Data}, began)
	p.Attempts++
	p.Log = append(p.Log, a)
	p.Log = p.Log[max(0, len(p.Log)-keptAttempts):]
	return result{p, a, pause}
}

// post sends a payload once. It also returns the pause that the receiver asked for after a failure.
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
	return a, res.RetryAfter(s.Now(), longestPause)
}
