package replay

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/audit"
	"github.com/gatehouse-dev/gatehouse/internal/bouncer"
	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/decision"
	"github.com/gatehouse-dev/gatehouse/internal/fault"
	"github.com/gatehouse-dev/gatehouse/internal/policy"
	"github.com/gatehouse-dev/gatehouse/internal/rerun"
	"github.com/gatehouse-dev/gatehouse/internal/resource"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
	"github.com/gatehouse-dev/gatehouse/internal/worker"
)

// Service is the use cases of replays. All fields must be set.
type Service struct {
	Stores    *db.Cluster
	Now       func() time.Time
	Audit     *audit.DecisionLog
	Policies  *policy.Service
	Resources *resource.Service
	Bouncers  *bouncer.Service
	Snapshots *decision.Snapshots
	Workers   *worker.Pool
	Log       *slog.Logger
	// Panics is told of faults of the evaluator.
	Panics *fault.Panics
	// Deadline bounds one decision, as it does for live ones; Patience bounds a
	// preview, which answers with what it has by then.
	Deadline, Patience time.Duration
}

// Preview replays at once, within Patience; what is not replayed by then is left
// out, and the answer says so. Faults: Invalid for controls that are not there or
// do not compile, and for a control that runs out of time or memory beyond what
// counts as a denial; Unavailable while too many other replays run.
func (s *Service) Preview(ctx context.Context, sc scope.Scope, r Request) (Impact, error) {
	p, err := s.plan(ctx, sc, r)
	if err != nil {
		return Impact{}, err
	}
	short, cancel := context.WithTimeout(ctx, s.Patience)
	defer cancel()
	began := s.Now()
	part, err := s.measure(short, sc, p, nil)
	late := errors.Is(short.Err(), context.DeadlineExceeded) && ctx.Err() == nil
	if err != nil && !(late && part.Seen() > 0) {
		return Impact{}, err
	}
	return p.impact(part, err != nil, s.Now().Sub(began)).shownTo(sc), nil
}

// firstStep is how many records the first step takes; each later one at most
// twice what the one before came to, so that a slow control is not sent what it
// will not look at. pageRows bounds what is read at a time.
const (
	firstStep = 64
	pageRows  = 10_000
)

// measure replays the plan's recording. What was found before an error is given
// with it. progress, if not nil, is told after each step and may end it.
func (s *Service) measure(ctx context.Context, sc scope.Scope, p *plan, progress func(*rerun.Part) error) (*rerun.Part, error) {
	sum := &rerun.Part{}
	if p.total == 0 {
		return sum, nil
	}
	child, err := s.Workers.Replay(ctx, sc.Tenant, p.spec)
	if err != nil {
		return sum, err
	}
	defer child.Close()
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	pages := s.pages(ctx, sc, p)
	step, left := firstStep, p.total
	for page := range pages {
		if page.err != nil {
			return sum, page.err
		}
		lines := page.lines
		lines = lines[:min(int64(len(lines)), left)]
		left -= int64(len(lines))
		for len(lines) > 0 {
			part, err := child.Run(ctx, lines[:min(step, len(lines))])
			if err != nil {
				return sum, err
			}
			lines, step = lines[part.Lines:], max(2*part.Lines, firstStep)
			sum.Add(part, p.spec.Samples)
			if progress != nil {
				if err := progress(sum); err != nil {
					return sum, err
				}
			}
		}
		if left == 0 {
			break
		}
	}
	return sum, ctx.Err()
}

// page is a stretch of the log, or why it cannot be read.
type page struct {
	lines [][]byte
	err   error
}

// pages reads the recording ahead of who evaluates it, one page at a time. It
// ends when ctx does.
func (s *Service) pages(ctx context.Context, sc scope.Scope, p *plan) <-chan page {
	out := make(chan page)
	go func() {
		defer close(out)
		var at audit.Lines
		for {
			next, err := s.Audit.Recorded(ctx, sc, p.recording, at, pageRows, worker.ReplayStepBytes)
			if err == nil && len(next.Records) == 0 {
				return
			}
			select {
			case out <- page{next.Records, err}:
			case <-ctx.Done():
				return
			}
			if err != nil || !next.More() {
				return
			}
			at = next
		}
	}()
	return out
}
