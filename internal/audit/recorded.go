package audit

import (
	"context"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/fault"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

// Recording is a stretch of one environment's log whose decisions are wanted
// with their inputs: those at the levels detailed and comprehensive.
type Recording struct {
	Env scope.Env
	// From and To bound the time of the decision: From inclusive, To not.
	From, To time.Time
}

// Lines is a page of records, newest first, each as the log keeps it: one JSON
// document.
type Lines struct {
	Records [][]byte
	next    position
	more    bool
}

// More tells whether records follow.
func (l Lines) More() bool { return l.more }

// Settle waits, for half a second at most, until what this process recorded
// before has arrived in the store.
func (l *DecisionLog) Settle(ctx context.Context) { l.settle(ctx) }

// Recorded gives the records that follow after (zero: from the newest on), at
// most n of them and little more than maxBytes.
func (l *DecisionLog) Recorded(ctx context.Context, sc scope.Scope, r Recording, after Lines, n, maxBytes int) (Lines, error) {
	store, err := l.cfg.Cluster.Tenant(ctx, sc.Tenant)
	if err != nil {
		return Lines{}, err
	}
	var out Lines
	err = store.Read(ctx, func(tx *db.Tx) (err error) {
		out, err = recordedLines(ctx, tx, r, after.next, n, maxBytes)
		return err
	})
	return out, err
}

// CountRecorded counts the decisions of a recording, and of these the ones
// with an input.
func (l *DecisionLog) CountRecorded(ctx context.Context, sc scope.Scope, r Recording) (all, withInput int64, err error) {
	store, err := l.cfg.Cluster.Tenant(ctx, sc.Tenant)
	if err != nil {
		return 0, 0, err
	}
	err = store.Read(ctx, func(tx *db.Tx) (err error) {
		q := question{span: span{r.From, r.To}, pairs: pairsOf([]string{string(r.Env)}, "")}
		if all, err = q.count(ctx, tx); err != nil {
			return err
		}
		withInput, err = countRecorded(ctx, tx, r)
		return err
	})
	return all, withInput, err
}

// ByID gives the decisions with these ids that are in the log, in any order;
// those of an environment that the scope does not see are left out.
func (l *DecisionLog) ByID(ctx context.Context, sc scope.Scope, ids []string) ([]Decision, error) {
	l.settle(ctx)
	store, err := l.cfg.Cluster.Tenant(ctx, sc.Tenant)
	if err != nil {
		return nil, err
	}
	var lines []string
	err = store.Read(ctx, func(tx *db.Tx) (err error) {
		lines, err = recordsByID(ctx, tx, ids)
		return err
	})
	if err != nil {
		return nil, err
	}
	out := make([]Decision, 0, len(lines))
	for _, line := range lines {
		d, err := decodeDecision([]byte(line))
		if err != nil {
			return nil, fault.Wrap(err, "reading a stored decision")
		}
		if sc.Sees(d.Environment) {
			out = append(out, d)
		}
	}
	return out, nil
}

// LastDecided gives, for those of the controls that ever decided something in
// the environment, the hour of the last time.
func (l *DecisionLog) LastDecided(ctx context.Context, sc scope.Scope, env scope.Env, policies []int64) (map[int64]time.Time, error) {
	l.settle(ctx)
	store, err := l.cfg.Cluster.Tenant(ctx, sc.Tenant)
	if err != nil {
		return nil, err
	}
	out := map[int64]time.Time{}
	err = store.Read(ctx, func(tx *db.Tx) error {
		for _, id := range policies {
			at, err := lastBucket(ctx, tx, policyKey(id), env)
			if err != nil {
				return err
			}
			if at != nil {
				out[id] = *at
			}
		}
		return nil
	})
	return out, err
}
