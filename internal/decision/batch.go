package decision

import (
	"context"
	"errors"

	"github.com/gatehouse-dev/gatehouse/internal/audit"
	"github.com/gatehouse-dev/gatehouse/internal/fault"
	"github.com/gatehouse-dev/gatehouse/internal/rego"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

// Snapshot returns the set of controls and resources that decides now in the scope's environment, or
// in production if the scope has none.
func (s *Service) Snapshot(ctx context.Context, sc scope.Scope) (*rego.Set, error) {
	return s.Snapshots.Get(ctx, sc.Tenant, sc.EnvOr(scope.Production))
}

// DecideBatch decides the requests of one call with one snapshot, in order, and stores all their
// records before it returns. It looks up their users with stored. It calls more with each decision,
// and stops if more returns false. For a nil request, more gets a nil decision.
//
// The whole call has a deadline, like a bulk call. Requests for which no time is left are DENY with
// the reason evaluation_limit. If the caller disconnects, it stops and records nothing (Unavailable
// "cancelled").
func (s *Service) DecideBatch(ctx context.Context, sc scope.Scope, set *rego.Set, requests []*rego.Request, stored Lookup, more func(i int, d *rego.Decision) bool) error {
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
				return stoppedFault(caller)
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

// DecideUnrecorded decides requests without recording or counting them, one after the other, until next returns
// nil. It is for searches, whose decisions nobody enforces. It looks up their users with stored.
// Faults: those of stored, Unavailable "timeout" after the deadline of a bulk call, and "cancelled".
func (s *Service) DecideUnrecorded(ctx context.Context, sc scope.Scope, set *rego.Set, stored Lookup, next func() *rego.Request, got func(*rego.Decision)) error {
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
				return stoppedFault(ctx)
			}
			got(&d)
		}
		return nil
	})
}

// Work calls step for 0 to n-1, for work outside of an evaluation. The work counts against the
// tenant's share of the processors and has the deadline of a bulk call. Faults: Unavailable
// "timeout" or "cancelled" if it could not do all steps.
func (s *Service) Work(ctx context.Context, sc scope.Scope, n int, step func(i int)) error {
	return s.withinShare(ctx, sc, func(ctx context.Context, t *turn) error {
		for i := range n {
			if i%workPause == 0 && (ctx.Err() != nil || t != nil && !t.pause()) {
				return stoppedFault(ctx)
			}
			step(i)
		}
		return nil
	})
}

// workPause is the number of steps between two pauses.
const workPause = 8

// stoppedFault returns the fault for work that was stopped by its context or by its share of the
// processors.
func stoppedFault(ctx context.Context) error {
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
