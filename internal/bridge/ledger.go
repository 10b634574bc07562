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

// entry is what must be stored about one bouncer.
type entry struct {
	seen      time.Time     // zero: unchanged
	interval  time.Duration // the interval of its polls; 0: unchanged
	sent      *desiredBundle
	activated int64
	refused   int64
	why       []bouncer.Refusal
	figures   bouncer.Figures
	// status and detail are set when they do not follow from the desk.
	status, detail string
	// reported: a gatehouse bouncer sent its own state.
	reported bool
}

func (e *entry) empty() bool {
	return e.seen.IsZero() && e.sent == nil && e.activated == 0 && e.refused == 0 && e.status == ""
}

// merge adds a later entry of the same bouncer.
func (e *entry) merge(o entry) {
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
	// The activated revision is written first, so if both entries are about one revision, the later
	// one counts.
	if o.activated != 0 {
		if e.activated = o.activated; e.refused == o.activated {
			e.refused, e.why = 0, nil
		}
	}
	if o.refused != 0 {
		if e.activated == o.refused {
			e.activated = 0
		}
		e.refused, e.why = o.refused, o.why
	}
	if o.status != "" {
		e.status, e.detail = o.status, o.detail
	}
	f, n := &e.figures, o.figures
	set(&f.Version, n.Version)
	set(&f.RequestsPerSecond, n.RequestsPerSecond)
	set(&f.CacheHitRate, n.CacheHitRate)
	set(&f.TargetAppReachable, n.TargetAppReachable)
	set(&f.PolicyCacheSize, n.PolicyCacheSize)
	set(&f.DecisionCacheSize, n.DecisionCacheSize)
}

func set[T any](to **T, from *T) {
	if from != nil {
		*to = from
	}
}

// ledger stores the activity of bouncers in their tenants' stores, outside their
// requests and with many entries in one transaction. After a crash, the next poll or
// status repeats what was lost.
type ledger struct {
	svc  *Service
	wake chan struct{}

	mu      sync.Mutex
	pending map[scope.TenantID]map[*desk]entry
}

// perTransaction is the number of bouncers in one transaction.
const perTransaction = 25

const ledgerRetry = time.Second

func newLedger(s *Service) *ledger {
	return &ledger{svc: s, wake: make(chan struct{}, 1), pending: map[scope.TenantID]map[*desk]entry{}}
}

func (l *ledger) add(t scope.TenantID, d *desk, e entry) {
	l.mu.Lock()
	of := l.pending[t]
	if of == nil {
		of = map[*desk]entry{}
		l.pending[t] = of
	}
	old := of[d]
	old.merge(e)
	of[d] = old
	l.mu.Unlock()
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// run writes until ctx ends, and then once more.
func (l *ledger) run(ctx context.Context) {
	for {
		select {
		case <-l.wake:
			if l.flush(ctx) {
				continue
			}
			timer := time.NewTimer(ledgerRetry)
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

// flush writes all pending entries. It returns false when a store did not accept its
// part, which then is pending again.
func (l *ledger) flush(ctx context.Context) bool {
	l.mu.Lock()
	work := l.pending
	l.pending = map[scope.TenantID]map[*desk]entry{}
	l.mu.Unlock()
	fine := true
	for t, of := range work {
		for len(of) > 0 {
			some := make(map[*desk]entry, perTransaction)
			for d, e := range of {
				if some[d] = e; len(some) == perTransaction {
					break
				}
			}
			for d := range some {
				delete(of, d)
			}
			err := l.write(ctx, t, some)
			if err == nil || fault.Is(err, fault.NotFound) {
				continue
			}
			if !errors.Is(err, context.Canceled) {
				l.svc.cfg.Log.Warn("the reports of bouncers could not be stored; trying again", "tenant", t, "error", err)
			}
			fine = false
			l.putBack(t, some)
		}
	}
	return fine
}

func (l *ledger) putBack(t scope.TenantID, some map[*desk]entry) {
	l.mu.Lock()
	defer l.mu.Unlock()
	of := l.pending[t]
	if of == nil {
		of = map[*desk]entry{}
		l.pending[t] = of
	}
	for d, e := range some {
		e.merge(of[d])
		of[d] = e
	}
}

func (l *ledger) write(ctx context.Context, t scope.TenantID, some map[*desk]entry) error {
	return l.svc.cfg.Stores.Write(ctx, t, func(tx *db.Tx) error {
		for d, e := range some {
			if err := l.writeEntry(ctx, tx, systemScope(t), d, e); err != nil {
				return err
			}
		}
		return nil
	})
}

// writeEntry stores the activity of one bouncer, in the order in which it happened.
func (l *ledger) writeEntry(ctx context.Context, tx *db.Tx, sc scope.Scope, d *desk, e entry) error {
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
		if _, err := bouncer.RecordRefusal(ctx, tx, sc, b, e.refused, e.why); err != nil {
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
			return nil // the entry does not prove that the bouncer is connected
		}
	}
	if _, err = registry.SetStatus(ctx, tx, sc, d.id, status, detail); err != nil || !e.reported {
		return err
	}
	return registry.SetTrouble(ctx, tx, d.id, d.problem())
}
