package audit

import (
	"context"
	"encoding/json"
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
	"github.com/gatehouse-dev/gatehouse/internal/spool"
)

// Kept is a tenant's setting for storing the inputs of its decisions for replay. It applies to
// audit level basic: at level none no input is stored, and at detailed and comprehensive the
// input is in the log.
type Kept struct {
	// Off means that no input is stored, and stored ones are removed.
	Off bool
	// For is how long an input is stored.
	For time.Duration
	// Rows and Bytes limit how much is stored. The oldest inputs are removed first.
	Rows, Bytes int64
}

// The defaults for a tenant without a setting.
const (
	KeptFor   = 24 * time.Hour
	KeptRows  = 100_000
	KeptBytes = 256 << 20
)

// inputBurst and inputRate limit how many inputs each process stores for one tenant: a burst, and
// then so many a second. To build and store every input of a busy tenant would cost more than the
// decisions, and retention would remove them again within seconds.
const (
	inputBurst = 20_000
	inputRate  = 500
)

// inputQuotas holds the quota of each tenant. Reading takes no lock.
type inputQuotas struct {
	by atomic.Pointer[map[scope.TenantID]*inputQuota]
	mu sync.Mutex // held while a tenant is added
}

// inputQuota limits the inputs of one tenant.
type inputQuota struct {
	allowance *spool.Allowance
	off       atomic.Bool // Kept.Off as last read from the store
}

func (ks *inputQuotas) of(tenant scope.TenantID) *inputQuota {
	if m := ks.by.Load(); m != nil {
		if k := (*m)[tenant]; k != nil {
			return k
		}
	}
	ks.mu.Lock()
	defer ks.mu.Unlock()
	next := map[scope.TenantID]*inputQuota{}
	if m := ks.by.Load(); m != nil {
		maps.Copy(next, *m)
	}
	if next[tenant] == nil {
		next[tenant] = &inputQuota{allowance: spool.NewAllowance(inputBurst, inputRate)}
	}
	ks.by.Store(&next)
	return next[tenant]
}

// TakeInputQuota reports whether the input of a decision at level basic, made at now, is stored for
// replay; the caller then sets Decision.Input. Each call counts as one decision.
func (l *DecisionLog) TakeInputQuota(tenant scope.TenantID, now time.Time) bool {
	if l.cfg.Kept == nil {
		return false
	}
	k := l.quotas.of(tenant)
	return !k.off.Load() && k.allowance.Take(now)
}

// keepInputs stores the inputs of rows that have one, and removes the oldest beyond the tenant's
// limits. The caller holds DecisionLock.
func (l *DecisionLog) keepInputs(ctx context.Context, tx *db.Tx, tenant scope.TenantID, rows []row) error {
	if l.cfg.Kept == nil {
		return nil
	}
	kept, err := l.cfg.Kept(ctx, tx)
	if err != nil {
		return err
	}
	l.quotas.of(tenant).off.Store(kept.Off)
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

// pruneInputs is how many inputs one transaction removes: more than one transaction adds.
const pruneInputs = 2 * maxBatch

// retainInputs removes inputs that are too old or beyond the limits of the tenant's setting, at
// most pruneChunk in one call. It returns how many it removed.
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

// narrowToInputs limits a recording to the period whose inputs are still stored outside the log.
// It returns false if there are none.
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

// withInputOf adds an input that is stored outside the log to its record.
func withInputOf(record, input string) []byte {
	const member = `,"input":`
	out := make([]byte, 0, len(record)+len(member)+len(input))
	out = append(out, record[:len(record)-1]...)
	out = append(out, member...)
	out = append(out, input...)
	return append(out, '}')
}

// FillInputs sets the Input of decisions that were read from the log without one, if their input
// is stored for replay.
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
	found := map[string]string{}
	err := rd.cluster.Read(ctx, sc.Tenant, func(tx *db.Tx) error {
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
