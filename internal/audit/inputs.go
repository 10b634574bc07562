package audit

import (
	"context"
	"encoding/json"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
	"github.com/gatehouse-dev/gatehouse/internal/spool"
)

// Kept is what a tenant keeps of its decisions' inputs for replay. Decisions at
// audit level none keep nothing; those from detailed up have their input in the log.
type Kept struct {
	// Off keeps nothing, and removes what there is.
	Off bool
	// For is how long an input is kept.
	For time.Duration
	// Rows and Bytes are how much is kept at most; the oldest go first.
	Rows, Bytes int64
}

// What is kept where a tenant sets nothing.
const (
	KeptFor   = 24 * time.Hour
	KeptRows  = 100_000
	KeptBytes = 256 << 20
)

// Of a tenant whose decisions come faster, not every input is kept: to make and
// store all of them would cost more than a decision does, and they would be gone
// within seconds. A burst is kept whole, then so many a second and process.
const (
	inputBurst = 20_000
	inputRate  = 500
)

// keepers knows by tenant whose inputs are kept now. Reading takes no lock.
type keepers struct {
	by atomic.Pointer[map[scope.TenantID]*keeper]
	mu sync.Mutex // held by who adds one
}

type keeper struct {
	allowance *spool.Allowance
	off       atomic.Bool // as the store said last
}

func (ks *keepers) of(tenant scope.TenantID) *keeper {
	if m := ks.by.Load(); m != nil {
		if k := (*m)[tenant]; k != nil {
			return k
		}
	}
	ks.mu.Lock()
	defer ks.mu.Unlock()
	next := map[scope.TenantID]*keeper{}
	if m := ks.by.Load(); m != nil {
		for t, k := range *m {
			next[t] = k
		}
	}
	if next[tenant] == nil {
		next[tenant] = &keeper{allowance: spool.NewAllowance(inputBurst, inputRate)}
	}
	ks.by.Store(&next)
	return next[tenant]
}

// KeepsInput reports whether the input of a decision at level basic, made at now,
// is kept for replay; it is then recorded in Decision.Input. Each call counts as
// one decision.
func (l *DecisionLog) KeepsInput(tenant scope.TenantID, now time.Time) bool {
	if l.cfg.Kept == nil {
		return false
	}
	k := l.keepers.of(tenant)
	return !k.off.Load() && k.allowance.Take(now)
}

// keepInputs stores the inputs of rows that have one, and removes the oldest
// beyond the tenant's bounds. The caller holds decisionLock.
func (l *DecisionLog) keepInputs(ctx context.Context, tx *db.Tx, tenant scope.TenantID, rows []row) error {
	if l.cfg.Kept == nil {
		return nil
	}
	kept, err := l.cfg.Kept(ctx, tx)
	if err != nil {
		return err
	}
	l.keepers.of(tenant).off.Store(kept.Off)
	with := rows[:0:0]
	for i := range rows {
		if rows[i].input != "" && !kept.Off {
			with = append(with, rows[i])
		}
	}
	if len(with) == 0 {
		return nil
	}
	end, err := inputsEnd(ctx, tx)
	if err != nil {
		return err
	}
	if end, err = insertInputs(ctx, tx, end, with); err != nil {
		return err
	}
	_, err = deleteInputs(ctx, tx, end.Pos-kept.Rows, end.Total-kept.Bytes, pruneInputs)
	return err
}

// pruneInputs is how many inputs one transaction removes: more than one adds.
const pruneInputs = 2 * most

// retainInputs removes a part of what is older than the tenant keeps inputs, and
// of what is beyond its bounds. It gives how many it removed.
func (l *DecisionLog) retainInputs(ctx context.Context, tx *db.Tx, now time.Time) (int64, error) {
	if l.cfg.Kept == nil {
		return 0, nil
	}
	kept, err := l.cfg.Kept(ctx, tx)
	if err != nil {
		return 0, err
	}
	end, err := inputsEnd(ctx, tx)
	if err != nil || end.Pos == 0 {
		return 0, err
	}
	if kept.Off {
		return deleteInputs(ctx, tx, end.Pos, 0, pruneChunk)
	}
	n, err := deleteInputsBefore(ctx, tx, now.Add(-kept.For), pruneChunk)
	if err != nil || n > 0 {
		return n, err
	}
	return deleteInputs(ctx, tx, end.Pos-kept.Rows, end.Total-kept.Bytes, pruneChunk)
}

// narrowToInputs narrows a recording to what is still kept of inputs beside the log; false:
// nothing is.
func (rd *Reader) narrowToInputs(ctx context.Context, tx *db.Tx, r Recording) (Recording, bool, error) {
	if rd.kept == nil {
		return r, false, nil
	}
	kept, err := rd.kept(ctx, tx)
	if err != nil || kept.Off {
		return r, false, err
	}
	if from := rd.now().Add(-kept.For); r.From.Before(from) {
		r.From = from
	}
	return r, r.From.Before(r.To), nil
}

// withInputOf puts an input that was kept beside the log into a record of it.
func withInputOf(record, input string) []byte {
	const member = `,"input":`
	out := make([]byte, 0, len(record)+len(member)+len(input))
	out = append(out, record[:len(record)-1]...)
	out = append(out, member...)
	out = append(out, input...)
	return append(out, '}')
}

// FillInputs gives decisions that were read from the log, without an input there, the
// inputs that are kept for replay beside it.
func (rd *Reader) FillInputs(ctx context.Context, sc scope.Scope, ds []Decision) error {
	var ids []string
	for i := range ds {
		if len(ds[i].Input) == 0 {
			ids = append(ids, ds[i].DecisionID)
		}
	}
	if len(ids) == 0 || rd.kept == nil {
		return nil
	}
	store, err := rd.cluster.Tenant(ctx, sc.Tenant)
	if err != nil {
		return err
	}
	found := map[string]string{}
	err = store.Read(ctx, func(tx *db.Tx) error {
		r, ok, err := rd.narrowToInputs(ctx, tx, Recording{To: rd.now().Add(day)})
		if err == nil && ok {
			err = inputsByID(ctx, tx, ids, r.From, found)
		}
		return err
	})
	for i := range ds {
		if in := found[ds[i].DecisionID]; in != "" {
			ds[i].Input = json.RawMessage(in)
		}
	}
	return err
}
