package db

import (
	"context"
	"strconv"
	"strings"
)

// keyPortions are the possible numbers of keys in one query of AllIn. There are only a few, so that
// the backend can keep a prepared statement for each.
var keyPortions = []int{500, 100, 20, 5, 1}

// AllIn runs a query for any number of keys and maps all rows, like All. It runs the query several
// times, each with some of the keys. In sql, $in stands for the placeholders of the keys, whose
// numbers follow those of args:
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

// Placeholders returns n numbered placeholders, such as "$4, $5, $6" for first 4 and n 3.
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
