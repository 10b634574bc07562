package audit

import (
	"context"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

// Kind is the kind of subject that Top ranks.
type Kind string

// The kinds that Top can rank.
const (
	TopPolicies  Kind = "p|"
	TopResources Kind = "r|"
)

// Share counts the decisions about one subject.
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
	var out []Share
	err := rd.cluster.Read(ctx, sc.Tenant, func(tx *db.Tx) (err error) {
		out, err = topCounts(ctx, tx, kind, bucketOf(from, hour), visible(sc, sc.Env), n)
		return err
	})
	return out, err
}
