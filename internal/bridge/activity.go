package bridge

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/bouncer"
	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/fault"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

// activity is what must be stored about one bouncer.
type activity struct {
	seen      time.Time     // zero: unchanged
	interval  time.Duration // the interval of its polls; 0: unchanged
	sent      *desiredBundle
	activated int64
	refused   int64
	refusals  []bouncer.Refusal
	figures   bouncer.Figures
	// status and detail are set when they do not follow from its state.
	status, detail string
	// reported: a gatehouse bouncer sent its own state.
	reported bool
}

func (e *activity) isEmpty() bool {
	return e.seen.IsZero() && e.sent == nil && e.activated == 0 && e.refused == 0 && e.status == ""
}

// merge adds a later activity of the same bouncer.
func (e *activity) merge(o activity) {
	e.reported = e.reported || o.reported
	if o.interval > 0 && !o.seen.Before(e.seen) {
		e.interval = o.interval
	}
	if o.seen.After(e.seen) {
		e.seen = o.seen
		e.status, e.detail = "", ""
	}
	if o.sent != nil {
		e.sent = o.sent
	}
	// The activated revision is written first, so if both are about one revision, the later
	// one counts.
	if o.activated != 0 {
		if e.activated = o.activated; e.refused == o.activated {
			e.refused, e.refusals = 0, nil
		}
	}
	if o.refused != 0 {
		if e.activated == o.refused {
			e.activated = 0
		}
		e.refused, e.refusals = o.refused, o.refusals
	}
	if o.status != "" {
		e.status, e.detail = o.status, o.detail
	}
	f, n := &e.figures, o.figures
	setIfGiven(&f.Version, n.Version)
	setIfGiven(&f.RequestsPerSecond, n.RequestsPerSecond)
	setIfGiven(&f.CacheHitRate, n.CacheHitRate)
	setIfGiven(&f.TargetAppReachable, n.TargetAppReachable)
	setIfGiven(&f.PolicyCacheSize, n.PolicyCacheSize)
	setIfGiven(&f.DecisionCacheSize, n.DecisionCacheSize)
}

func setIfGiven[T any](to **T, from *T) {
	if from != nil {
		*to = from
	}
}

// activityLog stores the activity of bouncers in their tenants' stores, outside their
// requests and with many bouncers in one transaction. After a crash, the next poll or
// status repeats what was lost.
type activityLog struct {
	svc  *Service
	wake chan struct{}

	mu      sync.Mutex
	pending map[scope.TenantID]map[*bouncerState]activity
}

// perTransaction is the number of bouncers in one transaction.
const perTransaction = 25

const activityRetry = time.Second

func newActivityLog(s *Service) *activityLog {
	return &activityLog{svc: s, wake: make(chan struct{}, 1), pending: map[scope.TenantID]map[*bouncerState]activity{}}
}

func (l *activityLog) add(t scope.TenantID, d *bouncerState, e activity) {
	l.mu.Lock()
	byBouncer := l.pending[t]
	if byBouncer == nil {
		byBouncer = map[*bouncerState]activity{}
		l.pending[t] = byBouncer
	}
	old := byBouncer[d]
	old.merge(e)
	byBouncer[d] = old
	l.mu.Unlock()
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// run writes until ctx ends, and then once more.
func (l *activityLog) run(ctx context.Context) {
	for {
		select {
		case <-l.wake:
			if l.flush(ctx) {
				continue
			}
			timer := time.NewTimer(activityRetry)
			select {
			case <-timer.C:
			case <-ctx.Done():
				timer.Stop()
			}
			select {
			case l.wake <- struct{}{}:
			default:
			}
		case <-ctx.Done():
			last, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
			l.flush(last)
			cancel()
			return
		}
	}
}

// flush writes all pending activities. It returns false when a store did not accept its
// part, which then is pending again.
func (l *activityLog) flush(ctx context.Context) bool {
	l.mu.Lock()
	work := l.pending
	l.pending = map[scope.TenantID]map[*bouncerState]activity{}
	l.mu.Unlock()
	ok := true
	for t, byBouncer := range work {
		for len(byBouncer) > 0 {
			batch := make(map[*bouncerState]activity, perTransaction)
			for d, e := range byBouncer {
				if batch[d] = e; len(batch) == perTransaction {
					break
				}
			}
			for d := range batch {
				delete(byBouncer, d)
			}
			err := l.write(ctx, t, batch)
			if err == nil || fault.Is(err, fault.NotFound) {
				continue
			}
			if !errors.Is(err, context.Canceled) {
				l.svc.cfg.Log.Warn("the reports of bouncers could not be stored; trying again", "tenant", t, "error", err)
			}
			ok = false
			l.requeue(t, batch)
		}
	}
	return ok
}

func (l *activityLog) requeue(t scope.TenantID, batch map[*bouncerState]activity) {
	l.mu.Lock()
	defer l.mu.Unlock()
	byBouncer := l.pending[t]
	if byBouncer == nil {
		byBouncer = map[*bouncerState]activity{}
		l.pending[t] = byBouncer
	}
	for d, e := range batch {
		e.merge(byBouncer[d])
		byBouncer[d] = e
	}
}

func (l *activityLog) write(ctx context.Context, t scope.TenantID, batch map[*bouncerState]activity) error {
	return l.svc.cfg.Stores.Write(ctx, t, func(tx *db.Tx) error {
		for d, e := range batch {
			if err := l.writeActivity(ctx, tx, systemScope(t), d, e); err != nil {
				return err
			}
		}
		return nil
	})
}

// writeActivity stores the activity of one bouncer, in the order in which it happened.
func (l *activityLog) writeActivity(ctx context.Context, tx *db.Tx, sc scope.Scope, d *bouncerState, e activity) error {
	registry := l.svc.cfg.Bouncers
	b, err := bouncer.ByID(ctx, tx, d.id)
	if fault.Is(err, fault.NotFound) {
		return nil // deleted meanwhile
	}
	if err != nil {
		return err
	}
	if !e.seen.IsZero() { // must come first: markAbsent locks the presence first too
		if err := recordPresence(ctx, tx, d.id, e.seen, e.interval); err != nil {
			return err
		}
	}
	if e.sent != nil {
		if err := registry.RecordSent(ctx, tx, d.id, e.sent.revision, e.sent.items); err != nil {
			return err
		}
	}
	if e.activated != 0 {
		if _, err := registry.RecordActivation(ctx, tx, sc, b, e.activated); err != nil {
			return err
		}
	}
	if e.refused != 0 {
		if _, err := bouncer.RecordRefusal(ctx, tx, sc, b, e.refused, e.refusals); err != nil {
			return err
		}
	}
	status, detail := e.status, e.detail
	if !e.seen.IsZero() {
		if err := registry.RecordHeartbeat(ctx, tx, d.id, e.figures); err != nil {
			return err
		}
	}
	if status == "" {
		if status, detail = d.status(); e.seen.IsZero() && b.Status == bouncer.Disconnected {
			return nil // the activity does not prove that the bouncer is connected
		}
	}
	if _, err = registry.SetStatus(ctx, tx, sc, d.id, status, detail); err != nil || !e.reported {
		return err
	}
	return registry.SetTrouble(ctx, tx, d.id, d.problem())
}
