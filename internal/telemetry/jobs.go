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

// jobKind is the kind of the jobs that wake a tenant's scheduler. What there is to do is in other
// rows, so an extra wake-up does no harm.
const jobKind = "telemetry"

// mostOverdue is how many overdue reports are made at once after a long pause.
const mostOverdue = 100

// Jobs returns the kinds of job of this package.
func (s *Service) Jobs() []job.Kind {
	return []job.Kind{{Name: jobKind, Work: s.work}}
}

// wake inserts a wake-up of the tenant at a time.
func wake(ctx context.Context, tx *db.Tx, at time.Time) error {
	_, err := job.Insert(ctx, tx, job.Job{Kind: jobKind, RunAt: at, UniqueKey: strconv.FormatInt(at.Unix(), 10)})
	return err
}

// Wake makes sure that a tenant with a license server has a wake-up, even if the last one was given
// up.
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
		// A wake-up later than any that this clock sets comes from a clock that was ahead: ignore it.
		if err != nil || at != nil && !at.After(db.MaxLeaseEnd(s.Now(), checkEvery)) {
			return err
		}
		return s.wakeNext(ctx, tx, st)
	})
}

// work asks the license server, makes the reports that are due, and sends those that have not
// arrived.
func (s *Service) work(ctx context.Context, t job.Task) error {
	active, err := s.Active(ctx, t.Tenant)
	if err != nil {
		return err
	}
	st, err := s.loadServer(ctx, t.Tenant)
	if fault.Is(err, fault.NotFound) {
		return nil // Update wakes the tenant again
	}
	if err == nil {
		err = s.repairSchedule(ctx, t.Tenant)
	}
	if err == nil && active {
		err = t.Away(func() error { // the license server may hang
			if _, err := s.verify(ctx, t.Tenant, st, checkEvery-time.Minute); err != nil {
				return err
			}
			return s.report(ctx, t.Tenant)
		})
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

// repairSchedule corrects the times that a clock that was ahead has set: the next report, and attempts
// to send one. Otherwise nothing would be sent until the time that this clock had shown.
func (s *Service) repairSchedule(ctx context.Context, t scope.TenantID) error {
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
		return repairTransmissions(ctx, tx, db.Stamp(now), db.Stamp(db.MaxLeaseEnd(now, longestRetry)))
	})
}

// wakeNext inserts the next wake-up: for the next report, attempt or check of the license.
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
	// Do not call a server that fails more often than this.
	if soon := now.Add(failureHolds); at.Before(soon) {
		at = soon
	}
	return wake(ctx, tx, at)
}

// report makes the reports whose period is over, and sends those that are due until one fails.
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
		if fault.Is(err, fault.Conflict) || fault.Is(err, fault.BadRequest) { // another process sends it, or telemetry was disabled
			return nil
		}
		if err != nil || tried.Status != Success {
			return err
		}
	}
}

// makeDue makes the report of the oldest period that is over, and reports whether there was one.
// It advances the schedule in the same transaction, so that only one replica makes the report.
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
