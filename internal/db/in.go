package db

import (
	"context"
	"strconv"
	"strings"
)

// keyPortions are the possible numbers of keys in one query of AllIn. A few sizes make few
// texts, and each backend keeps a prepared statement for each.
var keyPortions = []int{500, 100, 20, 5, 1}

// AllIn runs a query for many keys, a portion of them at a time, and maps all its rows. In
// sql, each $in becomes the placeholders of a portion's keys, which come after args:
//
//	SELECT a FROM t WHERE b = $1 AND c IN ($in)
func AllIn[T, K any](ctx context.Context, tx *Tx, sql string, keys []K, args ...any) ([]T, error) {
	var out []T
	for len(keys) > 0 {
		n := keyPortion(len(keys))
		all := append(make([]any, 0, len(args)+n), args...)
		for _, key := range keys[:n] {
			all = append(all, key)
		}
		found, err := All[T](ctx, tx, strings.ReplaceAll(sql, "$in", Placeholders(len(args)+1, n)), all...)
		if err != nil {
			return nil, err
		}
		out, keys = append(out, found...), keys[n:]
	}
	return out, nil
}

func keyPortion(n int) int {
	for _, size := range keyPortions {
		if n >= size {
			return size
		}
	}
	return 1
}

// Placeholders returns the placeholders of n arguments, starting with number first: $4, $5, $6.
func Placeholders(first, n int) string {
	var b strings.Builder
	for i := range n {
		if i > 0 {
			b.WriteString(", ")
		}
		b.WriteByte('$')
		b.WriteString(strconv.Itoa(first + i))
	}
	return b.String()
}
