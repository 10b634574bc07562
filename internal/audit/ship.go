package audit

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/audit/digest"
	"github.com/gatehouse-dev/gatehouse/internal/audit/stats"
	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/fault"
	"github.com/gatehouse-dev/gatehouse/internal/pause"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
	"github.com/gatehouse-dev/gatehouse/internal/spool"
)

// maxBatch is the largest number of records in one transaction.
const maxBatch = 2000

// The backoff between attempts to store a batch, and the number of attempts after which a batch
// with a bad record is split.
const (
	minBackoff  = 50 * time.Millisecond
	maxBackoff  = 2 * time.Second
	maxAttempts = 5
)

// Run ships the records in the spool to the tenants' stores until ctx ends. A batch that is not
// stored completely by then stays in the spool for the next start.
func (l *DecisionLog) Run(ctx context.Context) error {
	l.running.Store(true)
	defer l.running.Store(false)
	l.beginFolding()
	folding, end := context.WithCancel(ctx)
	var folds sync.WaitGroup
	folds.Go(func() { l.foldLoop(folding) })
	defer func() {
		end()
		folds.Wait()
		l.endFolding()
	}()
	for {
		batch, err := l.cfg.Spool.Next(ctx, maxBatch)
		if ctx.Err() != nil || errors.Is(err, spool.ErrClosed) {
			return nil
		}
		if err != nil { // try again: the disk may recover
			l.cfg.Alarm(scope.DefaultTenant, fmt.Errorf("reading the audit spool: %w", err))
			pause.For(ctx, maxBackoff)
			continue
		}
		began := l.cfg.Now()
		if !l.shipAll(ctx, batch.Records) {
			return nil
		}
		err = l.cfg.Spool.Ack(batch)
		if l.dropped { // begin a new file, so that the deleted tenant's records are removed soon
			l.dropped = false
			err = errors.Join(err, l.cfg.Spool.Rotate())
		}
		if err != nil { // the records are shipped again, and the store drops them by their ids
			l.cfg.Alarm(scope.DefaultTenant, fmt.Errorf("acknowledging the audit spool: %w", err))
		}
		l.advance(len(batch.Records))
		l.pace.Wait(ctx, l.cfg.Now().Sub(began), len(batch.Records))
	}
}

// Limits of the shipper, so that it leaves processor time for decisions (see spool.Pace). It rests
// after each batch if decisions come faster than busyRate for each processor, or if storing them
// would take more than maxShare of the processors' time. It does not rest once the backlog has
// deepBacklog records. The cost of a record varies: it is higher when many controls decide, and
// on a processor that others use too.
const (
	busyRate    = 8000 // records a second
	maxShare    = 0.15
	restFactor  = 30
	deepBacklog = 2_000_000 // records
)

// shipAll stores records in the stores of their tenants. It returns false if ctx ends first.
func (l *DecisionLog) shipAll(ctx context.Context, records [][]byte) bool {
	byTenant := map[scope.TenantID][]row{}
	var order []scope.TenantID
	for _, rec := range records {
		tenant, line, input, err := parseRecord(rec)
		var r row
		if err == nil {
			r, err = toRow(line)
			r.input = string(input)
		}
		if err != nil {
			l.setAside(scope.DefaultTenant, unreadable, rec, err)
			continue
		}
		if _, seen := byTenant[tenant]; !seen {
			order = append(order, tenant)
		}
		byTenant[tenant] = append(byTenant[tenant], r)
	}
	for _, tenant := range order {
		if !l.persist(ctx, tenant, byTenant[tenant]) {
			return false
		}
	}
	return true
}

// persist stores rows, and waits as long as necessary for a store that is down. If a working
// store refuses a batch, persist splits it until it finds the bad rows, and sets those aside. It
// returns false if ctx ends first.
func (l *DecisionLog) persist(ctx context.Context, tenant scope.TenantID, rows []row) bool {
	wait := minBackoff
	for try := 1; ; try++ {
		err := l.store(ctx, tenant, rows)
		switch {
		case err == nil:
			l.active.note(tenant, l.cfg.Now())
			return true
		case ctx.Err() != nil:
			return false
		case errors.Is(err, errGone):
			l.cfg.Logger.Warn("decisions of a deleted tenant were dropped", "tenant", tenant, "records", len(rows))
			l.dropped = true
			return true
		}
		l.cfg.Alarm(tenant, err)
		l.cfg.Logger.Error("decisions could not be stored", "tenant", tenant, "records", len(rows), "attempt", try, "error", err)
		if !isStoreFailure(err) && try >= maxAttempts {
			if len(rows) == 1 {
				l.setAside(tenant, string(tenant), []byte(rows[0].Record), err)
				return true
			}
			half := len(rows) / 2
			return l.persist(ctx, tenant, rows[:half]) && l.persist(ctx, tenant, rows[half:])
		}
		if !pause.For(ctx, wait) {
			return false
		}
		wait = min(wait*2, maxBackoff)
	}
}

// isStoreFailure reports whether the store caused the failure, not the records.
func isStoreFailure(err error) bool {
	return fault.Is(err, fault.Unavailable) || fault.Is(err, fault.StorageFull)
}

// unreadable is the name of the file for records whose tenant is not known. It is not a tenant's: no
// id of a tenant has a dot.
const unreadable = ".unreadable"

// setAside stores a record that cannot be stored anywhere else in the file with this name, and raises
// an alarm for the tenant.
func (l *DecisionLog) setAside(tenant scope.TenantID, name string, line []byte, cause error) {
	l.cfg.Logger.Error("a decision record was set aside", "tenant", tenant, "file", name+".jsonl", "error", cause)
	l.cfg.Alarm(tenant, cause)
	l.setAsideLine(name, line)
}

func (l *DecisionLog) setAsideLine(name string, line []byte) {
	err := os.MkdirAll(l.cfg.SetAside, 0o700)
	if err == nil {
		var f *os.File
		if f, err = os.OpenFile(filepath.Join(l.cfg.SetAside, name+".jsonl"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600); err == nil {
			_, err = f.Write(append(append([]byte{}, line...), '\n'))
			err = errors.Join(err, f.Close())
		}
	}
	if err != nil {
		l.cfg.Logger.Error("a record could not be set aside", "error", err)
	}
}

// toRow parses the JSON of a record and fills in the columns.
func toRow(line []byte) (row, error) {
	d, err := decodeDecision(line)
	if err != nil {
		return row{}, err
	}
	if d.DecisionID == "" || len(d.DecisionID) > maxID {
		return row{}, errRecord
	}
	r := row{
		DecisionID: d.DecisionID, At: d.Timestamp.UTC(), Level: d.AuditLevel, Environment: string(d.Environment), Decision: d.Decision,
		UserID: digest.Key(d.User.ID), PolicyID: d.PolicyID, ResourceKey: keyOf(&d), BouncerID: d.BouncerID, IPAddress: digest.Key(d.IPAddress),
		EvaluationUS: int64(d.EvaluationTimeMS * 1000), Record: string(line),
	}
	r.tally = Tally{Logged: 1, Counted: 1, EvaluationUS: r.EvaluationUS}
	if d.AuditLevel == None {
		r.tally.Logged = 0
	}
	if d.CallerID != "" {
		key := digest.Key(d.CallerID)
		r.CallerID = &key
	}
	r.masked, r.agent = d.Effect == "MASK", d.Agent
	if d.CacheHit {
		r.tally.CacheHits = 1
	}
	if d.Error != "" {
		r.tally.Errors = 1
	}
	if d.Folded != nil {
		n := max(d.Folded.Count, 1)
		r.tally.Counted, r.tally.EvaluationUS, r.tally.CacheHits, r.tally.Errors = n, n*r.tally.EvaluationUS, n*r.tally.CacheHits, n*r.tally.Errors
	}
	return r, nil
}

// keyOf returns the value that resource_id filters by: the registered id, else the caller's.
func keyOf(d *Decision) string {
	if d.ResourceID != 0 {
		return strconv.FormatInt(d.ResourceID, 10)
	}
	return digest.Key(d.Resource.ID)
}

// store adds rows to the tenant's log: it skips known ones, chains the others and counts them.
func (l *DecisionLog) store(ctx context.Context, tenant scope.TenantID, rows []row) error {
	store, err := l.cfg.Cluster.Tenant(ctx, tenant)
	if fault.Is(err, fault.NotFound) {
		return errGone
	}
	if err != nil {
		return err
	}
	return store.Write(ctx, func(tx *db.Tx) error {
		if err := tx.Lock(ctx, DecisionLock); err != nil {
			return err
		}
		fresh, err := dropKnown(ctx, tx, rows)
		if err != nil || len(fresh) == 0 {
			return err
		}
		logged, err := l.chainAndInsert(ctx, tx, fresh)
		if err != nil {
			return err
		}
		if err := l.keepInputs(ctx, tx, tenant, logged); err != nil {
			return err
		}
		return l.report(ctx, tx, tenant, fresh)
	})
}

// DecisionLock is the lock that every operation holds that adds rows to a decision chain or
// removes its oldest ones.
const DecisionLock = "audit.decisions"

// dropKnown drops rows that are already in the log, and duplicates within rows.
func dropKnown(ctx context.Context, tx *db.Tx, rows []row) ([]row, error) {
	ids := make([]string, len(rows))
	for i := range rows {
		ids[i] = rows[i].DecisionID
	}
	known, err := knownIDs(ctx, tx, ids)
	if err != nil {
		return nil, err
	}
	fresh := make([]row, 0, len(rows))
	for _, r := range rows {
		if !known[r.DecisionID] {
			known[r.DecisionID] = true
			fresh = append(fresh, r)
		}
	}
	return fresh, nil
}

// chainAndInsert adds rows to their chains and to all counters. It returns the rows that are now in the
// log: all except those at level none.
func (l *DecisionLog) chainAndInsert(ctx context.Context, tx *db.Tx, rows []row) (logged []row, err error) {
	chains, err := loadChains(ctx, tx)
	if err != nil {
		return nil, err
	}
	seq := int64(0)
	for name, c := range chains {
		if name != EventsChain {
			seq = max(seq, c.LastSeq)
		}
	}
	now := l.cfg.Now().UTC().Truncate(time.Microsecond)
	counts, sums := tallies{}, stats.Rollups{}
	series, err := stats.Counted(ctx, tx)
	if err != nil {
		return nil, err
	}
	var seen []row
	touched := map[string]bool{}
	for i := range rows {
		r := &rows[i]
		r.LoggedAt = now
		counts.add(r, r.tally)
		sums.Add(r.decided())
		for _, s := range series {
			if s.Has(r.series()) {
				sums.AddTo(s, r.decided())
			}
		}
		if r.Level == None {
			seen = append(seen, *r)
			continue
		}
		name := DecisionsChain(r.Level)
		c, ok := chains[name]
		if !ok {
			c = newChain(name)
		}
		seq++
		r.Seq, r.Pos = seq, c.LastPos+1
		r.Hash = r.hashAfter(c.Head)
		c.add(r.Seq, r.Hash)
		chains[name], touched[name] = c, true
		logged = append(logged, *r)
	}
	if err := insertRows(ctx, tx, logged); err != nil {
		return nil, err
	}
	if err := insertSeenIDs(ctx, tx, seen); err != nil {
		return nil, err
	}
	if err := addTallies(ctx, tx, counts); err != nil {
		return nil, err
	}
	if err := stats.Store(ctx, tx, sums); err != nil {
		return nil, err
	}
	for name := range touched {
		if err := saveChain(ctx, tx, chains[name]); err != nil {
			return nil, err
		}
	}
	return logged, nil
}

// SetAside stores a line from a bouncer that is not a valid decision in the tenant's file, up to
// a limit: a bouncer must not be able to fill the disk.
func (l *DecisionLog) SetAside(tenant scope.TenantID, bouncer int64, line []byte, why error) {
	name := string(tenant) + ".bouncers"
	if info, err := os.Stat(filepath.Join(l.cfg.SetAside, name+".jsonl")); err == nil && info.Size() > maxInvalidFile {
		return
	}
	l.cfg.Logger.Warn("a bouncer's event was set aside", "tenant", tenant, "bouncer", bouncer, "error", why)
	l.setAsideLine(name, line[:min(len(line), maxDocument)])
}

// Forget removes what this process has on disk of a tenant that is being purged: the records that
// were set aside, and those in the spool. To remove the latter, the spool begins a new file; the
// old one is deleted once its records are shipped. Call Forget again after the tenant's store is
// gone, because the store accepts records until then.
func (l *DecisionLog) Forget(tenant scope.TenantID) error {
	var errs []error
	for _, name := range []string{string(tenant), string(tenant) + ".bouncers"} {
		if err := os.Remove(filepath.Join(l.cfg.SetAside, name+".jsonl")); err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	return errors.Join(append(errs, l.cfg.Spool.Rotate())...)
}

// maxInvalidFile is the size, in bytes, from which on a tenant's file of invalid lines from
// bouncers does not grow.
const maxInvalidFile = 16 << 20
