package replay

import (
	"context"
	"errors"
	"strconv"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/audit"
	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/fault"
	"github.com/gatehouse-dev/gatehouse/internal/job"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

// The statuses of a run.
const (
	Running   = "running" // queued or running
	Completed = "completed"
	Failed    = "failed"
	Cancelled = "cancelled"
)

// Run is a replay in the background.
type Run struct {
	ID                int64      `json:"id" db:"id" doc:"Identifier."`
	Status            string     `json:"status" db:"status" enum:"running,completed,failed,cancelled" doc:"Its state. A replay that was running when the server stopped starts again from the beginning."`
	Environment       scope.Env  `json:"environment" db:"environment" enum:"sandbox,production" doc:"Environment of the controls."`
	SourceEnvironment scope.Env  `json:"source_environment" db:"source_environment" enum:"sandbox,production" doc:"Environment whose decisions are replayed."`
	Progress          Progress   `json:"progress" db:"-" doc:"Progress."`
	Request           Request    `json:"request" db:"request" doc:"The request."`
	Result            *Impact    `json:"result,omitempty" db:"result" doc:"The result: complete once the replay is completed, otherwise what there was when it ended. Absent in lists."`
	Error             string     `json:"error,omitempty" db:"error" doc:"Why it failed."`
	CreatedBy         string     `json:"created_by" db:"created_by" doc:"Who requested it."`
	CreatedAt         time.Time  `json:"created_at" db:"created_at" doc:"When it was requested."`
	UpdatedAt         time.Time  `json:"updated_at" db:"updated_at" doc:"When it last made progress."`
	FinishedAt        *time.Time `json:"finished_at,omitempty" db:"finished_at" doc:"When it ended."`
	Evaluated         int64      `json:"-" db:"evaluated"`
	Total             int64      `json:"-" db:"total"`
}

// Progress is the progress of a run.
type Progress struct {
	Evaluated int64   `json:"evaluated" doc:"Decisions replayed so far."`
	Total     int64   `json:"total" doc:"Decisions to replay; 0 before the replay has begun."`
	Percent   float64 `json:"percent" doc:"The share, 0 to 100."`
}

// Runs is one page of runs, newest first.
type Runs struct {
	Runs  []Run `json:"runs" doc:"The page, newest first."`
	Total int64 `json:"total" doc:"How many there are."`
}

// JobKind is the kind of job that runs a replay. maxWaiting limits a tenant's runs that have not
// ended. keepRuns is how many of the newest runs are kept; running ones are always kept.
const (
	JobKind     = "replay"
	maxAttempts = 3
	maxWaiting  = 10
	keepRuns    = 200
)

type payload struct {
	Run int64 `json:"run"`
}

func (r *Run) setProgress() {
	r.Progress = Progress{Evaluated: r.Evaluated, Total: r.Total, Percent: percent(r.Evaluated, r.Total)}
	if r.Status == Completed {
		r.Progress.Percent = 100
	}
}

// Start creates a run and its job. It first checks the request and compiles its controls, so that
// the caller learns of mistakes at once. Faults: those of Preview, and RateLimited if too many runs
// of the tenant have not ended.
func (s *Service) Start(ctx context.Context, sc scope.Scope, r Request) (Run, error) {
	p, err := s.plan(ctx, sc, r)
	if err != nil {
		return Run{}, err
	}
	for _, c := range p.changes {
		if c.remove {
			continue
		}
		if err := s.compiles(ctx, sc, p, c); err != nil {
			return Run{}, err
		}
	}
	now := s.Now()
	run := Run{
		Status: Running, Environment: p.request.Environment, SourceEnvironment: p.request.SourceEnvironment, Request: p.request,
		CreatedBy: sc.Actor.Name, CreatedAt: now, UpdatedAt: now, Total: p.total,
	}
	err = s.Stores.Write(ctx, sc.Tenant, func(tx *db.Tx) error {
		if err := tx.Lock(ctx, "replays"); err != nil {
			return err
		}
		waiting, err := countRunning(ctx, tx)
		if err != nil {
			return err
		}
		if waiting >= maxWaiting {
			return fault.Newf(fault.RateLimited, "rate_limit_exceeded", "%d replays of this tenant have not ended yet", waiting).After(5 * time.Second)
		}
		if run.ID, err = insertRun(ctx, tx, run); err != nil {
			return err
		}
		if err := forgetRuns(ctx, tx, keepRuns); err != nil {
			return err
		}
		if err := s.noteRun(ctx, tx, sc, run, "REPLAY_STARTED"); err != nil {
			return err
		}
		_, err = job.Insert(ctx, tx, job.Job{Kind: JobKind, Payload: payload{run.ID}, MaxAttempts: maxAttempts})
		return err
	})
	run.setProgress()
	return run, err
}

func (s *Service) compiles(ctx context.Context, sc scope.Scope, p *plan, c change) error {
	v, err := s.Workers.Check(ctx, sc.Tenant, c.control.Source, p.changed(p.shelf)...)
	if err != nil || v.Valid {
		return err
	}
	f := fault.New(fault.Invalid, "invalid_policy", "the control does not compile").With("errors", v.Errors)
	for _, is := range v.Errors {
		f.Details = append(f.Details, fault.Detail{Pointer: "/rego_code", Message: c.control.Name + ": " + is.Message, Line: is.Line, Column: is.Column})
	}
	return f
}

func (s *Service) noteRun(ctx context.Context, tx *db.Tx, sc scope.Scope, run Run, kind string) error {
	return audit.Append(ctx, tx, sc, s.Now(), audit.Entry{
		Type: kind, Object: "replay", ObjectID: strconv.FormatInt(run.ID, 10), ObjectName: "replay " + strconv.FormatInt(run.ID, 10), Env: run.Environment,
		Changes: map[string]any{"source_environment": run.SourceEnvironment, "control_ids": run.Request.ControlIDs, "window_hours": run.Request.WindowHours, "edits": len(run.Request.Candidates)},
	})
}

// List returns a page of the runs that the scope sees, without their results.
func (s *Service) List(ctx context.Context, sc scope.Scope, skip, limit int64) (Runs, error) {
	out := Runs{Runs: []Run{}}
	source := scope.AnyEnv // a credential for one environment sees no runs on the other one's decisions
	if sc.EnvBound {
		source = sc.Env
	}
	err := s.Stores.Read(ctx, sc.Tenant, func(tx *db.Tx) (err error) {
		out.Runs, out.Total, err = listRuns(ctx, tx, string(sc.Env), string(source), skip, limit)
		return err
	})
	for i := range out.Runs {
		out.Runs[i].setProgress()
	}
	return out, err
}

// Get returns the part of a run that the scope may see. Fault: NotFound.
func (s *Service) Get(ctx context.Context, sc scope.Scope, id int64) (Run, error) {
	return db.Read(ctx, s.Stores, sc.Tenant, func(tx *db.Tx) (Run, error) { return s.load(ctx, tx, sc, id) })
}

// load reads a run from the store. All answers use it, so that none contains what shownTo removes.
func (s *Service) load(ctx context.Context, tx *db.Tx, sc scope.Scope, id int64) (Run, error) {
	run, err := getRun(ctx, tx, id)
	if errors.Is(err, db.ErrNoRows) || err == nil && !(sc.Sees(run.Environment) && (!sc.EnvBound || sc.Sees(run.SourceEnvironment))) {
		return Run{}, fault.NotFoundf("no such replay")
	}
	run.setProgress()
	if run.Result != nil {
		shown := run.Result.shownTo(sc)
		run.Result = &shown
	}
	return run, err
}

// awaitEvery is how often Await reads a run.
const awaitEvery = 200 * time.Millisecond

// Await waits until the run has made progress or has ended, but no longer than most, and returns
// it.
func (s *Service) Await(ctx context.Context, sc scope.Scope, id int64, most time.Duration) (Run, error) {
	first, err := s.Get(ctx, sc, id)
	if err != nil || first.Status != Running {
		return first, err
	}
	over := time.NewTimer(most)
	defer over.Stop()
	tick := time.NewTicker(awaitEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return first, nil
		case <-over.C:
			return s.Get(ctx, sc, id)
		case <-tick.C:
			now, err := s.Get(ctx, sc, id)
			if err != nil || now.Status != Running || now.Evaluated != first.Evaluated {
				return now, err
			}
		}
	}
}

// Cancel ends a run. The replica that executes it notices within a second or two. Faults: NotFound,
// and Conflict if the run has ended.
func (s *Service) Cancel(ctx context.Context, sc scope.Scope, id int64) (Run, error) {
	var run Run
	err := s.Stores.Write(ctx, sc.Tenant, func(tx *db.Tx) (err error) {
		if run, err = s.load(ctx, tx, sc, id); err != nil {
			return err
		}
		ended, err := endRun(ctx, tx, id, Cancelled, nil, "", s.Now())
		if err == nil && !ended {
			err = fault.Newf(fault.Conflict, "not_running", "the replay is %s", run.Status)
		}
		if err != nil {
			return err
		}
		if err := s.noteRun(ctx, tx, sc, run, "REPLAY_CANCELLED"); err != nil {
			return err
		}
		run, err = s.load(ctx, tx, sc, id)
		return err
	})
	return run, err
}
