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
	"github.com/gatehouse-dev/gatehouse/internal/replay/compare"
	"github.com/gatehouse-dev/gatehouse/internal/resource"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
	"github.com/gatehouse-dev/gatehouse/internal/worker"
)

// Service has the use cases of replays. All fields must be set.
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
	// Panics counts panics of the evaluator.
	Panics *fault.Panics
	// Deadline limits one decision, as for live ones. Patience limits a preview, which then returns
	// what it has.
	Deadline, Patience time.Duration
}

// Preview replays at once, within Patience. If the time ran out, the answer says so. Faults:
// Invalid for controls that do not exist or do not compile, and for a control that makes the worker
// run out of time or memory; Unavailable while too many other replays run.
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

// firstStep is the number of records in the first step. Each later step has at most twice as many
// as the one before it decided (and at least firstStep), so that a slow control does not get many
// records that it will not reach. pageRows limits one read of the log.
const (
	firstStep = 64
	pageRows  = 10_000
)

// measure replays the recording of the plan. With an error it also returns the results until then.
// progress, if not nil, is called after each step, and ends the replay if it returns an error.
func (s *Service) measure(ctx context.Context, sc scope.Scope, p *plan, progress func(*compare.Part) error) (*compare.Part, error) {
	sum := &compare.Part{}
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

// page is a part of the log, or the error from reading it.
type page struct {
	lines [][]byte
	err   error
}

// pages reads the recording page by page until ctx ends. It reads one page ahead of the evaluation.
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
