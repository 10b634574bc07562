package decision

import (
	"context"
	"errors"

	"github.com/gatehouse-dev/gatehouse/internal/audit"
	"github.com/gatehouse-dev/gatehouse/internal/fault"
	"github.com/gatehouse-dev/gatehouse/internal/rego"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

// Snapshot returns the controls and resources that decide now in the scope's environment;
// production if it names none.
func (s *Service) Snapshot(ctx context.Context, sc scope.Scope) (*rego.Set, error) {
	return s.Snapshots.Get(ctx, sc.Tenant, sc.EnvOr(scope.Production))
}

// DecideSeveral decides requests of one call against one snapshot, in order, and
// makes their records safe together. Their users are looked up by stored. more gets
// each decision, and ends the call by answering false. A nil request is left out: more
// gets a nil decision.
//
// The call has a deadline as a whole, as a bulk call has: a request that it leaves no
// time for is DENY with the reason evaluation_limit. It ends early, with nothing
// recorded, when its caller leaves (Unavailable "cancelled").
func (s *Service) DecideSeveral(ctx context.Context, sc scope.Scope, set *rego.Set, requests []*rego.Request, stored Lookup, more func(i int, d *rego.Decision) bool) error {
	records := make([]audit.Decision, 0, len(requests))
	caller := ctx
	for _, req := range requests {
		if req == nil {
			continue
		}
		if err := limitAgent(sc, req); err != nil {
			return err
		}
	}
	err := s.withinShare(ctx, sc, func(ctx context.Context, t *turn) error {
		for i, req := range requests {
			if req == nil {
				if !more(i, nil) {
					return nil
				}
				continue
			}
			var rec audit.Decision
			var d rego.Decision
			var err error
			switch {
			case caller.Err() != nil:
				return ended(caller)
			case ctx.Err() != nil:
				d = s.timedOut(sc, set, req, s.NewID(), &rec)
			default:
				d, err = s.decideInto(ctx, sc, set, req, s.NewID(), &rec, t, stored)
			}
			if err != nil {
				return err
			}
			records = append(records, rec)
			if !more(i, &d) {
				return nil
			}
		}
		return nil
	})
	if err != nil || len(records) == 0 {
		return err
	}
	return s.RecordAll(sc.Tenant, records)
}

// Try decides requests without recording or counting them, one after the other, until next
// returns nil. A search uses it: nobody acts on the decisions that it tries. Their users
// are looked up by stored. Faults: those of stored, Unavailable "timeout" after the
// deadline of a bulk call, and "cancelled".
func (s *Service) Try(ctx context.Context, sc scope.Scope, set *rego.Set, stored Lookup, next func() *rego.Request, got func(*rego.Decision)) error {
	return s.withinShare(ctx, sc, func(ctx context.Context, t *turn) error {
		for req := next(); req != nil; req = next() {
			if err := fillUser(ctx, sc.Tenant, req, stored); err != nil {
				return err
			}
			now := s.Now()
			opt := rego.Options{Now: now, Deadline: s.Deadline, Clock: s.Now}
			if t != nil {
				opt.Clock, opt.Pause = t.clock, t.pause
			}
			d := set.Decide(ctx, req, opt)
			if ctx.Err() != nil {
				return ended(ctx)
			}
			got(&d)
		}
		return nil
	})
}

// Work does n steps of work outside of an evaluation, within the tenant's share of the
// processors and the deadline of a bulk call. Faults: Unavailable "timeout" or "cancelled"
// if it could not do all steps.
func (s *Service) Work(ctx context.Context, sc scope.Scope, n int, step func(i int)) error {
	return s.withinShare(ctx, sc, func(ctx context.Context, t *turn) error {
		for i := range n {
			if i%workPause == 0 && (ctx.Err() != nil || t != nil && !t.pause()) {
				return ended(ctx)
			}
			step(i)
		}
		return nil
	})
}

// workPause is the number of steps between two pauses.
const workPause = 8

// ended is the fault for work that was stopped by its context or its share of the
// processors.
func ended(ctx context.Context) error {
	if errors.Is(ctx.Err(), context.Canceled) {
		return fault.Cancelled(ctx.Err())
	}
	return fault.New(fault.Unavailable, "timeout", "this took too long and was cancelled").Because(ctx.Err())
}

// withinShare runs work within the tenant's share of the processors and the deadline of a
// bulk call.
func (s *Service) withinShare(ctx context.Context, sc scope.Scope, work func(context.Context, *turn) error) error {
	if s.BulkDeadline > 0 {
		var done context.CancelFunc
		ctx, done = context.WithTimeout(ctx, s.BulkDeadline)
		defer done()
	}
	t := s.startTurn(ctx, sc.Tenant, s.Now(), s.BulkDeadline)
	defer t.end()
	return work(ctx, t)
}
