package integration

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/audit"
	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/fault"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

// The states of a run.
const (
	RunPending   = "pending"
	RunRunning   = "running"
	RunSucceeded = "succeeded"
	RunFailed    = "failed"
	RunExpired   = "expired"
	RunApproved  = "approved"
	RunDenied    = "denied"
	// RunSuperseded is the state of a run whose request for access was decided elsewhere, or ended
	// without a decision.
	RunSuperseded = "superseded"
)

// keptRuns is how long runs are kept after their end.
const keptRuns = 90 * 24 * time.Hour

// endedAtOnce is how many overdue runs one transaction ends at most.
const endedAtOnce = 200

// Cause is why a run was started. It contains no secrets.
type Cause struct {
	PolicyID   int64  `json:"policy_id,omitempty" doc:"The control whose action started it; absent: none."`
	PolicyName string `json:"policy_name,omitempty" doc:"Name of the control."`
	DecisionID string `json:"decision_id,omitempty" doc:"The decision that started it; absent: none, or several."`
	RequestID  int64  `json:"access_request_id,omitempty" doc:"The request for access that it decides; absent: none."`
	Test       bool   `json:"test,omitempty" doc:"Whether a test started it."`
	Summary    string `json:"summary" doc:"What the system was told, as text."`
}

// Run is one message to a system that answers back, and its answer.
type Run struct {
	ID            int64      `json:"id" db:"id" doc:"Identifier. The system gets it as run_id."`
	IntegrationID int64      `json:"integration_id" db:"integration_id" doc:"Id of the integration."`
	Environment   scope.Env  `json:"environment" db:"environment" enum:",sandbox,production" doc:"Environment of the cause; empty: none."`
	EventID       string     `json:"event_id" db:"event_id" doc:"Id of the message that started it."`
	Cause         Cause      `json:"cause" db:"cause" doc:"Why it was started."`
	Status        string     `json:"status" db:"status" enum:"pending,running,succeeded,failed,approved,denied,expired,superseded" doc:"pending: the system has not accepted the message yet. running: it has, and has not answered. expired: no answer came in time. superseded: somebody else decided the request for access, or it ended undecided."`
	Message       string     `json:"message" db:"message" doc:"What the system answered, or why the run failed."`
	AnsweredBy    string     `json:"answered_by" db:"answered_by" doc:"Who answered, as the system names them; empty: it named nobody."`
	ExpiresAt     *time.Time `json:"expires_at" db:"expires_at" doc:"Until when the system can answer; null: the message was not sent yet."`
	CreatedAt     time.Time  `json:"created_at" db:"created_at" doc:"When it was queued."`
	StartedAt     *time.Time `json:"started_at" db:"started_at" doc:"When the system accepted it; null: it has not."`
	EndedAt       *time.Time `json:"ended_at" db:"ended_at" doc:"When it ended; null: it has not."`

	// TokenHash is the digest of the callback's token. TokenSealed is the encrypted token, kept
	// until the system has accepted the message.
	TokenHash   string `json:"-" db:"token_hash"`
	TokenSealed []byte `json:"-" db:"token_sealed"`
}

// RunPage is one page of the runs of an integration, newest first.
type RunPage struct {
	Runs  []Run `json:"runs" doc:"The page, newest first."`
	Total int64 `json:"total" doc:"How many there are."`
}

// answers reports whether systems of a kind answer their messages.
func answers(kind string) bool { return kind == Workflow || kind == Approval }

// Called reports whether the actions of controls can call systems of a kind.
func Called(kind string) bool {
	return slices.Contains([]string{Webhook, Workflow, Approval, BreakGlass}, kind)
}

// Runs returns one page of the runs of an integration, in one state; "": in all states.
func (s *Service) Runs(ctx context.Context, sc scope.Scope, id int64, status string, skip, limit int64) (RunPage, error) {
	var page RunPage
	now := db.Stamp(s.Now())
	err := s.Stores.Read(ctx, sc.Tenant, func(tx *db.Tx) error {
		if _, err := load(ctx, tx, id); err != nil {
			return err
		}
		var err error
		if page.Total, err = countRuns(ctx, tx, id, status, now); err != nil {
			return err
		}
		page.Runs, err = listRuns(ctx, tx, id, status, now, skip, limit)
		return err
	})
	for i := range page.Runs {
		page.Runs[i] = page.Runs[i].at(now)
	}
	return page, err
}

// at returns the run as it is at a time. An overdue run counts as expired even before that is
// recorded.
func (r Run) at(now time.Time) Run {
	if r.Status == RunRunning && r.ExpiresAt != nil && !now.Before(*r.ExpiresAt) {
		r.Status = RunExpired
	}
	return r
}

// end returns the run as ended. It deletes the encrypted token.
func (r Run) end(status, message string, now time.Time) Run {
	r.Status, r.Message, r.EndedAt, r.TokenSealed = status, message, &now, []byte{}
	return r
}

// ended returns the audit entry of a run that ended.
func (it Integration) ended(r Run) audit.Entry {
	e := it.entry("INTEGRATION_RUN_ENDED", nil)
	e.Env = r.Environment
	e.EventContext = map[string]any{"run_id": r.ID, "event_id": r.EventID, "status": r.Status, "message": r.Message, "answered_by": r.AnsweredBy}
	if r.Cause.PolicyID != 0 {
		e.EventContext["policy_id"] = r.Cause.PolicyID
	}
	return e
}

// started records that the system accepted the message of a run. The answer may have come before.
func (s *Service) started(ctx context.Context, tx *db.Tx, tenant scope.TenantID, it Integration, id int64) error {
	now := db.Stamp(s.Now())
	r, err := startRun(ctx, tx, id, now)
	if err != nil {
		return err
	}
	e := it.entry("INTEGRATION_RUN_STARTED", nil)
	e.Env = r.Environment
	e.EventContext = map[string]any{"run_id": r.ID, "event_id": r.EventID, "test": r.Cause.Test}
	return audit.Append(ctx, tx, it.system(tenant), now, e)
}

// failRun ends a run whose message was not accepted by the system.
func (s *Service) failRun(ctx context.Context, tx *db.Tx, tenant scope.TenantID, it Integration, id int64, why string) error {
	r, err := getRun(ctx, tx, id)
	if err != nil || r.EndedAt != nil { // the run may have been answered all the same
		return err
	}
	now := db.Stamp(s.Now())
	r = r.end(RunFailed, why, now)
	r.TokenHash = ""
	if r, err = updateRun(ctx, tx, r); err != nil {
		return ignoreEnded(err)
	}
	return audit.Append(ctx, tx, it.system(tenant), now, it.ended(r))
}

// TidyRuns ends the overdue runs of a tenant. It removes runs that ended more than keptRuns ago,
// and the ids of messages received more than keptInbound ago.
func (s *Service) TidyRuns(ctx context.Context, tenant scope.TenantID) error {
	now := db.Stamp(s.Now())
	for more := true; more; {
		err := s.Stores.Write(ctx, tenant, func(tx *db.Tx) error {
			late, err := overdueRuns(ctx, tx, now, endedAtOnce)
			if err != nil {
				return err
			}
			more = len(late) == endedAtOnce
			for _, r := range late {
				it, err := load(ctx, tx, r.IntegrationID)
				if err != nil {
					return err
				}
				if r, err = updateRun(ctx, tx, r.end(RunExpired, "no answer came in time", now)); errors.Is(err, db.ErrNoRows) {
					continue
				}
				if err != nil {
					return err
				}
				if err := audit.Append(ctx, tx, it.system(tenant), now, it.ended(r)); err != nil {
					return err
				}
			}
			if err := forgetInbound(ctx, tx, now.Add(-keptInbound)); err != nil {
				return err
			}
			return forgetRuns(ctx, tx, now.Add(-keptRuns))
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// Supersede ends, within tx, the runs of requests for access that need no decision any more. why
// gives the reason for each request. The caller holds RequestLock.
func (s *Service) Supersede(ctx context.Context, tx *db.Tx, tenant scope.TenantID, why map[int64]string) error {
	now := db.Stamp(s.Now())
	var open []Run
	for _, id := range slices.Sorted(maps.Keys(why)) {
		of, err := runsOfRequest(ctx, tx, id, now)
		if err != nil {
			return err
		}
		open = append(open, of...)
	}
	// Change all rows before the audit takes its lock, as other transactions do, to avoid
	// deadlocks.
	var entries []audit.Entry
	for _, r := range open {
		it, err := load(ctx, tx, r.IntegrationID)
		if err != nil {
			return err
		}
		if r, err = updateRun(ctx, tx, r.end(RunSuperseded, why[r.Cause.RequestID], now)); errors.Is(err, db.ErrNoRows) {
			continue
		}
		if err != nil {
			return err
		}
		entries = append(entries, it.ended(r))
	}
	if len(entries) == 0 {
		return nil
	}
	return audit.Append(ctx, tx, Integration{}.system(tenant), now, entries...)
}

// ignoreEnded returns the error of updateRun, or nil if the run has ended meanwhile.
func ignoreEnded(err error) error {
	if errors.Is(err, db.ErrNoRows) {
		return nil
	}
	return err
}

// dropCallbacks invalidates the callbacks that the previous host of an integration may still have.
// Running runs fail.
func (s *Service) dropCallbacks(ctx context.Context, tx *db.Tx, sc scope.Scope, it Integration) error {
	open, err := openRuns(ctx, tx, it.ID)
	if err != nil {
		return err
	}
	now := db.Stamp(s.Now())
	for _, r := range open {
		if r.TokenHash, r.TokenSealed = "", []byte{}; r.Status == RunRunning {
			r = r.end(RunFailed, "the integration got another host", now)
		}
		if r, err = updateRun(ctx, tx, r); errors.Is(err, db.ErrNoRows) || err == nil && r.EndedAt == nil {
			continue
		}
		if err != nil {
			return err
		}
		if err := audit.Append(ctx, tx, sc, now, it.ended(r)); err != nil {
			return err
		}
	}
	return nil
}

// errNoCallback is the error for a caller without the token of a callback. It does not say whether
// the run exists.
func errNoCallback() error {
	return fault.New(fault.Unauthenticated, "invalid_callback", "there is no such callback, or its token is wrong")
}
