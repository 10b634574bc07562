package audit

import (
	"context"
	"strconv"
	"strings"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/audit/digest"
	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

// query is a prepared Filter: equality conditions, a window, and pairs of environment and
// decision. It runs one statement for each pair, so that the first three columns of an index are
// all compared for equality.
type query struct {
	span
	user     string
	policy   int64
	resource string
	// id is a decision's id, or the id that a caller gave to it. choose sets seq to the row whose
	// own id it is; 0 if there is none.
	id    string
	seq   int64
	pairs []pair
	// driver is the column whose index is scanned.
	driver string
	// before is the last row of the previous page. If its Seq is 0, the page begins with the
	// newest row.
	before position
}

type pair struct{ environment, decision string }

type position struct {
	At  time.Time `db:"at"`
	Seq int64     `db:"seq"`
}

// The values of driver: the first columns of the indexes. The index by time begins with the pair.
const (
	byUser     = "user_id"
	byPolicy   = "policy_id"
	byResource = "resource_key"
	byCaller   = "caller_id"
	bySeq      = "seq"
	byTime     = ""
)

// where writes the conditions of q for one pair to b and returns their arguments. It writes other
// columns than the driver as a range of one value. SQLite, which has no statistics, then uses the
// driver's index, and PostgreSQL still compares the column inside that index, before it reads a
// row.
func (q *query) where(b *strings.Builder, p pair) []any {
	var args []any
	add := func(v any, text ...string) {
		if len(args) > 0 {
			b.WriteString(" AND ")
		}
		args = append(args, v)
		for i, part := range text {
			if i > 0 {
				b.WriteString(" AND ")
			}
			b.WriteString(part)
			b.WriteString("$")
			b.WriteString(strconv.Itoa(len(args)))
		}
	}
	equal := func(column string, v any) {
		if column == q.driver {
			add(v, column+" = ")
			return
		}
		add(v, column+" >= ", column+" <= ")
	}
	switch q.driver {
	case bySeq:
		equal(bySeq, q.seq)
	case byCaller:
		equal(byCaller, digest.Key(q.id))
	}
	if q.user != "" {
		equal(byUser, q.user)
	}
	if q.resource != "" {
		equal(byResource, q.resource)
	}
	if q.policy != 0 {
		equal(byPolicy, q.policy)
	}
	if q.driver == byTime {
		add(0, "seq > ") // the condition of the partial index, so that the planner can use it
	}
	add(p.environment, "environment = ")
	add(p.decision, "decision = ")
	add(q.lo, "at >= ")
	add(q.hi, "at < ")
	return args
}

// countRows counts with a scan of the driver's index.
func (q *query) countRows(ctx context.Context, tx *db.Tx, s span) (int64, error) {
	var total int64
	part := *q
	part.span = s
	for _, p := range q.pairs {
		var b strings.Builder
		b.WriteString(`SELECT COUNT(*) FROM decisions WHERE `)
		args := part.where(&b, p)
		n, err := db.One[int64](ctx, tx, b.String(), args...)
		if err != nil {
			return 0, err
		}
		total += n
	}
	return total, nil
}

// countCells adds up decision_counts for one key over whole buckets.
func (q *query) countCells(ctx context.Context, tx *db.Tx, key string, s span) (int64, error) {
	envs, decisions := q.splitPairs()
	args := []any{key, s.lo, s.hi}
	for _, v := range append(envs, decisions...) {
		args = append(args, v)
	}
	var b strings.Builder
	b.WriteString(`SELECT CAST(COALESCE(SUM(logged), 0) AS BIGINT) FROM decision_counts WHERE key = $1 AND bucket >= $2 AND bucket < $3 AND environment IN (`)
	b.WriteString(db.Placeholders(4, len(envs)))
	b.WriteString(`) AND decision IN (`)
	b.WriteString(db.Placeholders(4+len(envs), len(decisions)))
	b.WriteString(`)`)
	return db.One[int64](ctx, tx, b.String(), args...)
}

// splitPairs returns the environments and the decisions of the pairs.
func (q *query) splitPairs() (envs, decisions []string) {
	seen := map[string]bool{}
	for _, p := range q.pairs {
		if !seen[p.environment] {
			envs = append(envs, p.environment)
		}
		if !seen[p.decision] {
			decisions = append(decisions, p.decision)
		}
		seen[p.environment], seen[p.decision] = true, true
	}
	return envs, decisions
}

// positions returns the newest n positions of one pair, newest first. It reads only the index.
func (q *query) positions(ctx context.Context, tx *db.Tx, p pair, n int) ([]position, error) {
	var b strings.Builder
	b.WriteString(`SELECT at, seq FROM decisions WHERE `)
	args := q.where(&b, p)
	next := func(v any) string {
		args = append(args, v)
		return "$" + strconv.Itoa(len(args))
	}
	if q.before.Seq != 0 {
		b.WriteString(` AND (at, seq) < (` + next(q.before.At) + `, ` + next(q.before.Seq) + `)`)
	}
	b.WriteString(` ORDER BY at DESC, seq DESC LIMIT ` + next(n))
	return db.All[position](ctx, tx, b.String(), args...)
}

type storedRecord struct {
	Seq    int64  `db:"seq"`
	Record string `db:"record"`
}

// records returns the entries at the positions, in the same order.
func records(ctx context.Context, tx *db.Tx, at []position) ([]string, error) {
	seqs := make([]int64, len(at))
	for i, p := range at {
		seqs[i] = p.Seq
	}
	rows, err := db.AllIn[storedRecord](ctx, tx, `SELECT seq, record FROM decisions WHERE seq IN ($in)`, seqs)
	if err != nil {
		return nil, err
	}
	bySeq := make(map[int64]string, len(rows))
	for _, r := range rows {
		bySeq[r.Seq] = r.Record
	}
	out := make([]string, 0, len(at))
	for _, p := range at {
		if rec, ok := bySeq[p.Seq]; ok {
			out = append(out, rec)
		}
	}
	return out, nil
}

// recordByID returns the entry of a decision id in one of the environments; "" when there is
// none.
func recordByID(ctx context.Context, tx *db.Tx, id string, envs []string) (string, error) {
	rows, err := db.AllIn[storedRecord](ctx, tx, `SELECT seq, record FROM decisions WHERE decision_id = $1 AND environment IN ($in)`, envs, id)
	if err != nil || len(rows) == 0 {
		return "", err
	}
	return rows[0].Record, nil
}

// seqOf returns the sequence number of the decision with this id; 0 if there is none.
func seqOf(ctx context.Context, tx *db.Tx, id string) (int64, error) {
	return db.OneOrZero[int64](ctx, tx, `SELECT seq FROM decisions WHERE decision_id = $1`, id)
}

// eventsPage returns the newest n administrative entries of a filter before a sequence number (0:
// from the newest on), and the number of all entries of the filter.
func eventsPage(ctx context.Context, tx *db.Tx, f EventFilter, before int64, n int) ([]Event, int64, error) {
	var b strings.Builder
	var args []any
	add := func(text string, v any) {
		if len(args) > 0 {
			b.WriteString(" AND ")
		}
		args = append(args, v)
		b.WriteString(text + "$" + strconv.Itoa(len(args)))
	}
	add("seq > ", 0)
	for _, c := range []struct{ column, value string }{
		{"type", f.Type},
		{"object", f.Object},
		{"object_id", f.ObjectID},
		{"actor_id", f.ActorID},
		{"environment", string(f.Environment)},
	} {
		if c.value != "" {
			add(c.column+" = ", c.value)
		}
	}
	if !f.Start.IsZero() {
		add("at >= ", f.Start)
	}
	if !f.End.IsZero() {
		add("at <= ", f.End)
	}
	filtered, err := db.One[int64](ctx, tx, `SELECT COUNT(*) FROM audit_events WHERE `+b.String(), args...)
	if err != nil {
		return nil, 0, err
	}
	if before > 0 {
		add("seq < ", before)
	}
	args = append(args, n)
	events, err := db.All[Event](ctx, tx, `SELECT `+eventColumns+` FROM audit_events WHERE `+b.String()+
		` ORDER BY seq DESC LIMIT $`+strconv.Itoa(len(args)), args...)
	return events, filtered, err
}

// DecidedOn returns the number of decisions on each of the resources in an environment; a
// resource without any is missing.
func DecidedOn(ctx context.Context, tx *db.Tx, env scope.Env, resources []int64) (map[int64]int64, error) {
	type count struct {
		Key     string `db:"key"`
		Counted int64  `db:"counted"`
	}
	byKey, keys := make(map[string]int64, len(resources)), make([]string, len(resources))
	for i, id := range resources {
		keys[i] = resourceKey(strconv.FormatInt(id, 10))
		byKey[keys[i]] = id
	}
	counts, err := db.AllIn[count](ctx, tx, `SELECT key, CAST(sum(counted) AS BIGINT) AS counted FROM decision_counts
		WHERE environment = $1 AND key IN ($in) GROUP BY key`, keys, string(env))
	out := make(map[int64]int64, len(counts))
	for _, c := range counts {
		out[byKey[c.Key]] = c.Counted
	}
	return out, err
}
