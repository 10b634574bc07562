package replay

import (
	"context"
	"errors"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/auth"
	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/fault"
	"github.com/gatehouse-dev/gatehouse/internal/job"
	"github.com/gatehouse-dev/gatehouse/internal/replay/compare"
)

// Jobs returns the job kinds of this package.
func (s *Service) Jobs() []job.Kind {
	return []job.Kind{{Name: JobKind, Work: s.work, Dead: s.HandleDead}}
}

// errStopped ends a run that was cancelled.
var errStopped = errors.New("replay: the run was cancelled")

// progressEvery is how often a run stores its progress and checks whether it was cancelled.
const progressEvery = 300 * time.Millisecond

// work executes a run. If the server stops, it returns the run to the queue. Another replica, or
// this one after its next start, then repeats it.
func (s *Service) work(ctx context.Context, t job.Task) error {
	var pay payload
	if err := t.Decode(&pay); err != nil {
		return err
	}
	sc := auth.SystemScope(t.Tenant, "replay", "")
	run, err := s.Get(ctx, sc, pay.Run)
	if fault.Is(err, fault.NotFound) || err == nil && run.Status != Running {
		return nil
	}
	if err != nil {
		return err
	}
	p, err := s.plan(ctx, sc, run.Request)
	if err != nil {
		return s.failed(ctx, t, run, err)
	}
	began := s.Now()
	told := began
	part, err := s.measure(ctx, sc, p, func(part *compare.Part) error {
		now := s.Now()
		if now.Sub(told) < progressEvery {
			return nil
		}
		told = now
		return s.advance(ctx, t, run.ID, part.Seen(), p.total)
	})
	switch {
	case errors.Is(err, errStopped):
		return nil
	case err != nil && ctx.Err() != nil:
		return err // the server is stopping, or the lease was lost
	case err != nil:
		return s.failed(ctx, t, run, err)
	}
	result := p.impact(part, false, s.Now().Sub(began))
	return s.Stores.Write(ctx, t.Tenant, func(tx *db.Tx) error {
		if err := t.Complete(ctx, tx); err != nil {
			return err
		}
		if _, err := advanceRun(ctx, tx, run.ID, part.Seen(), p.total, s.Now()); err != nil {
			return err
		}
		_, err := endRun(ctx, tx, run.ID, Completed, &result, "", s.Now())
		return err
	})
}

// advance stores the progress. It returns errStopped if the run was cancelled.
func (s *Service) advance(ctx context.Context, t job.Task, run, seen, total int64) error {
	return s.Stores.Write(ctx, t.Tenant, func(tx *db.Tx) error {
		ok, err := advanceRun(ctx, tx, run, seen, total, s.Now())
		if err == nil && !ok {
			err = errStopped
		}
		return err
	})
}

// failed ends a run after a fault that would occur again. After an Unavailable fault it is retried
// until the last attempt.
func (s *Service) failed(ctx context.Context, t job.Task, run Run, cause error) error {
	if ctx.Err() != nil {
		return cause
	}
	if fault.Is(cause, fault.Unavailable) && t.Attempt < t.MaxAttempts {
		return job.RetryAfter(time.Second, cause)
	}
	message := "something went wrong on our side"
	if f, ok := errors.AsType[*fault.Error](cause); ok && f.Kind != fault.Internal {
		message = f.Message
		for _, d := range f.Details {
			if d.Message != "" && d.Message != f.Message {
				message += ": " + d.Message
				break
			}
		}
	} else {
		s.Log.Error("a replay failed", "tenant", t.Tenant, "run", run.ID, "error", cause)
	}
	return s.Stores.Write(ctx, t.Tenant, func(tx *db.Tx) error {
		if err := t.Complete(ctx, tx); err != nil {
			return err
		}
		_, err := endRun(ctx, tx, run.ID, Failed, nil, message, s.Now())
		return err
	})
}

// HandleDead ends the run of a job that has no attempts left. It is the Dead function of the job
// kind.
func (s *Service) HandleDead(ctx context.Context, tx *db.Tx, t job.Task, _ error) error {
	var pay payload
	if t.Kind != JobKind || t.Decode(&pay) != nil {
		return nil
	}
	_, err := endRun(ctx, tx, pay.Run, Failed, nil, "the replay was interrupted too often", s.Now())
	return err
}
