package tablecopy

import (
	"context"
	"fmt"
	"strings"

	"github.com/gatehouse-dev/gatehouse/internal/db"
)

const (
	sqlite   = "sqlite"
	postgres = "postgres"
)

// kind is the type of a column, named as in PostgreSQL.
type kind string

const (
	integer kind = "BIGINT"
	boolean kind = "BOOLEAN"
	text    kind = "TEXT"
	real    kind = "DOUBLE PRECISION"
	blob    kind = "BYTEA"
)

type column struct {
	name string
	kind kind
}

// table is one table of both stores. Its key identifies a row: the primary key, or all columns if
// there is none.
type table struct {
	name     string
	columns  []column
	key      []int // of columns
	identity string
}

// columnRow is one column as the database's catalogue describes it.
type columnRow struct {
	Table    string `db:"tbl"`
	Column   string `db:"col"`
	Type     string `db:"type"`
	Key      int    `db:"pk"`       // position in the primary key, from 1; 0: not part of it
	Identity bool   `db:"identity"` // the database generates its values
}

// catalogues are the queries for the columns of all tables, in order, by kind of store.
var catalogues = map[string]string{
	sqlite: `SELECT m.name AS tbl, p.name AS col, p.type AS type, p.pk AS pk,
			CASE WHEN p.pk = 1 AND instr(upper(m.sql), 'AUTOINCREMENT') > 0 THEN 1 ELSE 0 END AS identity
		FROM sqlite_schema m JOIN pragma_table_info(m.name) p WHERE m.type = 'table' AND m.name NOT LIKE 'sqlite\_%' ESCAPE '\'
		ORDER BY m.name, p.cid`,
	postgres: `SELECT c.relname::TEXT AS tbl, a.attname::TEXT AS col, format_type(a.atttypid, NULL) AS type,
			COALESCE(array_position(i.indkey::INT[], a.attnum::INT) + 1, 0)::BIGINT AS pk, a.attidentity <> '' AS identity
		FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
		LEFT JOIN pg_index i ON i.indrelid = c.oid AND i.indisprimary
		WHERE c.relkind = 'r' AND c.relnamespace = (SELECT oid FROM pg_namespace WHERE nspname = current_schema())
		ORDER BY c.relname, a.attnum`,
}

// kinds maps the types that the migrations use.
var kinds = map[string]kind{
	"INTEGER": integer, "TEXT": text, "REAL": real, "BLOB": blob,
	"bigint": integer, "boolean": boolean, "text": text, "double precision": real, "bytea": blob,
}

// isOwnTable reports whether a table is not copied, because it belongs to the migrations or to a copy.
func isOwnTable(name string) bool {
	return strings.HasPrefix(name, "goose_") || strings.HasPrefix(name, "gh_move_")
}

// catalogue lists a store's tables.
func catalogue(ctx context.Context, d *db.DB) ([]table, error) {
	rows, err := db.ReadStore(ctx, d, func(tx *db.Tx) ([]columnRow, error) { return db.All[columnRow](ctx, tx, catalogues[d.Kind()]) })
	if err != nil {
		return nil, err
	}
	var out []table
	places := []int{}
	for i, r := range rows {
		if isOwnTable(r.Table) {
			continue
		}
		if len(out) == 0 || out[len(out)-1].name != r.Table {
			out, places = append(out, table{name: r.Table}), nil
		}
		t := &out[len(out)-1]
		k, known := kinds[r.Type]
		if !known {
			return nil, fmt.Errorf("the column %s.%s has the type %s, which cannot be copied", r.Table, r.Column, r.Type)
		}
		t.columns, places = append(t.columns, column{r.Column, k}), append(places, r.Key)
		if r.Identity {
			t.identity = r.Column
		}
		if i == len(rows)-1 || rows[i+1].Table != r.Table {
			t.key = keyColumns(places)
		}
	}
	return out, nil
}

// names lists the tables of a store, including those that are not copied.
func names(ctx context.Context, tx *db.Tx, kind string) ([]string, error) {
	rows, err := db.All[columnRow](ctx, tx, catalogues[kind])
	var out []string
	for _, r := range rows {
		if len(out) == 0 || out[len(out)-1] != r.Table {
			out = append(out, r.Table)
		}
	}
	return out, err
}

// keyColumns returns the columns of the key in order, given the position of each column in it.
func keyColumns(places []int) []int {
	var out []int
	for n := 1; n <= len(places); n++ {
		for i, p := range places {
			if p == n {
				out = append(out, i)
			}
		}
	}
	if len(out) == 0 {
		for i := range places {
			out = append(out, i)
		}
	}
	return out
}

// merge compares the tables of both stores and returns them, with the columns in the order of the
// source. It returns an error if they differ.
func merge(from, to []table) ([]table, error) {
	other := map[string]table{}
	for _, t := range to {
		other[t.name] = t
	}
	for i, t := range from {
		o, there := other[t.name]
		if !there || len(o.columns) != len(t.columns) {
			return nil, fmt.Errorf("the table %s has other columns in the target", t.name)
		}
		delete(other, t.name)
		types := map[string]kind{}
		for _, c := range o.columns {
			types[c.name] = c.kind
		}
		for n, c := range t.columns {
			k, there := types[c.name]
			switch {
			case !there:
				return nil, fmt.Errorf("the column %s.%s is not in the target", t.name, c.name)
			case k == c.kind:
			case k == boolean && c.kind == integer, k == integer && c.kind == boolean: // SQLite has no booleans
				from[i].columns[n].kind = boolean
			default:
				return nil, fmt.Errorf("the column %s.%s is %s in the source and %s in the target", t.name, c.name, c.kind, k)
			}
		}
		for _, n := range t.key {
			if k := t.columns[n].kind; k == blob || k == real {
				return nil, fmt.Errorf("the table %s has a key of the type %s, which cannot be copied", t.name, k)
			}
		}
	}
	for name := range other {
		return nil, fmt.Errorf("the table %s is only in the target", name)
	}
	return from, nil
}

// version lists the migrations that were applied to a store, as a text for comparison.
func version(ctx context.Context, d *db.DB) (string, error) {
	all, err := db.ReadStore(ctx, d, func(tx *db.Tx) ([]int64, error) {
		return db.All[int64](ctx, tx, `SELECT version_id FROM goose_db_version WHERE is_applied ORDER BY version_id`)
	})
	return fmt.Sprint(all), err
}

// quote quotes the name of a table or column.
func quote(name string) string { return `"` + strings.ReplaceAll(name, `"`, `""`) + `"` }
