package ide

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/controlfile"
	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/fault"
	"github.com/gatehouse-dev/gatehouse/internal/gitpack"
	"github.com/gatehouse-dev/gatehouse/internal/job"
	"github.com/gatehouse-dev/gatehouse/internal/policycode"
	"github.com/gatehouse-dev/gatehouse/internal/rego/lang"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

// The statuses of a deployment.
const (
	InProgress = "in_progress"
	Completed  = "completed"
	Failed     = "failed"
)

// workTime limits the work of a deployment. editorTime limits that of a deployment from an editor,
// because its author waits. If such a deployment has not ended after lostAfter, its server has
// stopped.
const (
	workTime   = 2 * time.Minute
	editorTime = 30 * time.Second
	lostAfter  = 35 * time.Second
)

// errEnded rolls back work for a deployment that has already ended.
var errEnded = fault.New(fault.Conflict, "deployment_ended", "the deployment has already ended")

// Deployment is the work that a delivery, a synchronisation or an editor requested.
type Deployment struct {
	ID           string     `json:"deployment_id" db:"id" doc:"Identifier."`
	RepositoryID *int64     `json:"repository_id" db:"repository_id" nullable:"true" doc:"Registered repository that it came from."`
	Source       string     `json:"source" db:"source" enum:"service,github,gitlab,editor" doc:"Source of the change."`
	EventType    string     `json:"event_type" db:"event_type" enum:"push,pull_request,tag,deploy" doc:"The event: a pull_request is only validated."`
	Status       string     `json:"status" db:"status" enum:"in_progress,completed,failed" doc:"State."`
	Branch       string     `json:"branch,omitempty" db:"branch" doc:"Branch, or name of the tag."`
	CommitHash   string     `json:"commit_hash,omitempty" db:"commit_hash" doc:"Commit."`
	Outcome      Outcome    `json:"outcome" db:"result" doc:"Result; empty while in progress."`
	CreatedBy    string     `json:"created_by" db:"created_by" doc:"Who requested it."`
	CreatedAt    time.Time  `json:"created_at" db:"created_at" doc:"When it began."`
	FinishedAt   *time.Time `json:"finished_at" db:"finished_at" nullable:"true" doc:"When it ended; null before."`
}

// Outcome is the result of a deployment.
type Outcome struct {
	Message string         `json:"message,omitempty" doc:"What was done, or what went wrong."`
	Files   []FileResult   `json:"files,omitempty" doc:"Results by file."`
	Errors  []fault.Detail `json:"errors,omitempty" doc:"Errors, with file, line and column."`
}

// DeploymentPage is one page of the deployments, newest first.
type DeploymentPage struct {
	Deployments []Deployment `json:"deployments" doc:"The page, newest first."`
	Total       int64        `json:"total" doc:"How many there are."`
}

// work is the request of a deployment. It is stored until the deployment ends.
type work struct {
	Validate     bool
	Files        []controlfile.File
	Paths        []string
	URL          string // of a repository that is not registered
	Branch, Hash string
	RepositoryID int64
	Resource     *int64
	Bouncer      *int64
	Actor        scope.Actor
}

// waiters has a channel for each goroutine of this replica that waits for a deployment to end.
type waiters struct {
	mu sync.Mutex
	by map[scope.TenantID]map[chan struct{}]bool
}

// OnChange wakes the waiters of a tenant when a deployment has ended on any replica. An empty
// tenant or name stands for all. db.Watch calls it.
func (s *Service) OnChange(tenant scope.TenantID, name string) {
	if name != Topic && name != "" {
		return
	}
	s.waiting.mu.Lock()
	defer s.waiting.mu.Unlock()
	for t, all := range s.waiting.by {
		if tenant != "" && t != tenant {
			continue
		}
		for c := range all {
			select {
			case c <- struct{}{}:
			default:
			}
		}
	}
}

func (w *waiters) register(t scope.TenantID) (woken <-chan struct{}, leave func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	c := make(chan struct{}, 1)
	if w.by == nil {
		w.by = map[scope.TenantID]map[chan struct{}]bool{}
	}
	if w.by[t] == nil {
		w.by[t] = map[chan struct{}]bool{}
	}
	w.by[t][c] = true
	return c, func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		if delete(w.by[t], c); len(w.by[t]) == 0 {
			delete(w.by, t)
		}
	}
}

// Deployment returns a deployment by id. Fault: NotFound.
func (s *Service) Deployment(ctx context.Context, sc scope.Scope, id string) (Deployment, error) {
	d, err := db.Read(ctx, s.Stores, sc.Tenant, func(tx *db.Tx) (Deployment, error) { return deployment(ctx, tx, id) })
	if errors.Is(err, db.ErrNoRows) {
		return d, fault.NotFoundf("there is no such deployment")
	}
	return d, err
}

// Deployments returns a page of deployments, newest first: those of a repository, or all
// if repository is 0.
func (s *Service) Deployments(ctx context.Context, sc scope.Scope, repository, skip, limit int64) (DeploymentPage, error) {
	var page DeploymentPage
	err := s.Stores.Read(ctx, sc.Tenant, func(tx *db.Tx) (err error) {
		if page.Total, err = countDeployments(ctx, tx, repository); err != nil {
			return err
		}
		page.Deployments, err = deployments(ctx, tx, repository, skip, limit)
		return err
	})
	return page, err
}

// Await waits until a deployment has ended or ctx is done, and returns the deployment. Fault:
// NotFound.
func (s *Service) Await(ctx context.Context, sc scope.Scope, id string) (Deployment, error) {
	woken, leave := s.waiting.register(sc.Tenant)
	defer leave()
	for {
		d, err := s.Deployment(context.WithoutCancel(ctx), sc, id)
		if err != nil || d.Status != InProgress {
			return d, err
		}
		select {
		case <-ctx.Done():
			return d, nil
		case <-woken:
		}
	}
}

// Deploy deploys an editor's files to sandbox and waits for the outcome. Fault: Invalid with the
// errors if the files cannot be deployed; the deployment is then stored as failed. If the server
// stops before the end, a job marks the deployment as failed.
func (s *Service) Deploy(ctx context.Context, sc scope.Scope, files []controlfile.File) (Deployment, error) {
	if err := checkMayDeploy(sc); err != nil {
		return Deployment{}, err
	}
	d := Deployment{ID: s.NewID(), Source: Editor, EventType: "deploy", Status: InProgress, CreatedBy: sc.Actor.Name, CreatedAt: s.Now()}
	err := s.write(ctx, sc, func(tx *db.Tx) error {
		if err := insertDeployment(ctx, tx, d, ""); err != nil {
			return err
		}
		return enqueue(ctx, tx, d, d.CreatedAt.Add(lostAfter))
	})
	if err != nil {
		return d, err
	}
	bounded, cancel := context.WithTimeout(ctx, editorTime)
	defer cancel()
	failed := s.deploy(bounded, sc, d.ID, policycode.Request{Files: files})
	ended := context.WithoutCancel(ctx) // the outcome is stored even if the caller has gone
	if failed != nil {
		if err := s.finish(ended, sc, d.ID, nil, failed); err != nil {
			return d, err
		}
		return d, withDeployment(failed, d.ID)
	}
	return s.Deployment(ended, sc, d.ID)
}

// withDeployment adds the id of the deployment to a fault.
func withDeployment(err error, id string) error {
	if f, ok := errors.AsType[*fault.Error](err); ok {
		return f.With("deployment_id", id)
	}
	return err
}

// begin stores a deployment and its job in one transaction.
func (s *Service) begin(ctx context.Context, tx *db.Tx, d Deployment, w work) error {
	text, err := json.Marshal(w)
	if err != nil {
		return fault.Wrap(err, "deployment")
	}
	if err := insertDeployment(ctx, tx, d, string(text)); err != nil {
		return err
	}
	if err := dropOldDeployments(ctx, tx, s.Now().Add(-keepDeployments)); err != nil {
		return err
	}
	return enqueue(ctx, tx, d, time.Time{})
}

// enqueue stores the job of a deployment.
func enqueue(ctx context.Context, tx *db.Tx, d Deployment, at time.Time) error {
	_, err := job.Insert(ctx, tx, job.Job{Kind: JobKind, Payload: map[string]string{"deployment_id": d.ID}, RunAt: at, UniqueKey: d.ID, MaxAttempts: 5})
	return err
}

// Work is the handler of the job. It does the work of a deployment and ends it. Both are one
// transaction (see deploy), so an attempt that was killed has stored either everything or nothing.
func (s *Service) Work(ctx context.Context, t job.Task) error {
	var p struct {
		ID string `json:"deployment_id"`
	}
	if err := t.Decode(&p); err != nil {
		return err
	}
	sc, err := s.As(ctx, t.Tenant, "repository", p.ID)
	if err != nil {
		return err
	}
	var text string
	var d Deployment
	err = s.Stores.Read(ctx, sc.Tenant, func(tx *db.Tx) (err error) {
		if d, err = deployment(ctx, tx, p.ID); err != nil {
			return err
		}
		text, err = deploymentRequest(ctx, tx, p.ID)
		return err
	})
	switch {
	case errors.Is(err, db.ErrNoRows) || err == nil && d.Status != InProgress:
		return nil // deleted, or done by another attempt
	case err != nil:
		return err
	case text == "": // from an editor: its author got no answer and can try again
		return s.finish(ctx, sc, p.ID, nil, fault.New(fault.Unavailable, "deployment_lost", "the server stopped before it carried out the deployment; nothing was changed"))
	}
	var w work
	if err := json.Unmarshal([]byte(text), &w); err != nil {
		return job.Permanent(err)
	}
	sc.Actor = w.Actor
	bounded, cancel := context.WithTimeout(ctx, workTime)
	defer cancel()
	found, failed := s.runWork(bounded, sc, t, p.ID, w)
	if ctx.Err() != nil {
		return ctx.Err() // the process is stopping; the job runs again
	}
	if isBusy(failed) {
		return failed // the job runs again later
	}
	if failed == nil && !w.Validate {
		return nil
	}
	return s.finish(ctx, sc, p.ID, found, failed)
}

// HandleDead ends a deployment whose job has no attempts left. It is the Dead function of the job
// kind.
func (s *Service) HandleDead(ctx context.Context, tx *db.Tx, t job.Task, cause error) error {
	var p struct {
		ID string `json:"deployment_id"`
	}
	if err := t.Decode(&p); err != nil {
		return nil //nolint:nilerr // a payload that cannot be read names no deployment
	}
	s.Log.Error("a deployment was abandoned", "tenant", t.Tenant, "deployment", p.ID, "error", cause)
	if err := forgetDeliveries(ctx, tx, p.ID); err != nil {
		return err
	}
	_, err := s.end(ctx, tx, p.ID, Failed, Outcome{Message: "The work could not be done"})
	return err
}

// runWork fetches the files that the delivery does not contain. Then it either validates all files
// and returns the results, or deploys them.
func (s *Service) runWork(ctx context.Context, sc scope.Scope, t job.Task, id string, w work) ([]FileResult, error) {
	b := policycode.Request{Files: w.Files, ResourceID: w.Resource, BouncerID: w.Bouncer, Commit: w.Hash, Repository: w.URL}
	if len(w.Paths) > 0 || len(w.Files) == 0 {
		fetched, err := s.fetch(ctx, sc, t, &b, w)
		if err != nil {
			return nil, err
		}
		b.Files = append(slices.Clone(b.Files), fetched...)
		if w.Hash == "" {
			if err := s.write(ctx, sc, func(tx *db.Tx) error { return setCommit(ctx, tx, id, b.Commit) }); err != nil {
				return nil, err
			}
		}
	}
	if len(b.Files) == 0 {
		return nil, fault.Invalidf("", "the commit has no controls at this path")
	}
	if !w.Validate {
		return nil, s.deploy(ctx, sc, id, b)
	}
	v, err := s.Code.Validate(ctx, sc, b)
	if err != nil {
		return nil, err
	}
	if !v.Valid {
		return nil, deployFault("the controls cannot be deployed", v.Errors)
	}
	out := make([]FileResult, len(v.Controls))
	for i, c := range v.Controls {
		out[i] = FileResult{Path: c.Path, Name: c.Name, Result: "valid"}
	}
	return out, nil
}

// deploy stores files and, in the same transaction, ends the deployment as completed. If it fails,
// the caller must end the deployment.
func (s *Service) deploy(ctx context.Context, sc scope.Scope, id string, r policycode.Request) error {
	_, err := s.Code.DeployWith(ctx, sc, r, func(ctx context.Context, tx *db.Tx, d policycode.Deployment) error {
		out := make([]FileResult, len(d.Files))
		for i, f := range d.Files {
			out[i] = FileResult{f.Path, f.Name, f.Result, f.PolicyID, f.Version}
		}
		first, err := s.end(ctx, tx, id, Completed, successOutcome(out))
		if err == nil && !first {
			err = errEnded
		}
		return err
	})
	if refused, ok := errors.AsType[*fault.Error](err); ok {
		if issues, ok := refused.Fields["errors"].([]lang.FileIssue); ok {
			err = deployFault(refused.Message, issues)
		}
	}
	return err
}

func successOutcome(files []FileResult) Outcome { return Outcome{Message: "Done", Files: files} }

// end ends a deployment that is in progress, and wakes its waiters. It returns false if the
// deployment had already ended.
func (s *Service) end(ctx context.Context, tx *db.Tx, id, status string, o Outcome) (bool, error) {
	n, err := finishDeployment(ctx, tx, id, status, o, s.Now())
	if err != nil || n == 0 {
		return false, err
	}
	return true, tx.Notify(ctx, Topic)
}

// deployFault returns the fault for files that cannot be deployed. Each error names its file.
func deployFault(message string, issues []lang.FileIssue) error {
	f := fault.New(fault.Invalid, "invalid_policy", message)
	for _, is := range issues {
		f.Details = append(f.Details, fault.Detail{Pointer: is.File, Message: is.Message, Line: is.Line, Column: is.Column})
	}
	return f
}

// fetch reads a commit's files from the repository, and sets the commit in b.
func (s *Service) fetch(ctx context.Context, sc scope.Scope, t job.Task, b *policycode.Request, w work) ([]controlfile.File, error) {
	large := &largeAnswer{pool: s.Large, tenant: sc.Tenant}
	defer large.free() // after the files are unpacked
	from, prefix := source{url: w.URL, branch: w.Branch, hash: w.Hash, large: large}, ""
	if w.RepositoryID != 0 {
		r, err := s.Repository(ctx, sc, w.RepositoryID)
		if err != nil {
			return nil, err
		}
		from.url, b.Repository, prefix = r.URL, r.URL, r.Path
		if len(r.Token) > 0 {
			token, err := s.Box.Open(r.Token, seal(sc, strconv.FormatInt(r.ID, 10), "access_token"))
			if err != nil {
				return nil, fault.Wrap(err, "open the access token")
			}
			from.token = string(token)
		}
	}
	var pack []byte
	var commit string
	err := t.Away(func() (err error) {
		pack, commit, err = s.fetchPack(ctx, from)
		return err
	})
	if err == nil && ctx.Err() != nil { // the task waited too long for a slot to continue in
		err = tooBusy(ctx.Err())
	}
	if err != nil {
		return nil, err
	}
	b.Commit = commit
	files, err := s.Unpack(ctx, sc.Tenant, gitpack.Request{Pack: pack, Commit: commit, Prefix: prefix, Paths: w.Paths})
	if err != nil {
		return nil, err
	}
	out := make([]controlfile.File, len(files))
	for i, f := range files {
		out[i] = controlfile.File(f)
	}
	return out, nil
}

// finish ends a deployment that deploy has not ended. If the reason may be temporary, it forgets
// the delivery, so that it can be sent again.
func (s *Service) finish(ctx context.Context, sc scope.Scope, id string, results []FileResult, failed error) error {
	status, o := Completed, successOutcome(results)
	passing := false
	if failed != nil {
		status, o.Message = Failed, fault.Message(failed)
		if f, ok := errors.AsType[*fault.Error](failed); ok {
			o.Errors = f.Details[:min(len(f.Details), 100)]
		}
		passing = !fault.Is(failed, fault.Invalid) && !fault.Is(failed, fault.Forbidden) && !fault.Is(failed, fault.Conflict)
		s.Log.Info("deployment failed", "tenant", sc.Tenant, "deployment", id, "error", failed)
	}
	return s.write(ctx, sc, func(tx *db.Tx) error {
		first, err := s.end(ctx, tx, id, status, o)
		if err != nil || !first || !passing {
			return err
		}
		return forgetDeliveries(ctx, tx, id)
	})
}
