package stats

import (
	"context"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

// Reader reads the counters in the tenants' stores. It is safe for concurrent use.
type Reader struct{ Cluster *db.Cluster }

// Kind is the kind of subject that Top ranks.
type Kind string

// The kinds that Top can rank.
const (
	TopPolicies  Kind = "p|"
	TopResources Kind = "r|"
)

// Share counts the decisions of one control or about one resource.
type Share struct {
	// Name is the id of a control, or the key of a resource: its id, or the name that callers
	// used if it is not registered.
	Name      string `db:"name"`
	Permitted int64  `db:"permitted"`
	Denied    int64  `db:"denied"`
	Errors    int64  `db:"errors"`
}

// Top returns the n controls or resources with the most denials since the hour of from, in the
// scope's environment or in all.
func (rd *Reader) Top(ctx context.Context, sc scope.Scope, kind Kind, from time.Time, n int) ([]Share, error) {
	return db.Read(ctx, rd.Cluster, sc.Tenant, func(tx *db.Tx) ([]Share, error) {
		return topCounts(ctx, tx, kind, Hour.Start(from), Visible(sc, sc.Env), n)
	})
}

// Visible returns the environments that a scope sees with a filter for env.
func Visible(sc scope.Scope, env scope.Env) []string {
	if sc.EnvBound {
		env = sc.Env
	}
	if env != scope.AnyEnv {
		return []string{string(env)}
	}
	return []string{string(scope.Production), string(scope.Sandbox)}
}
