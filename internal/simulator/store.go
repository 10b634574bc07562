package simulator

import (
	"context"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

// row is a run as it is stored.
type row struct {
	ID          int64           `db:"id"`
	PolicyID    int64           `db:"policy_id"`
	PolicyName  string          `db:"policy_name"`
	Environment scope.Env       `db:"environment"`
	ActorKind   scope.ActorKind `db:"actor_kind"`
	ActorID     string          `db:"actor_id"`
	ActorName   string          `db:"actor_name"`
	Decision    string          `db:"decision"`
	Nanoseconds int64           `db:"nanoseconds"`
	Summary     string          `db:"summary"`
	AuditLevel  string          `db:"audit_level"`
	Digest      string          `db:"digest"`
	Record      string          `db:"record"`
	CreatedAt   time.Time       `db:"created_at"`
}

func insert(ctx context.Context, tx *db.Tx, r row) (int64, error) {
	return db.One[int64](ctx, tx, `INSERT INTO simulations (policy_id, policy_name, environment, actor_kind, actor_id, actor_name,
			decision, nanoseconds, summary, audit_level, digest, record, created_at)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13) RETURNING id`,
		r.PolicyID, r.PolicyName, string(r.Environment), string(r.ActorKind), r.ActorID, r.ActorName,
		r.Decision, r.Nanoseconds, r.Summary, r.AuditLevel, r.Digest, r.Record, r.CreatedAt)
}

func get(ctx context.Context, tx *db.Tx, id int64) (row, error) {
	return db.One[row](ctx, tx, `SELECT id, policy_id, policy_name, environment, actor_kind, actor_id, actor_name,
		decision, nanoseconds, summary, audit_level, digest, record, created_at FROM simulations WHERE id = $1`, id)
}

const entryColumns = `id, policy_id, policy_name, actor_kind, actor_id, actor_name, decision, nanoseconds, created_at, summary, environment`

const ofPolicy = ` FROM simulations WHERE policy_id = $1 AND ($2 = '' OR environment = $2)
	AND created_at >= $3 AND (CAST($4 AS BIGINT) = 0 OR created_at <= $4) AND ($5 = '' OR decision = $5) `

func listOfPolicy(ctx context.Context, tx *db.Tx, policy int64, env scope.Env, f Filter) ([]Entry, int64, error) {
	total, err := db.One[int64](ctx, tx, `SELECT count(*)`+ofPolicy, policy, string(env), f.Start, f.End, f.Decision)
	if err != nil {
		return nil, 0, err
	}
	list, err := db.All[Entry](ctx, tx, `SELECT `+entryColumns+ofPolicy+`ORDER BY id DESC LIMIT $6 OFFSET $7`,
		policy, string(env), f.Start, f.End, f.Decision, f.Limit, f.Offset)
	return list, total, err
}

const ofActor = ` FROM simulations WHERE actor_kind = $1 AND actor_id = $2 AND ($3 = '' OR environment = $3)
	AND created_at >= $4 AND (CAST($5 AS BIGINT) = 0 OR created_at <= $5) AND ($6 = '' OR decision = $6) `

func listOfActor(ctx context.Context, tx *db.Tx, who scope.Actor, env scope.Env, f Filter) ([]Entry, int64, error) {
	total, err := db.One[int64](ctx, tx, `SELECT count(*)`+ofActor, string(who.Kind), who.ID, string(env), f.Start, f.End, f.Decision)
	if err != nil {
		return nil, 0, err
	}
	list, err := db.All[Entry](ctx, tx, `SELECT `+entryColumns+ofActor+`ORDER BY id DESC LIMIT $7 OFFSET $8`,
		string(who.Kind), who.ID, string(env), f.Start, f.End, f.Decision, f.Limit, f.Offset)
	return list, total, err
}

// RemoveActor removes the actor from the simulations of a deleted user, because another user may get the
// same id later. It is one of user.Service.ForgetHooks.
func RemoveActor(ctx context.Context, tx *db.Tx, who scope.Actor) error {
	return tx.Do(ctx, `UPDATE simulations SET actor_id = '' WHERE actor_kind = $1 AND actor_id = $2`, string(who.Kind), who.ID)
}

// loadable returns the controls of an environment, with the names of their resources.
func loadable(ctx context.Context, tx *db.Tx, env scope.Env) ([]Loadable, error) {
	return db.All[Loadable](ctx, tx, `SELECT p.id, p.name, p.description, p.status, p.environment, p.rego_code,
			r.name AS resource_name, COALESCE(r.methods, '[]') AS methods, b.name AS bouncer_name
		FROM policies p LEFT JOIN resources r ON r.id = p.resource_id LEFT JOIN bouncers b ON b.id = p.bouncer_id
		WHERE p.environment = $1 AND p.kind = 'control' AND p.deleted_at IS NULL ORDER BY p.id`, string(env))
}

// prune removes up to n rows of an audit level that are older than a time.
func prune(ctx context.Context, tx *db.Tx, level string, before time.Time, n int64) (int64, error) {
	return tx.Exec(ctx, `DELETE FROM simulations WHERE id IN (SELECT id FROM simulations
		WHERE audit_level = $1 AND created_at < $2 ORDER BY created_at LIMIT $3)`, level, before, n)
}
