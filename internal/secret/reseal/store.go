package reseal

import (
	"bytes"
	"context"
	"fmt"

	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

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
