package telemetry

import (
	"context"
	"strconv"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/auth"
	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/fault"
	"github.com/gatehouse-dev/gatehouse/internal/job"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

// jobKind is the wake-up of a tenant. Rows say what there is to do, so one too many
// does no harm.
const jobKind = "telemetry"

// mostOverdue bounds the reports that are made at once after a long pause.
const mostOverdue = 100

// Jobs declares the kinds of job of this package.
func (s *Service) Jobs() []job.Kind {
	return []job.Kind{{Name: jobKind, Work: s.work}}
}

// wake has a tenant looked at, at a time.
func wake(ctx context.Context, tx *db.Tx, at time.Time) error {
	_, err := job.Insert(ctx, tx, job.Job{Kind: jobKind, RunAt: at, UniqueKey: strconv.FormatInt(at.Unix(), 10)})
	return err
}

// Wake makes sure that a tenant with a license server is looked at from time to time,
// also where a wake-up was given up.
func (s *Service) Wake(ctx context.Context, t scope.TenantID) error {
	st, err := s.loadServer(ctx, t)
	if fault.Is(err, fault.NotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	return s.Stores.Write(ctx, t, func(tx *db.Tx) error {
		at, err := job.NextRun(ctx, tx, jobKind)
		// A wake-up that is further away than any that this clock sets is of a clock that was ahead.
		if err != nil || at != nil && !at.After(s.Now().Add(checkEvery+skew)) {
			return err
		}
		return s.wakeNext(ctx, tx, st)
	})
}

// work asks the license server, makes the reports that are due, and tries those that
// have not arrived.
func (s *Service) work(ctx context.Context, t job.Task) error {
	active, err := s.Active(ctx, t.Tenant)
	if err != nil {
		return err
	}
	st, err := s.loadServer(ctx, t.Tenant)
	if fault.Is(err, fault.NotFound) {
		return nil // until somebody names a server
	}
	if err == nil {
		err = s.mendSchedule(ctx, t.Tenant)
	}
	if err == nil && active {
		if _, err = s.verify(ctx, t.Tenant, st, checkEvery-time.Minute); err == nil {
			err = s.report(ctx, t.Tenant)
		}
	}
	if err != nil {
		return err
	}
	return s.Stores.WriteUnder(ctx, t.Tenant, changes, func(tx *db.Tx) error {
		if err := t.Complete(ctx, tx); err != nil {
			return err
		}
		st, err := find(ctx, tx)
		if err != nil {
			return err
		}
		if _, err := deleteTransmissions(ctx, tx, s.Now().AddDate(0, 0, -int(st.RetentionDays))); err != nil {
			return err
		}
		return s.wakeNext(ctx, tx, st)
	})
}

// mendSchedule brings back what a clock that was ahead has put off: the next report, and attempts
// to send one. Otherwise nothing is sent until the time that the clock had shown.
func (s *Service) mendSchedule(ctx context.Context, t scope.TenantID) error {
	now := s.Now()
	return s.Stores.WriteUnder(ctx, t, changes, func(tx *db.Tx) error {
		st, err := find(ctx, tx)
		if err != nil {
			return err
		}
		if st.isAhead(now) {
			if err := putState(ctx, tx, st.plan(now)); err != nil {
				return err
			}
		}
		return mendTransmissions(ctx, tx, db.Stamp(now), db.Stamp(now.Add(longestRetry+skew)))
	})
}

// wakeNext inserts the wake-up for what comes next.
func (s *Service) wakeNext(ctx context.Context, tx *db.Tx, st state) error {
	now := s.Now()
	at := now.Add(checkEvery)
	if st.Enabled && st.NextAt != nil && st.NextAt.Add(grace).Before(at) {
		at = st.NextAt.Add(grace)
	}
	if st.Enabled {
		due, err := nextAttempt(ctx, tx)
		if err != nil {
			return err
		}
		if due != nil && due.Before(at) {
			at = *due
		}
	}
	// A server that fails is not called more often than this.
	if soon := now.Add(failureHolds); at.Before(soon) {
		at = soon
	}
	return wake(ctx, tx, at)
}

// report makes the reports whose period is over and tries those that are due, until
// one fails.
func (s *Service) report(ctx context.Context, t scope.TenantID) error {
	for range mostOverdue {
		more, err := s.makeDue(ctx, t)
		if err != nil {
			return err
		}
		if !more {
			break
		}
	}
	sc := auth.SystemScope(t, "telemetry", "")
	for {
		var ids []int64
		err := s.Stores.Read(ctx, t, func(tx *db.Tx) error {
			st, err := find(ctx, tx)
			if err == nil && st.Enabled {
				ids, err = dueTransmissions(ctx, tx, s.Now())
			}
			return err
		})
		if err != nil || len(ids) == 0 {
			return err
		}
		tried, err := s.send(ctx, sc, ids[0], false)
		if fault.Is(err, fault.Conflict) || fault.Is(err, fault.BadRequest) { // another process has it, or telemetry was disabled
			return nil
		}
		if err != nil || tried.Status != Success {
			return err
		}
	}
}

// makeDue makes the report of the oldest period that is over, and reports whether
// there was one. The schedule moves on in the same transaction, so of several
// replicas one makes it.
func (s *Service) makeDue(ctx context.Context, t scope.TenantID) (bool, error) {
	st, err := s.load(ctx, t)
	if err != nil || !st.due(s.Now()) {
		return false, err
	}
	report, err := s.measure(ctx, t, st, st.currentPeriod(*st.NextAt))
	if err != nil {
		return false, err
	}
	now := db.Stamp(s.Now())
	err = s.Stores.WriteUnder(ctx, t, changes, func(tx *db.Tx) error {
		next, err := find(ctx, tx)
		if err != nil || !next.due(now) || !next.NextAt.Equal(*st.NextAt) {
			return err // another replica made it, or the schedule changed
		}
		if _, err := insertTransmission(ctx, tx, s.transmission(report, now, now)); err != nil {
			return err
		}
		return putState(ctx, tx, next.advance())
	})
	return err == nil, err
}

// due reports whether the period of the next report is over.
func (st state) due(now time.Time) bool {
	return st.Enabled && st.NextAt != nil && !st.NextAt.Add(grace).After(now)
}
