package audit

import (
	"context"
	"encoding/base64"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/audit/digest"
	"github.com/gatehouse-dev/gatehouse/internal/audit/stats"
	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/fault"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

// Filter selects decisions; zero members select all.
type Filter struct {
	// Start and End limit the time of the decision, both inclusive.
	Start, End time.Time
	UserID     string
	// ResourceID is the matched resource's id, or the id that the caller sent if no registered
	// resource matched.
	ResourceID string
	Decision   string
	PolicyID   int64
	// DecisionID is the id of one decision, or the id that a caller gave to it. Several decisions
	// may have the same caller's id.
	DecisionID  string
	Environment scope.Env
	// Limit is 1..1000; 0 means 100.
	Limit int
	// Cursor is a Page's NextCursor.
	Cursor string
}

// Page is a page of the decision log, newest first.
type Page struct {
	Logs       []Decision `json:"logs" doc:"The entries, newest first."`
	Total      int64      `json:"total" doc:"Number of entries in the log, before any filter."`
	Filtered   int64      `json:"filtered" doc:"Number of entries that match the filters."`
	NextCursor string     `json:"next_cursor,omitempty" doc:"Send it as cursor to get the next entries; absent on the last page."`
}

// Limits of a page: the default and the largest number of entries.
const (
	defaultLimit = 100
	maxLimit     = 1000
)

// endOfTime is later than any decision; startOfTime earlier.
var (
	startOfTime = time.UnixMicro(0).UTC()
	endOfTime   = time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC)
)

// Reader answers queries about the decisions in the tenants' stores. It is safe for concurrent
// use.
type Reader struct {
	*stats.Reader // answers from counters, without reading decisions
	cluster       *db.Cluster
	now           func() time.Time
	kept          func(ctx context.Context, tx *db.Tx) (Kept, error)
	// waitShipped waits until everything that this process has recorded is in the store, so that
	// callers can read their own decisions.
	waitShipped func(ctx context.Context)
}

// NewReader makes a Reader for a process that records no decisions.
func NewReader(cluster *db.Cluster, now func() time.Time) *Reader {
	return &Reader{Reader: &stats.Reader{Cluster: cluster}, cluster: cluster, now: now, waitShipped: func(context.Context) {}}
}

// Query returns a page of the decision log with both counts. It first waits, for at most half a
// second, until everything that this process has recorded is in the store. A bad cursor or limit
// is a BadRequest.
func (rd *Reader) Query(ctx context.Context, sc scope.Scope, f Filter) (Page, error) {
	limit, err := limitOf(f.Limit)
	if err != nil {
		return Page{}, err
	}
	q, err := newQuery(sc, f)
	if err != nil {
		return Page{}, err
	}
	rd.waitShipped(ctx)
	store, err := rd.cluster.Tenant(ctx, sc.Tenant)
	if err != nil {
		return Page{}, err
	}
	page := Page{Logs: []Decision{}}
	err = store.Read(ctx, func(tx *db.Tx) error {
		all := query{span: span{startOfTime, endOfTime}, pairs: pairsOf(stats.Visible(sc, scope.AnyEnv), "")}
		if page.Total, err = all.countCells(ctx, tx, allKey, all.span); err != nil {
			return err
		}
		if page.Filtered, err = q.count(ctx, tx); err != nil {
			return err
		}
		page.Logs, page.NextCursor, err = q.page(ctx, tx, limit)
		return err
	})
	return page, err
}

// Each calls fn for every decision that matches the filter, newest first, until there are no
// more, fn fails, or the context ends. It holds one page in memory at a time.
func (rd *Reader) Each(ctx context.Context, sc scope.Scope, f Filter, fn func(*Decision) error) error {
	q, err := newQuery(sc, f)
	if err != nil {
		return err
	}
	store, err := rd.cluster.Tenant(ctx, sc.Tenant)
	if err != nil {
		return err
	}
	for {
		var logs []Decision
		var next string
		err := store.Read(ctx, func(tx *db.Tx) (err error) {
			if err = q.choose(ctx, tx); err == nil {
				logs, next, err = q.page(ctx, tx, chunk)
			}
			return err
		})
		if err != nil {
			return err
		}
		for i := range logs {
			if err := fn(&logs[i]); err != nil {
				return err
			}
		}
		if next == "" {
			return nil
		}
		if q.before, err = parseCursor(next); err != nil {
			return err
		}
	}
}

func limitOf(n int) (int, error) {
	switch {
	case n == 0:
		return defaultLimit, nil
	case n < 1 || n > maxLimit:
		return 0, fault.Newf(fault.BadRequest, "invalid_parameter", "limit must be from 1 to %d", maxLimit)
	}
	return n, nil
}

func pairsOf(envs []string, decision string) []pair {
	decisions := []string{Permit, Deny}
	if decision != "" {
		decisions = []string{decision}
	}
	var out []pair
	for _, e := range envs {
		for _, d := range decisions {
			out = append(out, pair{e, d})
		}
	}
	return out
}

func newQuery(sc scope.Scope, f Filter) (*query, error) {
	if f.Decision != "" && f.Decision != Permit && f.Decision != Deny {
		return nil, fault.New(fault.BadRequest, "invalid_parameter", "decision must be PERMIT or DENY")
	}
	env := f.Environment
	if env == scope.AnyEnv {
		env = sc.Env
	}
	q := &query{
		span: span{startOfTime, endOfTime}, user: digest.Key(clip(f.UserID)), policy: f.PolicyID, resource: digest.Key(clip(f.ResourceID)),
		id: clip(f.DecisionID), pairs: pairsOf(stats.Visible(sc, env), f.Decision),
	}
	if !f.Start.IsZero() {
		q.lo = f.Start.UTC().Truncate(time.Microsecond)
	}
	if !f.End.IsZero() {
		q.hi = f.End.UTC().Truncate(time.Microsecond).Add(time.Microsecond)
	}
	var err error
	if f.Cursor != "" {
		q.before, err = parseCursor(f.Cursor)
	}
	return q, err
}

// key returns the key and the bucket width of the counters that answer q for whole buckets. It
// returns false if no counter covers the filter.
func (q *query) key() (key string, width time.Duration, ok bool) {
	switch {
	case q.id != "":
		return "", 0, false
	case q.user != "" && (q.policy != 0 || q.resource != ""):
		return "", 0, false
	case q.user != "":
		return userKey(q.user), day, true
	case q.policy != 0 && q.resource != "":
		return pairKey(q.policy, q.resource), hour, true
	case q.policy != 0:
		return policyKey(q.policy), hour, true
	case q.resource != "":
		return resourceKey(q.resource), hour, true
	}
	return allKey, hour, true
}

// choose sets the driver to the filtered column that matches the fewest rows.
func (q *query) choose(ctx context.Context, tx *db.Tx) error {
	if q.id != "" {
		seq, err := seqOf(ctx, tx, q.id)
		if q.seq, q.driver = seq, byCaller; seq != 0 {
			q.driver = bySeq
		}
		return err
	}
	type option struct {
		driver, key string
		width       time.Duration
	}
	var options []option
	if q.user != "" {
		options = append(options, option{byUser, userKey(q.user), day})
	}
	if q.resource != "" {
		options = append(options, option{byResource, resourceKey(q.resource), hour})
	}
	if q.policy != 0 {
		options = append(options, option{byPolicy, policyKey(q.policy), hour})
	}
	q.driver = byTime
	if len(options) == 1 {
		q.driver = options[0].driver
		return nil
	}
	fewest := int64(-1)
	for _, o := range options {
		n, err := q.countCells(ctx, tx, o.key, span{bucketOf(q.lo, o.width), q.hi})
		if err != nil {
			return err
		}
		if fewest < 0 || n < fewest {
			fewest, q.driver = n, o.driver
		}
	}
	return nil
}

// count returns how many rows match q. It ignores the cursor.
func (q *query) count(ctx context.Context, tx *db.Tx) (int64, error) {
	if q.empty() {
		return 0, nil
	}
	if err := q.choose(ctx, tx); err != nil {
		return 0, err
	}
	key, width, ok := q.key()
	if !ok {
		return q.countRows(ctx, tx, q.span)
	}
	inside, ends := q.cover(width)
	var total int64
	if !inside.empty() {
		n, err := q.countCells(ctx, tx, key, inside)
		if err != nil {
			return 0, err
		}
		total = n
	}
	for _, end := range ends {
		n, err := q.countEnd(ctx, tx, key, width, end)
		if err != nil {
			return 0, err
		}
		total += n
	}
	return total, nil
}

// countEnd counts the rows in a part of one or two buckets. If the part is more than half of one
// bucket, it counts the rows outside the part and subtracts them from the bucket's counter.
func (q *query) countEnd(ctx context.Context, tx *db.Tx, key string, width time.Duration, end span) (int64, error) {
	lo := bucketOf(end.lo, width)
	hi := lo.Add(width)
	if end.hi.After(hi) || end.hi.Sub(end.lo) <= width/2 {
		return q.countRows(ctx, tx, end)
	}
	total, err := q.countCells(ctx, tx, key, span{lo, hi})
	for _, rest := range []span{{lo, end.lo}, {end.hi, hi}} {
		if err != nil || rest.empty() {
			continue
		}
		var n int64
		n, err = q.countRows(ctx, tx, rest)
		total -= n
	}
	return total, err
}

// page returns the newest n rows of q after its cursor, and the cursor of the next page.
func (q *query) page(ctx context.Context, tx *db.Tx, n int) ([]Decision, string, error) {
	out := []Decision{}
	if q.empty() {
		return out, "", nil
	}
	var at []position
	for _, p := range q.pairs {
		some, err := q.positions(ctx, tx, p, n+1)
		if err != nil {
			return nil, "", err
		}
		at = append(at, some...)
	}
	slices.SortFunc(at, func(a, b position) int {
		if c := b.At.Compare(a.At); c != 0 {
			return c
		}
		return int(b.Seq - a.Seq)
	})
	next := ""
	if len(at) > n {
		at = at[:n]
		next = at[n-1].cursor()
	}
	lines, err := records(ctx, tx, at)
	if err != nil {
		return nil, "", err
	}
	for _, line := range lines {
		d, err := decodeDecision([]byte(line))
		if err != nil {
			return nil, "", fault.Wrap(err, "reading a stored decision")
		}
		out = append(out, d)
	}
	return out, next, nil
}

func (p position) cursor() string {
	return base64.RawURLEncoding.EncodeToString([]byte(strconv.FormatInt(p.At.UnixMicro(), 36) + "." + strconv.FormatInt(p.Seq, 36)))
}

func parseCursor(s string) (position, error) {
	bad := fault.New(fault.BadRequest, "bad_cursor", "the cursor is not valid")
	raw, err := base64.RawURLEncoding.DecodeString(s)
	if err != nil {
		return position{}, bad
	}
	first, second, _ := strings.Cut(string(raw), ".")
	at, err1 := strconv.ParseInt(first, 36, 64)
	seq, err2 := strconv.ParseInt(second, 36, 64)
	if err1 != nil || err2 != nil || seq <= 0 {
		return position{}, bad
	}
	return position{At: time.UnixMicro(at).UTC(), Seq: seq}, nil
}
