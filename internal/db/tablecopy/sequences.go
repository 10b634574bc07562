package tablecopy

import (
	"context"

	"github.com/gatehouse-dev/gatehouse/internal/db"
)

// lastIDs returns the last id that the database generated for each table, including ids of deleted
// rows: the target must not use an id again.
func (c *Copy) lastIDs(ctx context.Context, tx *db.Tx, kind string) (map[string]int64, error) {
	out := map[string]int64{}
	for _, t := range c.tables {
		if t.identity == "" {
			continue
		}
		last, err := lastID(ctx, tx, kind, t)
		if err != nil {
			return nil, err
		}
		highest, err := db.One[int64](ctx, tx, `SELECT COALESCE(max(`+quote(t.identity)+`), 0) FROM `+quote(t.name))
		if err != nil {
			return nil, err
		}
		out[t.name] = max(last, highest)
	}
	return out, nil
}

func lastID(ctx context.Context, tx *db.Tx, kind string, t table) (int64, error) {
	if kind == sqlite {
		return db.OneOrZero[int64](ctx, tx, `SELECT seq FROM sqlite_sequence WHERE name = $1`, t.name)
	}
	name, err := db.One[string](ctx, tx, `SELECT pg_get_serial_sequence($1, $2)`, quote(t.name), t.identity)
	if err != nil {
		return 0, err
	}
	return db.One[int64](ctx, tx, `SELECT CASE WHEN is_called THEN last_value ELSE last_value - 1 END FROM `+name)
}

// setLastIDs makes the database continue after these ids.
func setLastIDs(ctx context.Context, tx *db.Tx, kind string, last map[string]int64) error {
	identity := map[string]string{}
	if kind == postgres {
		rows, err := db.All[columnRow](ctx, tx, catalogues[kind])
		if err != nil {
			return err
		}
		for _, r := range rows {
			if r.Identity {
				identity[r.Table] = r.Column
			}
		}
	}
	for name, id := range last {
		if kind == sqlite {
			if err := tx.Do(ctx, `DELETE FROM sqlite_sequence WHERE name = $1`, name); err != nil {
				return err
			}
			if err := tx.Do(ctx, `INSERT INTO sqlite_sequence (name, seq) VALUES ($1, $2)`, name, id); err != nil {
				return err
			}
			continue
		}
		// With false, the next id is exactly id+1, even if no id was generated yet.
		_, err := db.One[int64](ctx, tx, `SELECT setval(pg_get_serial_sequence($1, $2), $3, false)`, quote(name), identity[name], id+1)
		if err != nil {
			return err
		}
	}
	return nil
}
