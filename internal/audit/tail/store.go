package tail

import (
	"context"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/audit"
	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

// chain is the beginning and the end of a chain.
type chain struct {
	Name     string `db:"name"`
	FirstPos int64  `db:"first_pos"`
	Base     string `db:"base"`
	LastPos  int64  `db:"last_pos"`
	LastSeq  int64  `db:"last_seq"`
	Head     string `db:"head"`
}

func loadChains(ctx context.Context, tx *db.Tx) (map[string]chain, error) {
	rows, err := db.All[chain](ctx, tx, `SELECT name, first_pos, base, last_pos, last_seq, head FROM audit_chains`)
	out := make(map[string]chain, len(rows))
	for _, c := range rows {
		out[c.Name] = c
	}
	return out, err
}

// decision is a row of the decision log.
type decision struct {
	Seq         int64       `db:"seq"`
	Level       audit.Level `db:"level"`
	Position    int64       `db:"pos"`
	Hash        string      `db:"hash"`
	Environment scope.Env   `db:"environment"`
	At          time.Time   `db:"at"`
	Record      string      `db:"record"`
}

func decisionsAfter(ctx context.Context, tx *db.Tx, seq int64, n int) ([]decision, error) {
	return db.All[decision](ctx, tx, `SELECT seq, level, pos, hash, environment, at, record FROM decisions WHERE seq > $1 ORDER BY seq LIMIT $2`, seq, n)
}

// event is a row of the administrative log.
type event struct {
	audit.Event
	Hash string `db:"hash"`
	// Bytes is the length of Changes and EventContext as stored.
	Bytes int `db:"bytes"`
}

func eventsAfter(ctx context.Context, tx *db.Tx, seq int64, n int) ([]event, error) {
	return db.All[event](ctx, tx, `SELECT seq, at, type, object, object_id, object_name, environment, actor_kind, actor_id, actor_name, ip_address, request_id,
			changes, event_context, hash, LENGTH(changes) + LENGTH(event_context) AS bytes
		FROM audit_events WHERE seq > $1 ORDER BY seq LIMIT $2`, seq, n)
}
