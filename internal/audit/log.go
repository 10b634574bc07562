package audit

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/audit/stats"
	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/fault"
	"github.com/gatehouse-dev/gatehouse/internal/fold"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
	"github.com/gatehouse-dev/gatehouse/internal/spool"
	"github.com/gatehouse-dev/gatehouse/internal/truncate"
)

// Config is what a DecisionLog needs. All but Alarm must be set; tests without decisions may
// leave out Spool and SetAside.
type Config struct {
	Cluster *db.Cluster
	// Spool belongs to this process; no other one writes to it or reads from it.
	Spool *spool.Log
	// SetAside is a directory for records that the store does not accept after several attempts.
	// Each tenant has one file, with one record a line.
	SetAside string
	Now      func() time.Time
	Logger   *slog.Logger
	// Kept reads a tenant's setting for inputs for replay from its store. If it is nil, no inputs
	// are stored.
	Kept func(ctx context.Context, tx *db.Tx) (Kept, error)
	// Fold sets when refusals are folded while Run runs. If it is nil, none are folded.
	Fold *fold.Limits
	// BestEffort lets decisions continue while the log cannot be written; WriteMissing later
	// logs how many are missing. Without it, such decisions are refused.
	BestEffort bool
	// Marks stores the number of missing decisions on disk until the log contains it. If it is
	// nil, the number is lost when the process is killed. Left holds the marks of earlier
	// processes.
	Marks *spool.Marks
	Left  map[int][]byte
	// Stored receives the newly stored decisions that a control made or that an AI agent asked
	// for, at every audit level, in the transaction that stores them. An error rolls the
	// transaction back, and Stored receives them again later. It may be nil.
	Stored func(ctx context.Context, tx *db.Tx, tenant scope.TenantID, fresh []NewDecision) error
	// Alarm is called when a tenant's records cannot be recorded or stored: the built-in alert
	// "audit pipeline error". It must return at once, and is called again at each attempt.
	Alarm func(tenant scope.TenantID, err error)
}

// DecisionLog records decisions and ships them to the tenants' stores; its Reader answers
// queries about them. It is safe for concurrent use. Records reach the store while Run runs.
type DecisionLog struct {
	*Reader
	cfg  Config
	bufs sync.Pool
	pace *spool.Pace // nil without a spool

	appended atomic.Int64 // records added to the spool by this process, and those found there at its start
	running  atomic.Bool
	dropped  bool // the batch had records of a deleted tenant; used only by Run

	quotas  inputQuotas
	missing missing
	folders folders
	active  activity

	mu      sync.Mutex
	shipped int64
	moved   chan struct{} // closed and renewed with every change of shipped
}

// NewDecisionLog makes the log. The spool may still contain records of an earlier process; Run
// ships them first.
func NewDecisionLog(cfg Config) *DecisionLog {
	if cfg.Alarm == nil {
		cfg.Alarm = func(scope.TenantID, error) {}
	}
	l := &DecisionLog{cfg: cfg, moved: make(chan struct{}), folders: folders{limits: cfg.Fold}}
	l.Reader = &Reader{Reader: &stats.Reader{Cluster: cfg.Cluster}, cluster: cfg.Cluster, now: cfg.Now, kept: cfg.Kept, waitShipped: l.WaitShipped}
	l.bufs.New = func() any { b := make([]byte, 0, 2048); return &b }
	if cfg.Spool != nil {
		l.appended.Store(cfg.Spool.Depth())
		procs := float64(runtime.GOMAXPROCS(0))
		l.pace = spool.NewPace(cfg.Spool, cfg.Now, busyRate*procs, restFactor, deepBacklog)
		l.pace.Share = maxShare * procs
	}
	l.loadMissing(cfg.Left)
	return l
}

// Limits of one record.
const (
	maxDocument = 256 << 10 // input and trace each, in bytes
	maxText     = 4 << 10   // reason, path, error ... each, in bytes
	maxID       = 200
)

// Record stores one decision of the tenant. When it returns, the decision survives a crash of
// this process, unless it is a refusal that is folded: that is counted in memory for a few
// seconds. Members that the level does not store are dropped, and secrets are redacted. If the
// spool cannot accept it, the fault is Unavailable, and the caller must not answer as if it had
// been recorded; with Config.BestEffort it is counted as missing instead.
func (l *DecisionLog) Record(tenant scope.TenantID, d *Decision) error {
	err := l.record(tenant, d, false)
	if fault.Is(err, fault.Unavailable) {
		return l.handleUnlogged(tenant, []Decision{{Decision: d.Decision, Environment: d.Environment}}, err)
	}
	return err
}

// record is Record without BestEffort. resent says that the sender may send the decision again.
func (l *DecisionLog) record(tenant scope.TenantID, d *Decision, resent bool) error {
	if d.DecisionID == "" {
		return fault.New(fault.Internal, "internal_error", "a decision without an id")
	}
	if l.missing.open.Load() > 0 {
		_ = l.WriteMissing() // if this fails, storing the record fails too and returns the error
	}
	switch l.fold(tenant, d, resent) {
	case fold.Folded:
		return nil
	case fold.Brief:
		short := d.brief()
		d = &short
	}
	buf := l.bufs.Get().(*[]byte)
	*buf = l.encode((*buf)[:0], tenant, d)
	err := l.spool(d.Decision == Permit, *buf)
	if err != nil {
		l.cfg.Alarm(tenant, err)
	}
	if cap(*buf) <= maxKeptBuffer {
		l.bufs.Put(buf)
	}
	return err
}

// maxKeptBuffer is the largest buffer that is reused for the next record: the size of a bulk
// call of a few hundred decisions.
const maxKeptBuffer = 256 << 10

// RecordAll is Record for decisions that are answered together: either all are stored, or the
// call fails. Refusals are folded only after the others are stored: the caller of a call that
// failed decides again.
func (l *DecisionLog) RecordAll(tenant scope.TenantID, ds []Decision) error {
	buf := l.bufs.Get().(*[]byte)
	text := (*buf)[:0]
	ends := make([]int, 0, len(ds))
	var folded []offer
	now := l.cfg.Now()
	for i := range ds {
		if ds[i].DecisionID == "" {
			return fault.New(fault.Internal, "internal_error", "a decision without an id")
		}
		o := l.folders.offer(tenant, &ds[i], false, now)
		switch o.admit(now) {
		case fold.Folded:
			folded = append(folded, o)
			continue
		case fold.Brief:
			short := ds[i].brief()
			text = l.encode(text, tenant, &short)
		default:
			text = l.encode(text, tenant, &ds[i])
		}
		ends = append(ends, len(text))
	}
	if l.missing.open.Load() > 0 {
		_ = l.WriteMissing() // if this fails, storing the records fails too and returns the error
	}
	recs := make([][]byte, len(ends))
	start := 0
	for i, end := range ends {
		recs[i] = text[start:end:end]
		start = end
	}
	err := l.spool(slices.ContainsFunc(ds, func(d Decision) bool { return d.Decision == Permit }), recs...)
	if *buf = text; cap(text) <= maxKeptBuffer {
		l.bufs.Put(buf)
	}
	if err == nil {
		l.folders.count(now, folded)
		return nil
	}
	l.cfg.Alarm(tenant, err)
	return l.handleUnlogged(tenant, ds, err)
}

// encode appends a decision as a spool record, without the secrets of its input.
func (l *DecisionLog) encode(dst []byte, tenant scope.TenantID, d *Decision) []byte {
	rec := *d
	if len(rec.Hidden) > 0 {
		rec.Reason, rec.Error = rec.Hidden.Text(rec.Reason), rec.Hidden.Text(rec.Error)
	}
	l.normalise(&rec)
	return appendRecord(dst, tenant, &rec)
}

// spool writes records to the spool. Without must, it leaves some room free in the spool for
// records with must: denials must not take the room of permits.
func (l *DecisionLog) spool(must bool, recs ...[]byte) error {
	if len(recs) == 0 {
		return nil
	}
	put := l.cfg.Spool.AppendIfRoom
	if must {
		put = l.cfg.Spool.Append
	}
	if err := put(recs...); err != nil {
		return unavailable(err)
	}
	l.appended.Add(int64(len(recs)))
	return nil
}

// Ingest stores decisions of a bouncer for the tenant. When it returns, all are as safe as after
// Record. Each is counted once, however often the bouncer sends it. Ingest skips decisions
// without an id or with one that is too long, and returns their indexes.
func (l *DecisionLog) Ingest(ctx context.Context, tenant scope.TenantID, ds []Decision) (refused []int, err error) {
	for i := range ds {
		if err := ctx.Err(); err != nil {
			return refused, err
		}
		if len(ds[i].Input) > 0 && LevelOf(string(ds[i].AuditLevel)) == Basic && !l.TakeInputQuota(tenant, l.cfg.Now()) {
			ds[i].Input = nil
		}
		if id := ds[i].DecisionID; id == "" || len(id) > maxID {
			refused = append(refused, i)
			continue
		}
		if err := l.record(tenant, &ds[i], true); err != nil { // the bouncer still has it and sends it again
			return refused, err
		}
	}
	return refused, nil
}

// normalise sets defaults, removes what the log does not store at the decision's level, and
// shortens what is too long.
func (l *DecisionLog) normalise(d *Decision) {
	if d.Timestamp.IsZero() {
		d.Timestamp = l.cfg.Now()
	}
	if !d.Environment.Valid() {
		d.Environment = scope.Production
	}
	if d.Decision != Permit {
		d.Decision = Deny
	}
	if d.AuditLevel != None {
		d.AuditLevel = LevelOf(string(d.AuditLevel))
	}
	d.Agent = d.Agent.Bounded()
	switch d.AuditLevel {
	case None:
		failure := ""
		if d.Error != "" {
			failure = "error"
		}
		*d = Decision{
			DecisionID: d.DecisionID, Timestamp: d.Timestamp, Decision: d.Decision, Effect: d.Effect, PolicyID: d.PolicyID, EvaluationTimeMS: d.EvaluationTimeMS,
			Environment: d.Environment, ResourceID: d.ResourceID, CacheHit: d.CacheHit, AuditLevel: None, Error: failure,
			Folded: d.Folded, Agent: d.Agent,
		}
	case Basic:
		if len(d.Input) <= maxDocument {
			d.Replay = d.Input
		}
		d.Input, d.Trace, d.Explanation = nil, nil, nil
	case Detailed:
		d.Trace = nil
	}
	d.Input, d.Trace, d.Explanation = bounded(d.Input), bounded(d.Trace), bounded(d.Explanation)
	for _, s := range []*string{
		&d.User.ID, &d.User.Email, &d.Resource.ID, &d.Resource.Type, &d.Resource.Path, &d.Action, &d.Effect,
		&d.Reason, &d.IPAddress, &d.RequestID, &d.CallerID, &d.Mode, &d.Error,
	} {
		*s = clip(*s)
	}
}

// clip cuts a text that is too long for the log.
func clip(s string) string {
	return truncate.Text(s, maxText, "…")
}

// bounded replaces a document that is too large with a note with its size.
func bounded(doc json.RawMessage) json.RawMessage {
	if len(doc) <= maxDocument {
		return doc
	}
	return json.RawMessage(`{"truncated":true,"bytes":` + strconv.Itoa(len(doc)) + `}`)
}

// Pending returns how many records in the spool are not shipped yet.
func (l *DecisionLog) Pending() int64 { return l.cfg.Spool.Depth() }

// Limits of WaitShipped: how long it waits, and the backlog beyond which it does not wait,
// because so many records would not be stored in time.
const (
	maxShipWait    = 500 * time.Millisecond
	maxShipBacklog = 5000 // records
)

// WaitShipped waits, for at most half a second, until everything that this process has recorded
// so far is in the store. It returns at once if Run does not run or the backlog is too long.
func (l *DecisionLog) WaitShipped(ctx context.Context) {
	if !l.running.Load() {
		return
	}
	target := l.appended.Load()
	timer := time.NewTimer(maxShipWait)
	defer timer.Stop()
	for {
		l.mu.Lock()
		shipped, moved := l.shipped, l.moved
		l.mu.Unlock()
		if shipped >= target || target-shipped > maxShipBacklog {
			return
		}
		l.pace.Wake()
		select {
		case <-moved:
		case <-timer.C:
			return
		case <-ctx.Done():
			return
		}
	}
}

func (l *DecisionLog) advance(n int) {
	l.mu.Lock()
	l.shipped += int64(n)
	close(l.moved)
	l.moved = make(chan struct{})
	l.mu.Unlock()
}

// errGone means that the tenant of the records no longer exists.
var errGone = errors.New("the tenant does not exist")
