package audit

import (
	"context"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/audit/stats"
	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

// pruneChunk is how many rows one transaction removes. prunePause is the pause before the next
// one, so that writers are not delayed.
const (
	pruneChunk = 100
	prunePause = 10 * time.Millisecond
)

// Retain removes everything in the tenant's logs that is past its retention: decisions by audit
// level, administrative entries after the longest period, inputs, roll-ups, and counters without
// rows. It returns the number of log rows removed. Several replicas may run it at once.
func (l *DecisionLog) Retain(ctx context.Context, tenant scope.TenantID) (int64, error) {
	store, err := l.cfg.Cluster.Tenant(ctx, tenant)
	if err != nil {
		return 0, err
	}
	now := l.cfg.Now().UTC()
	var removed int64
	steps := []func(tx *db.Tx) (int64, error){
		func(tx *db.Tx) (int64, error) { return pruneEvents(ctx, tx, now.Add(-Comprehensive.Keep())) },
	}
	for _, level := range []Level{Basic, Detailed, Comprehensive} {
		steps = append(steps, func(tx *db.Tx) (int64, error) { return pruneLevel(ctx, tx, level, now.Add(-level.Keep())) })
	}
	for _, step := range steps {
		n, err := drain(ctx, store, step)
		removed += n
		if err != nil {
			return removed, err
		}
	}
	for _, step := range []func(tx *db.Tx) (int64, error){
		func(tx *db.Tx) (int64, error) { return l.retainInputs(ctx, tx, now) },
		func(tx *db.Tx) (int64, error) { return deleteSeen(ctx, tx, now.Add(-day), pruneChunk) },
		func(tx *db.Tx) (int64, error) { return stats.Prune(ctx, tx, now, pruneChunk) },
		func(tx *db.Tx) (int64, error) {
			return deleteUnloggedCounts(ctx, tx, now.Add(-None.Keep()), pruneChunk)
		},
	} {
		if _, err := drain(ctx, store, step); err != nil {
			return removed, err
		}
	}
	return removed, nil
}

// RunRetention calls Retain for every tenant, once at the start and then at this interval, until
// ctx ends.
func (l *DecisionLog) RunRetention(ctx context.Context, every time.Duration) error {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		tenants, err := l.cfg.Cluster.Tenants(ctx)
		if err != nil && ctx.Err() == nil {
			l.cfg.Logger.Error("retention could not list the tenants", "error", err)
		}
		for _, t := range tenants {
			if n, err := l.Retain(ctx, t); err != nil && ctx.Err() == nil {
				l.cfg.Logger.Error("retention failed", "tenant", t, "error", err)
			} else if n > 0 {
				l.cfg.Logger.Info("retention removed audit rows", "tenant", t, "rows", n)
			}
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
	}
}

// drain runs step in separate transactions until it removes nothing more. It returns how many
// rows were removed.
func drain(ctx context.Context, store *db.DB, step func(tx *db.Tx) (int64, error)) (int64, error) {
	var total int64
	pause := time.NewTimer(0)
	defer pause.Stop()
	for {
		select {
		case <-pause.C:
		case <-ctx.Done():
			return total, ctx.Err()
		}
		var n int64
		err := store.Write(ctx, func(tx *db.Tx) (err error) {
			n, err = step(tx)
			return err
		})
		total += n
		if err != nil || n == 0 {
			return total, err
		}
		pause.Reset(prunePause)
	}
}

func pruneLevel(ctx context.Context, tx *db.Tx, level Level, cutoff time.Time) (int64, error) {
	if err := tx.Lock(ctx, DecisionLock); err != nil {
		return 0, err
	}
	c, err := loadChain(ctx, tx, DecisionsChain(level))
	if err != nil || c.LastPos < c.FirstPos {
		return 0, err
	}
	rows, err := oldestOf(ctx, tx, c, level, cutoff, pruneChunk)
	if err != nil {
		return 0, err
	}
	// Stop at the first gap: if a clock went back or somebody deleted a row, Verify must still
	// show it.
	counts := tallies{}
	first := c.FirstSeq
	n := 0
	for ; n < len(rows) && rows[n].Pos == c.FirstPos; n++ {
		counts.add(&rows[n], Tally{Logged: -1})
		c.FirstPos, c.FirstSeq, c.Base = rows[n].Pos+1, rows[n].Seq+1, rows[n].Hash
	}
	if n == 0 {
		return 0, nil
	}
	removed, err := deleteDecisions(ctx, tx, level, first, rows[n-1].Seq)
	if err != nil {
		return 0, err
	}
	if err := addTallies(ctx, tx, counts); err != nil {
		return 0, err
	}
	return removed, saveChain(ctx, tx, c)
}

func pruneEvents(ctx context.Context, tx *db.Tx, cutoff time.Time) (int64, error) {
	if err := tx.Lock(ctx, Lock); err != nil {
		return 0, err
	}
	c, err := loadChain(ctx, tx, EventsChain)
	if err != nil || c.LastPos < c.FirstPos {
		return 0, err
	}
	rows, err := oldestEvents(ctx, tx, c, cutoff, pruneChunk)
	if err != nil {
		return 0, err
	}
	first := c.FirstSeq
	n := 0
	for ; n < len(rows) && rows[n].Seq == c.FirstPos; n++ {
		c.FirstPos, c.FirstSeq, c.Base = rows[n].Seq+1, rows[n].Seq+1, rows[n].Hash
	}
	if n == 0 {
		return 0, nil
	}
	removed, err := deleteEvents(ctx, tx, first, rows[n-1].Seq)
	if err != nil {
		return 0, err
	}
	return removed, saveChain(ctx, tx, c)
}
