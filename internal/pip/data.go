package pip

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/pip/source"
	"github.com/gatehouse-dev/gatehouse/internal/rego"
	"github.com/gatehouse-dev/gatehouse/internal/rego/value"
	"github.com/gatehouse-dev/gatehouse/internal/resource"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

// Delta is what changed in data.pip between two revisions of an environment.
type Delta struct {
	// Members are the new and changed members. An undefined value means that the member was removed.
	Members []value.Member
	// Revisions is how many of the revisions changed data sources.
	Revisions int64
}

// Data returns all of data.pip: the data of each connection by its name, and rego.PIPMeta.
func Data(ctx context.Context, tx *db.Tx) (value.Value, error) {
	rows, err := allData(ctx, tx)
	if err != nil {
		return value.Value{}, err
	}
	members := make([]value.Member, 0, len(rows)+1)
	for _, row := range rows {
		v, err := row.value()
		if err != nil {
			return value.Value{}, err
		}
		members = append(members, value.Member{Key: row.Name, Value: v})
	}
	meta, err := metaOf(ctx, tx)
	if err != nil {
		return value.Value{}, err
	}
	return value.Object(append(members, value.Member{Key: rego.PIPMeta, Value: meta})...), nil
}

// DataSince returns what changed in data.pip after the revision since of an environment, up to
// the revision that the transaction sees. The journal is kept for the last
// resource.KeptRevisions revisions, like that of resources.
func DataSince(ctx context.Context, tx *db.Tx, env scope.Env, since int64) (d Delta, err error) {
	if d.Revisions, err = countChanged(ctx, tx, env, since); err != nil || d.Revisions == 0 {
		return d, err
	}
	touched, err := changedSince(ctx, tx, env, since)
	if err != nil {
		return d, err
	}
	rows, err := dataSince(ctx, tx, env, since)
	if err != nil {
		return d, err
	}
	for _, row := range rows {
		v, err := row.value()
		if err != nil {
			return d, err
		}
		d.Members = append(d.Members, value.Member{Key: row.Name, Value: v})
		touched = slices.DeleteFunc(touched, func(name string) bool { return name == row.Name })
	}
	for _, name := range touched {
		d.Members = append(d.Members, value.Member{Key: name})
	}
	meta, err := metaOf(ctx, tx)
	d.Members = append(d.Members, value.Member{Key: rego.PIPMeta, Value: meta})
	return d, err
}

// noteChange increases the revisions of both environments, and records that these connections
// changed in them. Every change of data.pip must call it in its transaction: snapshots are
// updated from these records, and would miss a change without one. It increases the revision of
// sandbox first, as other code does, so that two transactions cannot deadlock.
func noteChange(ctx context.Context, tx *db.Tx, names ...string) error {
	for _, env := range []scope.Env{scope.Sandbox, scope.Production} {
		revision, err := tx.Bump(ctx, resource.Revision(env))
		if err != nil {
			return err
		}
		for _, name := range names {
			if err := insertChange(ctx, tx, env, revision, name); err != nil {
				return err
			}
		}
		if err := forgetChanges(ctx, tx, env, revision-resource.KeptRevisions); err != nil {
			return err
		}
	}
	return nil
}

// row is the stored data of a connection.
type row struct {
	Name string `db:"name"`
	Data []byte `db:"data"`
}

func (r row) value() (value.Value, error) {
	v, err := value.Decode(r.Data, source.Limits())
	if err != nil {
		return v, fmt.Errorf("data source %q: %w", r.Name, err)
	}
	return v, nil
}

// facts describes the data of a connection: its size and how fresh it is.
type facts struct {
	Name    string     `db:"name"`
	Records int64      `db:"records"`
	SyncAt  *time.Time `db:"last_sync_at"`
	Error   *string    `db:"last_error"`
}

// metaOf returns the member rego.PIPMeta: for each connection that has data, how fresh it is.
func metaOf(ctx context.Context, tx *db.Tx) (value.Value, error) {
	all, err := allFacts(ctx, tx)
	members := make([]value.Member, 0, len(all))
	for _, f := range all {
		members = append(members, value.Member{Key: f.Name, Value: value.Object(
			value.Member{Key: "synced_at", Value: value.String(f.SyncAt.UTC().Format(time.RFC3339Nano))},
			value.Member{Key: "synced_at_ns", Value: value.Int(f.SyncAt.UnixNano())},
			value.Member{Key: "stale", Value: value.Bool(f.Error != nil)},
			value.Member{Key: "records", Value: value.Int(f.Records)},
		)})
	}
	return value.Object(members...), err
}

// document returns data as it is stored: as JSON, with its SHA-256 in hex.
func document(v value.Value) (text []byte, sum string) {
	text = v.AppendJSON(nil)
	h := sha256.Sum256(text)
	return text, hex.EncodeToString(h[:])
}

// previous returns what the last good fetch of a connection stored, or zero values if there was
// none.
func (s *Service) previous(ctx context.Context, tenant scope.TenantID, id int64) (d stored, v value.Value, err error) {
	d, err = db.Read(ctx, s.Stores, tenant, func(tx *db.Tx) (stored, error) { return getData(ctx, tx, id) })
	if errors.Is(err, db.ErrNoRows) {
		return stored{}, value.Value{}, nil
	}
	if err != nil {
		return d, v, err
	}
	v, err = value.Decode(d.Data, source.Limits())
	return d, v, err
}
