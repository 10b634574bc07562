package reseal

import (
	"bytes"
	"context"
	"fmt"
	"strings"

	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

// firstPages returns the values of the first rows of each column, in few queries: in most tenants,
// most columns have none. No page is nil.
func firstPages(ctx context.Context, tx *db.Tx, columns []Column) ([][]Value, error) {
	sealed, err := withValues(ctx, tx, columns)
	if err != nil {
		return nil, err
	}
	pages := make([][]Value, len(columns))
	for i, c := range columns {
		if pages[i] = []Value{}; !sealed[i] {
			continue
		}
		page, err := c.list(ctx, tx, nil)
		if err != nil {
			return nil, err
		}
		pages[i] = append(pages[i], page...)
	}
	return pages, nil
}

// withValues reports which columns have a sealed value. It does not look into columns with a List.
func withValues(ctx context.Context, tx *db.Tx, columns []Column) ([]bool, error) {
	out := make([]bool, len(columns))
	var at []int
	var asked []string
	for i, c := range columns {
		if out[i] = c.List != nil; out[i] {
			continue
		}
		at = append(at, i)
		asked = append(asked, `CASE WHEN EXISTS (SELECT 1 FROM `+c.Table+` WHERE length(`+c.Name+`) > 0) THEN 1 ELSE 0 END`)
	}
	if len(asked) == 0 {
		return out, nil
	}
	for row, err := range db.Values(ctx, tx, `SELECT `+strings.Join(asked, ", ")) {
		if err != nil {
			return nil, err
		}
		for j, v := range row {
			out[at[j]] = fmt.Sprint(v) == "1"
		}
	}
	return out, nil
}

// list returns the values of the next rows after a key; nil: of the first ones. The names in the
// text come from the declarations in the program.
func (c Column) list(ctx context.Context, tx *db.Tx, after any) ([]Value, error) {
	if c.List != nil {
		return c.List(ctx, tx)
	}
	tenant, where, args := "''", "", []any{batch}
	if c.Tenant != "" {
		tenant = c.Tenant
	}
	if after != nil {
		where, args = "WHERE "+c.Key+" > $2 ", append(args, after)
	}
	var out []Value
	for row, err := range db.Values(ctx, tx, `SELECT `+c.Key+`, `+tenant+`, `+c.Name+` FROM `+c.Table+` `+where+`ORDER BY `+c.Key+` LIMIT $1`, args...) {
		if err != nil {
			return nil, err
		}
		owner, _ := row[1].(string)
		sealed, ok := row[2].([]byte)
		if !ok {
			return nil, fmt.Errorf("the value of row %v is not bytes", row[0])
		}
		out = append(out, Value{row[0], scope.TenantID(owner), bytes.Clone(sealed)})
	}
	return out, nil
}

// replace stores a value again, unless it has changed since it was read.
func (c Column) replace(ctx context.Context, tx *db.Tx, v Value, again []byte) (bool, error) {
	if c.Replace != nil {
		return c.Replace(ctx, tx, v, again)
	}
	n, err := tx.Exec(ctx, `UPDATE `+c.Table+` SET `+c.Name+` = $3 WHERE `+c.Key+` = $1 AND `+c.Name+` = $2`, v.Key, v.Sealed, again)
	return n > 0, err
}
