package pip

import (
	"context"
	"errors"
	"runtime/debug"
	"strconv"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/audit"
	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/fault"
	"github.com/gatehouse-dev/gatehouse/internal/job"
	"github.com/gatehouse-dev/gatehouse/internal/memory"
	"github.com/gatehouse-dev/gatehouse/internal/pip/source"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

// The states of a sync.
const (
	Waiting   = "pending"
	Running   = "in_progress"
	Completed = "completed"
	Failed    = "failed"
)

// The reasons for a sync.
const (
	byHand     = "manual"
	bySchedule = "schedule"
)

const (
	// maxAttempts is how often a sync is started before it fails because each time its server
	// stopped.
	maxAttempts = 3
	// renewAfter is how old the hold on a lane may get before it is extended.
	renewAfter = job.LaneTime / 3
	// settleTime is how long writing the outcome of a sync may take.
	settleTime = 30 * time.Second
)

// Sync is one read of a connection's data.
type Sync struct {
	ID           int64      `json:"id" db:"id" doc:"Identifier: the sync_job_id."`
	ConnectionID int64      `json:"connection_id" db:"connection_id" doc:"Id of the connection."`
	Reason       string     `json:"reason" db:"reason" enum:"manual,schedule" doc:"Who requested it."`
	Status       string     `json:"status" db:"status" enum:"pending,in_progress,completed,failed" doc:"State of the sync."`
	Attempts     int        `json:"attempts" db:"attempts" doc:"How often it was started. It starts again if its server stops."`
	CreatedAt    time.Time  `json:"created_at" db:"created_at" doc:"When it was requested."`
	StartedAt    *time.Time `json:"started_at" db:"started_at" doc:"When it started; null: not yet."`
	FinishedAt   *time.Time `json:"finished_at" db:"finished_at" doc:"When it ended; null: not yet."`
	Records      int64      `json:"records_synced" db:"records" doc:"Number of records in the data after it."`
	Changed      bool       `json:"changed" db:"changed" doc:"Whether the data changed."`
	Error        *string    `json:"error" db:"error" doc:"Why it failed; null if it did not."`
	ResponseCode int        `json:"response_code" db:"response_code" doc:"HTTP status of the failed call; 0: none."`
}

// SyncPage is one page of the syncs of a connection, newest first.
type SyncPage struct {
	Syncs []Sync `json:"syncs" doc:"The page, newest first."`
	Total int64  `json:"total" doc:"How many there are. The last 100 are kept."`
}

// Syncs returns one page of the syncs of a connection, newest first.
func (s *Service) Syncs(ctx context.Context, sc scope.Scope, id, skip, limit int64) (SyncPage, error) {
	var page SyncPage
	err := s.Stores.Read(ctx, sc.Tenant, func(tx *db.Tx) error {
		_, err := load(ctx, tx, id)
		if err != nil {
			return err
		}
		if page.Total, err = countSyncs(ctx, tx, id); err != nil {
			return err
		}
		page.Syncs, err = listSyncs(ctx, tx, id, skip, limit)
		return err
	})
	return page, err
}

// Sync returns one sync of a connection.
func (s *Service) Sync(ctx context.Context, sc scope.Scope, id, sync int64) (Sync, error) {
	var y Sync
	err := s.Stores.Read(ctx, sc.Tenant, func(tx *db.Tx) (err error) {
		if _, err = load(ctx, tx, id); err != nil {
			return err
		}
		if y, err = getSync(ctx, tx, id, sync); errors.Is(err, db.ErrNoRows) {
			err = fault.NotFoundf("no such sync")
		}
		return err
	})
	return y, err
}

// Trigger requests a sync of a connection now. If a sync already waits or runs, Trigger returns it.
func (s *Service) Trigger(ctx context.Context, sc scope.Scope, id int64) (Sync, error) {
	var y Sync
	err := s.Stores.WriteUnder(ctx, sc.Tenant, changes, func(tx *db.Tx) error {
		c, err := load(ctx, tx, id)
		if err != nil {
			return err
		}
		if y, err = openSync(ctx, tx, id); !errors.Is(err, db.ErrNoRows) {
			return err
		}
		now := db.Stamp(s.Now())
		if y, err = insertSync(ctx, tx, Sync{ConnectionID: id, Reason: byHand, Status: Waiting, CreatedAt: now}); err != nil {
			return err
		}
		if err := makeDue(ctx, tx, id, now); err != nil {
			return err
		}
		return s.record(ctx, tx, sc, c, "PIP_SYNC_REQUESTED", map[string]any{"sync_job_id": y.ID})
	})
	return y, err
}

// isRequested reports whether a person requested a sync of the connection that has not ended.
func isRequested(ctx context.Context, tx *db.Tx, id int64) (bool, error) {
	y, err := openSync(ctx, tx, id)
	if errors.Is(err, db.ErrNoRows) {
		return false, nil
	}
	return err == nil && y.Reason == byHand, err
}

// Syncer syncs the connections that are due, for all tenants. Each replica has one.
type Syncer struct {
	*Service
	// Holder names this process. It is unique among the processes.
	Holder string
	// Active reports whether a tenant's sources are synced.
	Active func(ctx context.Context, tenant scope.TenantID) (bool, error)
	// Poll is how often all tenants are checked, in case a notification was missed.
	Poll time.Duration
	// Ages receives how old the data is; nil: it is not collected.
	Ages *Ages

	large *memory.Pool
}

// largeFetch is about how much memory a large fetch takes, in bytes. largeOfTenant and largeAtOnce
// bound how many run at once in a process, of one tenant and of all. Small fetches do not wait.
const (
	largeFetch    = 70 << 20
	largeOfTenant = 2
	largeAtOnce   = 8
)

// Run syncs until ctx ends, and returns once all syncs have stopped.
func (s *Syncer) Run(ctx context.Context) error {
	s.large = memory.New(largeAtOnce*largeFetch, largeOfTenant*largeFetch, source.CallTime)
	l := &job.Lanes{
		Cluster: s.Stores, Topic: Topic, Holder: s.Holder, Active: s.Active, Now: s.Now, Poll: s.Poll, Logger: s.Logger,
		List: laneStates, Turn: s.runLane,
	}
	if s.Ages != nil {
		l.OnCheck = s.Ages.refresh
	}
	return l.Run(ctx)
}

// runLane takes the lane of a connection, and syncs it if it is due. It returns when to look again;
// zero: at once.
func (s *Syncer) runLane(ctx context.Context, key job.LaneKey, renew func()) (time.Time, error) {
	c, y, err := s.begin(ctx, key)
	switch {
	case err != nil:
		return time.Time{}, err
	case y.ID == 0: // not due, or another replica holds the lane: look again soon
		return s.Now().Add(time.Second), nil
	}
	var out outcome
	if y.Attempts > maxAttempts {
		out.err = &source.Failure{Message: "the server stopped during every attempt"}
	} else {
		out = s.fetch(ctx, key, c, renew)
	}
	if out.leave != nil {
		defer out.leave()
	}
	return time.Time{}, s.end(ctx, key, c, y, out)
}

// begin takes the lane and returns the sync to do: a requested one, one whose server stopped,
// or a new one. The sync has no ID if another replica holds the lane, or nothing is due.
func (s *Syncer) begin(ctx context.Context, key job.LaneKey) (c Connection, y Sync, err error) {
	err = s.Stores.Write(ctx, key.Tenant, func(tx *db.Tx) error {
		y = Sync{}
		now := db.Stamp(s.Now())
		ours, err := job.AcquireLane(ctx, tx, lanes, key.Lane, s.Holder, now)
		if err != nil || !ours {
			return err
		}
		if c, err = load(ctx, tx, key.Lane); err != nil {
			return err
		}
		if c.NextSync == nil || c.NextSync.After(now) {
			return job.ReleaseLane(ctx, tx, lanes, key.Lane, s.Holder)
		}
		if y, err = openSync(ctx, tx, key.Lane); errors.Is(err, db.ErrNoRows) {
			y, err = insertSync(ctx, tx, Sync{ConnectionID: key.Lane, Reason: bySchedule, Status: Waiting, CreatedAt: now})
		}
		if err != nil {
			return err
		}
		y.Status, y.StartedAt, y.Attempts = Running, &now, y.Attempts+1
		return updateSync(ctx, tx, y)
	})
	return c, y, err
}

// outcome is how a fetch ended.
type outcome struct {
	source.Result
	text []byte
	sum  string
	err  error
	// leave ends the turn of a large fetch. It is called once the data is stored; nil: the fetch
	// was not large.
	leave func()
}

var errLost = errors.New("pip: another replica syncs this connection now")

// fetch reads the source. It runs outside any transaction, because it can take minutes.
func (s *Syncer) fetch(ctx context.Context, key job.LaneKey, c Connection, renew func()) (out outcome) {
	defer func() {
		if p := recover(); p != nil {
			s.Panics.Caught(ctx, "data source", p, debug.Stack(), "tenant", key.Tenant, "connection", key.Lane)
			out.err = &source.Failure{Message: "gatehouse failed to read the answer"}
		}
	}()
	secrets, err := s.open(key.Tenant, c)
	if err != nil {
		s.Logger.WarnContext(ctx, "data sources: stored credentials cannot be decrypted", "tenant", key.Tenant, "connection", key.Lane, "error", err)
		return outcome{err: &source.Failure{Message: "the stored credentials cannot be decrypted: send them again"}}
	}
	last, previous, err := s.previous(ctx, key.Tenant, key.Lane)
	if err != nil {
		return outcome{err: err}
	}
	held := s.Now()
	alive := func(ctx context.Context) error {
		renew()
		if s.Now().Sub(held) < renewAfter {
			return nil
		}
		held = s.Now()
		return s.Stores.Write(ctx, key.Tenant, func(tx *db.Tx) error {
			ours, err := job.AcquireLane(ctx, tx, lanes, key.Lane, s.Holder, held)
			if err == nil && !ours {
				err = errLost
			}
			return err
		})
	}
	large := func(ctx context.Context) error {
		leave, err := s.large.Take(ctx, string(key.Tenant), largeFetch, false)
		if err != nil { // no memory in time, also where the call has less time than the pool gives
			return source.ErrBusy
		}
		out.leave = leave
		return nil
	}
	f := &source.Fetcher{Target: s.Target, Now: s.Now, Repository: s.repositoryOf(key.Tenant)}
	out.Result, out.err = f.Fetch(ctx, source.Order{Provider: c.Provider, Config: c.Configuration, Credentials: secrets, State: last.State, Previous: previous, Alive: alive, Large: large})
	if out.err == nil && !out.Unchanged {
		if out.text, out.sum = document(out.Data); out.sum == last.Sum {
			out.Unchanged = true
		}
	}
	return out
}

// end records how a sync ended. An interrupted sync, or one during which the connection was
// changed, waits to be started again.
func (s *Syncer) end(ctx context.Context, key job.LaneKey, c Connection, y Sync, out outcome) error {
	failure, failed := errors.AsType[*source.Failure](out.err)
	interrupted := out.err != nil && !failed
	limit := settleTime
	if ctx.Err() != nil {
		limit = 10 * time.Second
	}
	bounded, stop := context.WithTimeout(context.WithoutCancel(ctx), limit)
	defer stop()
	err := s.Stores.Write(bounded, key.Tenant, func(tx *db.Tx) error {
		ours, err := job.AcquireLane(bounded, tx, lanes, key.Lane, s.Holder, s.Now())
		if err != nil || !ours {
			return err
		}
		now, err := load(bounded, tx, key.Lane)
		if err != nil {
			return err
		}
		if interrupted || now.ChangeNo != c.ChangeNo {
			// Discard what was read. The attempt does not count.
			y.Status, y.Attempts, y.StartedAt = Waiting, y.Attempts-1, nil
			if err := updateSync(bounded, tx, y); err != nil {
				return err
			}
			return job.ReleaseLane(bounded, tx, lanes, key.Lane, s.Holder)
		}
		return s.finishSync(bounded, tx, key, now, y, out, failure)
	})
	if err == nil && interrupted && ctx.Err() == nil {
		err = out.err // the store failed, the lane was lost, or too many large fetches ran: retry later
	}
	return err
}

// finishSync stores the outcome and the data of a sync, and writes its audit entry.
func (s *Syncer) finishSync(ctx context.Context, tx *db.Tx, key job.LaneKey, c Connection, y Sync, out outcome, failure *source.Failure) error {
	at := db.Stamp(s.Now())
	was := c
	if failure == nil {
		var err error
		if failure, err = s.storeData(ctx, tx, &c, out, at); err != nil {
			return err
		}
	}
	c.LastAttempt = &at
	y.Status, y.FinishedAt, y.Records, y.Changed = Completed, &at, c.RecordsSynced, !out.Unchanged && failure == nil
	if failure != nil {
		c.LastError, c.Failures = &failure.Message, c.Failures+1
		y.Status, y.Error, y.ResponseCode = Failed, &failure.Message, failure.Status
	}
	c.NextSync = c.next(at)
	if err := updateSync(ctx, tx, y); err != nil {
		return err
	}
	if ours, err := saveOutcome(ctx, tx, c, s.Holder); err != nil || !ours {
		return errors.Join(err, errLost)
	}
	// Controls see how fresh the data is, too: a success, and the first failure after it, changes
	// data.pip.
	if failure == nil || was.LastError == nil && c.LastSync != nil {
		if err := noteChange(ctx, tx, c.Name); err != nil {
			return err
		}
	}
	return s.report(ctx, tx, key.Tenant, was, c, y)
}

// storeData stores what was read. It returns a Failure if the data of the tenant would exceed
// maxData.
func (s *Syncer) storeData(ctx context.Context, tx *db.Tx, c *Connection, out outcome, at time.Time) (*source.Failure, error) {
	if out.Unchanged {
		if err := putState(ctx, tx, c.ID, out.State); err != nil {
			return nil, err
		}
	} else {
		others, err := dataOfOthers(ctx, tx, c.ID)
		if err != nil {
			return nil, err
		}
		if others+int64(len(out.text)) > maxData {
			return &source.Failure{Message: "the data of all data sources together would be larger than 32 MiB"}, nil
		}
		if err := putData(ctx, tx, c.ID, stored{Data: out.text, Sum: out.sum, State: out.State}); err != nil {
			return nil, err
		}
		c.RecordsSynced, c.DataBytes = int64(out.Records), int64(len(out.text))
	}
	c.LastSync, c.LastError, c.Failures = &at, nil, 0
	return nil, nil
}

// next returns when the connection is synced again after a sync that ended at a time; nil: only on
// request. After failures it waits 1, 2, 4 … up to 64 minutes, but never longer than the schedule.
func (c Connection) next(at time.Time) *time.Time {
	if !c.scheduled() {
		return nil
	}
	pause := interval(c.SyncFrequency)
	if c.Failures > 0 {
		pause = min(pause, time.Minute<<min(c.Failures-1, 6))
	}
	next := at.Add(pause)
	return &next
}

// report writes the audit entry of a sync that a person requested, of the first sync, and of one
// that changed whether the connection fails. Other scheduled syncs are in the list of syncs only.
func (s *Syncer) report(ctx context.Context, tx *db.Tx, tenant scope.TenantID, was, c Connection, y Sync) error {
	kind := "PIP_SYNC_COMPLETED"
	switch {
	case y.Status == Failed:
		kind = "PIP_SYNC_FAILED"
	case was.LastError != nil:
		kind = "PIP_SYNC_RECOVERED"
	}
	if y.Reason != byHand && (was.LastError != nil) == (c.LastError != nil) && was.LastAttempt != nil {
		return nil
	}
	sc := scope.Scope{Tenant: tenant, Actor: scope.Actor{Kind: scope.System, ID: "data sources", Name: "data sources"}}
	entry := audit.Entry{Type: kind, Object: "pip_connection", ObjectID: strconv.FormatInt(c.ID, 10), ObjectName: c.Name}
	entry.EventContext = map[string]any{"sync_job_id": y.ID, "records_synced": y.Records, "changed": y.Changed, "error": y.Error, "response_code": y.ResponseCode}
	return audit.Append(ctx, tx, sc, s.Now(), entry)
}
