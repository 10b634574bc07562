package audit

import (
	"context"
	"strings"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/audit/digest"
	"github.com/gatehouse-dev/gatehouse/internal/audit/stats"
	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

// Bucket is one hour of counters.
type Bucket struct {
	Start       time.Time `json:"start"`
	Environment scope.Env `json:"environment"`
	Decision    string    `json:"decision"`
	Tally
}

// Of selects the counters of the tenant, of a policy, of a resource, or of a policy and a resource.
type Of struct {
	PolicyID   int64
	ResourceID string
}

// Counters returns the hourly counters selected by of, from the hour of from to the hour of to,
// both included, oldest first. Hours without decisions are left out.
func (rd *Reader) Counters(ctx context.Context, sc scope.Scope, of Of, from, to time.Time) ([]Bucket, error) {
	key := allKey
	switch resource := digest.Key(clip(of.ResourceID)); {
	case of.PolicyID != 0 && resource != "":
		key = pairKey(of.PolicyID, resource)
	case of.PolicyID != 0:
		key = policyKey(of.PolicyID)
	case resource != "":
		key = resourceKey(resource)
	}
	store, err := rd.cluster.Tenant(ctx, sc.Tenant)
	if err != nil {
		return nil, err
	}
	out := []Bucket{}
	err = store.Read(ctx, func(tx *db.Tx) error {
		s := span{bucketOf(from, hour), bucketOf(to, hour).Add(hour)}
		cells, err := tallyBy(ctx, tx, key, s, pairsOf(stats.Visible(sc, sc.Env), ""))
		for _, c := range cells {
			out = append(out, Bucket{Start: c.Bucket, Environment: scope.Env(c.Environment), Decision: c.Decision, Tally: c.Tally})
		}
		return err
	})
	return out, err
}

// tallyBy adds up one key's cells over whole buckets, one row for each bucket.
func tallyBy(ctx context.Context, tx *db.Tx, key string, s span, pairs []pair) ([]cell, error) {
	q := query{pairs: pairs}
	envs, decisions := q.splitPairs()
	args := []any{key, s.lo, s.hi}
	for _, v := range append(envs, decisions...) {
		args = append(args, v)
	}
	var b strings.Builder
	b.WriteString(`SELECT key, bucket, environment, decision, logged, counted, evaluation_us, cache_hits, errors FROM decision_counts
		WHERE key = $1 AND bucket >= $2 AND bucket < $3 AND environment IN (`)
	b.WriteString(db.Placeholders(4, len(envs)))
	b.WriteString(`) AND decision IN (`)
	b.WriteString(db.Placeholders(4+len(envs), len(decisions)))
	b.WriteString(`) ORDER BY bucket`)
	return db.All[cell](ctx, tx, b.String(), args...)
}
