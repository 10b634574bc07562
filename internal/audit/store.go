package audit

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/db"
)

// chunk is the number of entries in one page of Each.
const chunk = 500

const (
	insertDecisions = `INSERT INTO decisions (seq, decision_id, at, logged_at, level, pos, environment, decision,
		user_id, policy_id, resource_key, bouncer_id, ip_address, evaluation_us, record, hash, caller_id) VALUES `
	insertCounts = `INSERT INTO decision_counts (key, bucket, environment, decision, logged, counted, evaluation_us, cache_hits, errors) VALUES `
	addCounts    = ` ON CONFLICT (key, bucket, environment, decision) DO UPDATE SET
		logged = decision_counts.logged + excluded.logged, counted = decision_counts.counted + excluded.counted,
		evaluation_us = decision_counts.evaluation_us + excluded.evaluation_us,
		cache_hits = decision_counts.cache_hits + excluded.cache_hits, errors = decision_counts.errors + excluded.errors`
	insertSeen = `INSERT INTO decision_seen (decision_id, at) VALUES `
)

func insertRows(ctx context.Context, tx *db.Tx, rows []row) error {
	list := make([][]any, len(rows))
	for i := range rows {
		r := &rows[i]
		list[i] = []any{
			r.Seq, r.DecisionID, r.At, r.LoggedAt, string(r.Level), r.Pos, r.Environment, r.Decision,
			r.UserID, r.PolicyID, r.ResourceKey, r.BouncerID, r.IPAddress, r.EvaluationUS, r.Record, r.Hash, r.CallerID,
		}
	}
	// The caller holds the lock and has dropped known ids. A conflict here would leave a gap in
	// the chain, so the batch fails.
	stored, err := db.ExecRows(ctx, tx, insertDecisions, list, ` ON CONFLICT (decision_id) DO NOTHING`)
	if err == nil && stored != int64(len(rows)) {
		err = errors.New("audit: two writers stored the same decision at once")
	}
	return err
}

func insertSeenIDs(ctx context.Context, tx *db.Tx, rows []row) error {
	list := make([][]any, len(rows))
	for i := range rows {
		list[i] = []any{rows[i].DecisionID, rows[i].LoggedAt}
	}
	return db.DoRows(ctx, tx, insertSeen, list, ` ON CONFLICT (decision_id) DO NOTHING`)
}

// addTallies adds counts to decision_counts. It sorts them by key, so that consecutive writes go
// to the same page of the index: a batch may change thousands of cells.
func addTallies(ctx context.Context, tx *db.Tx, ts tallies) error {
	list := make([][]any, 0, len(ts))
	for _, c := range slices.SortedFunc(maps.Values(ts), func(a, b *cell) int { return strings.Compare(a.Key, b.Key) }) {
		list = append(list, []any{c.Key, c.Bucket, c.Environment, c.Decision, c.Logged, c.Counted, c.EvaluationUS, c.CacheHits, c.Errors})
	}
	return db.DoRows(ctx, tx, insertCounts, list, addCounts)
}

// knownIDs returns those of ids that are already in the log.
func knownIDs(ctx context.Context, tx *db.Tx, ids []string) (map[string]bool, error) {
	found, err := db.AllIn[string](ctx, tx, `SELECT decision_id FROM decisions WHERE decision_id IN ($in)
		UNION ALL SELECT decision_id FROM decision_seen WHERE decision_id IN ($in)`, ids)
	known := make(map[string]bool, len(found))
	for _, id := range found {
		known[id] = true
	}
	return known, err
}

// loadChains returns the chains by name; a chain without a row is missing.
func loadChains(ctx context.Context, tx *db.Tx) (map[string]chain, error) {
	rows, err := db.All[chain](ctx, tx, `SELECT name, first_pos, first_seq, base, last_pos, last_seq, head FROM audit_chains`)
	out := make(map[string]chain, len(rows))
	for _, c := range rows {
		out[c.Name] = c
	}
	return out, err
}

func loadChain(ctx context.Context, tx *db.Tx, name string) (chain, error) {
	c, err := db.One[chain](ctx, tx, `SELECT name, first_pos, first_seq, base, last_pos, last_seq, head FROM audit_chains WHERE name = $1`, name)
	return db.FoundOr(c, err, newChain(name))
}

func saveChain(ctx context.Context, tx *db.Tx, c chain) error {
	return tx.Do(ctx, `INSERT INTO audit_chains (name, first_pos, first_seq, base, last_pos, last_seq, head) VALUES ($1, $2, $3, $4, $5, $6, $7)
		ON CONFLICT (name) DO UPDATE SET first_pos = excluded.first_pos, first_seq = excluded.first_seq, base = excluded.base,
		last_pos = excluded.last_pos, last_seq = excluded.last_seq, head = excluded.head`,
		c.Name, c.FirstPos, c.FirstSeq, c.Base, c.LastPos, c.LastSeq, c.Head)
}

const decisionColumns = `seq, decision_id, at, logged_at, level, pos, environment, decision, user_id, policy_id,
	resource_key, bouncer_id, ip_address, evaluation_us, record, hash, caller_id`

func decisionsAfter(ctx context.Context, tx *db.Tx, seq, last int64, n int) ([]row, error) {
	return db.All[row](ctx, tx, `SELECT `+decisionColumns+` FROM decisions WHERE seq > $1 AND seq <= $2 ORDER BY seq LIMIT $3`, seq, last, n)
}

// oldestOf returns the oldest rows of a level that were logged before the cutoff.
func oldestOf(ctx context.Context, tx *db.Tx, c chain, level Level, cutoff time.Time, n int) ([]row, error) {
	return db.All[row](ctx, tx, `SELECT `+decisionColumns+` FROM decisions
		WHERE seq >= $1 AND seq <= $2 AND level = $3 AND logged_at < $4 ORDER BY seq LIMIT $5`, c.FirstSeq, c.LastSeq, string(level), cutoff, n)
}

func deleteDecisions(ctx context.Context, tx *db.Tx, level Level, first, last int64) (int64, error) {
	return tx.Exec(ctx, `DELETE FROM decisions WHERE seq >= $1 AND seq <= $2 AND level = $3`, first, last, string(level))
}

func deleteSeen(ctx context.Context, tx *db.Tx, before time.Time, n int) (int64, error) {
	return tx.Exec(ctx, `DELETE FROM decision_seen WHERE decision_id IN (SELECT decision_id FROM decision_seen WHERE at < $1 ORDER BY at LIMIT $2)`, before, n)
}

func deleteUnloggedCounts(ctx context.Context, tx *db.Tx, before time.Time, n int) (int64, error) {
	return tx.Exec(ctx, `DELETE FROM decision_counts WHERE (key, bucket, environment, decision) IN
		(SELECT key, bucket, environment, decision FROM decision_counts WHERE logged = 0 AND bucket < $1 ORDER BY bucket LIMIT $2)`, before, n)
}

const eventColumns = `seq, at, type, object, object_id, object_name, environment, actor_kind, actor_id, actor_name,
	ip_address, request_id, changes, event_context`

func insertEvents(ctx context.Context, tx *db.Tx, list []eventRow) error {
	rows := make([][]any, len(list))
	for i, r := range list {
		rows[i] = []any{r.Seq, r.At, r.Type, r.Object, r.ObjectID, r.ObjectName, r.Environment, r.ActorKind, r.ActorID, r.ActorName, r.IPAddress, r.RequestID, r.Changes, r.EventContext, r.Hash}
	}
	return db.DoRows(ctx, tx, `INSERT INTO audit_events (`+eventColumns+`, hash) VALUES `, rows, "")
}

func countEntries(ctx context.Context, tx *db.Tx, kind, objectID string, at time.Time) (int64, error) {
	return db.One[int64](ctx, tx, `SELECT count(*) FROM audit_events WHERE type = $1 AND object_id = $2 AND at = $3`, kind, objectID, at)
}

func eventsAfter(ctx context.Context, tx *db.Tx, seq, last int64, n int) ([]eventRow, error) {
	return db.All[eventRow](ctx, tx, `SELECT `+eventColumns+`, hash FROM audit_events WHERE seq > $1 AND seq <= $2 ORDER BY seq LIMIT $3`, seq, last, n)
}

func oldestEvents(ctx context.Context, tx *db.Tx, c chain, cutoff time.Time, n int) ([]eventRow, error) {
	return db.All[eventRow](ctx, tx, `SELECT `+eventColumns+`, hash FROM audit_events
		WHERE seq >= $1 AND seq <= $2 AND at < $3 ORDER BY seq LIMIT $4`, c.FirstSeq, c.LastSeq, cutoff, n)
}

func deleteEvents(ctx context.Context, tx *db.Tx, first, last int64) (int64, error) {
	return tx.Exec(ctx, `DELETE FROM audit_events WHERE seq >= $1 AND seq <= $2`, first, last)
}
