package tablecopy

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"iter"
	"math"
	"strconv"
	"strings"

	"github.com/gatehouse-dev/gatehouse/internal/db"
)

// names lists the columns.
func (t table) names() string {
	var out []string
	for _, c := range t.columns {
		out = append(out, quote(c.name))
	}
	return strings.Join(out, ", ")
}

// keyNames lists the columns of the key, each after a prefix.
func (t table) keyNames(prefix string) string {
	var out []string
	for _, n := range t.key {
		out = append(out, prefix+quote(t.columns[n].name))
	}
	return strings.Join(out, ", ")
}

// keyTypes are the SQL types of the key's columns.
func (t table) keyTypes() []string {
	var out []string
	for _, n := range t.key {
		out = append(out, string(t.columns[n].kind))
	}
	return out
}

// all yields all rows.
func (t table) all(ctx context.Context, tx *db.Tx) iter.Seq2[[]any, error] {
	return t.query(ctx, tx, `SELECT `+t.names()+` FROM `+quote(t.name))
}

// query yields rows of all columns, normalised.
func (t table) query(ctx context.Context, tx *db.Tx, text string, args ...any) iter.Seq2[[]any, error] {
	return func(yield func([]any, error) bool) {
		for row, err := range db.Values(ctx, tx, text, args...) {
			for i := range row {
				if err == nil {
					row[i], err = normalise(row[i], t.columns[i])
				}
			}
			if !yield(row, err) || err != nil {
				return
			}
		}
	}
}

// normalise converts a value to a form that is the same for both kinds of store: nil, int64, bool,
// string, float64 or []byte.
func normalise(v any, c column) (any, error) {
	if v == nil {
		return nil, nil
	}
	switch c.kind {
	case integer:
		switch n := v.(type) {
		case int64:
			return n, nil
		case int32:
			return int64(n), nil
		}
	case boolean:
		switch n := v.(type) {
		case bool:
			return n, nil
		case int64:
			if n == 0 || n == 1 {
				return n == 1, nil
			}
		}
	case text:
		if s, ok := v.(string); ok {
			return s, nil
		}
	case real:
		switch n := v.(type) {
		case float64:
			if n == 0 {
				n = 0 // SQLite has no negative zero
			}
			return n, nil
		case int64:
			return float64(n), nil
		}
	case blob:
		if b, ok := v.([]byte); ok {
			return append([]byte{}, b...), nil
		}
	}
	return nil, fmt.Errorf("the column %s contains a value of the type %T", c.name, v)
}

// insert adds rows.
func (t table) insert(ctx context.Context, tx *db.Tx, rows [][]any) error {
	if len(rows) == 0 {
		return nil
	}
	return db.DoRows(ctx, tx, `INSERT INTO `+quote(t.name)+` (`+t.names()+`) VALUES `, rows, "")
}

// remove deletes the rows with the keys.
func (t table) remove(ctx context.Context, tx *db.Tx, keys map[string][]any) error {
	if len(keys) == 0 {
		return nil
	}
	rows := make([][]any, 0, len(keys))
	for _, k := range keys {
		rows = append(rows, k)
	}
	return db.DoRows(ctx, tx, `DELETE FROM `+quote(t.name)+` WHERE (`+t.keyNames("")+`) IN (VALUES `, rows, `)`, t.keyTypes()...)
}

// lookups are the possible numbers of keys in one query. There are only a few, so that statements
// stay prepared.
var lookups = []int{500, 50, 1}

// find reads the rows with the keys.
func (t table) find(ctx context.Context, tx *db.Tx, keys map[string][]any) ([][]any, error) {
	list := make([][]any, 0, len(keys))
	for _, k := range keys {
		list = append(list, k)
	}
	var out [][]any
	for len(list) > 0 {
		n := 1
		for _, size := range lookups {
			if len(list) >= size {
				n = size
				break
			}
		}
		text, args := t.lookup(list[:n])
		for row, err := range t.query(ctx, tx, text, args...) {
			if err != nil {
				return nil, err
			}
			out = append(out, row)
		}
		list = list[n:]
	}
	return out, nil
}

// lookup returns the query for the rows with the keys, and its arguments.
func (t table) lookup(keys [][]any) (string, []any) {
	var b strings.Builder
	var args []any
	b.WriteString(`SELECT ` + t.names() + ` FROM ` + quote(t.name) + ` WHERE (` + t.keyNames("") + `) IN (VALUES `)
	for i, key := range keys {
		if i > 0 {
			b.WriteString(", ")
		}
		b.WriteByte('(')
		for j, v := range key {
			if j > 0 {
				b.WriteString(", ")
			}
			args = append(args, v)
			b.WriteString("CAST($" + strconv.Itoa(len(args)) + " AS " + string(t.columns[t.key[j]].kind) + ")")
		}
		b.WriteByte(')')
	}
	b.WriteByte(')')
	return b.String(), args
}

// keyOf returns the key of a row as text.
func (t table) keyOf(row []any) string {
	key := make([]any, len(t.key))
	for i, n := range t.key {
		key[i] = row[n]
	}
	return keyText(key)
}

func keyText(key []any) string {
	b, err := json.Marshal(key)
	if err != nil {
		panic(err) // only numbers, texts and booleans
	}
	return string(b)
}

// parseKey reads the key that a trigger wrote as a JSON array.
func (t table) parseKey(s string) ([]any, error) {
	dec := json.NewDecoder(strings.NewReader(s))
	dec.UseNumber()
	var key []any
	if err := dec.Decode(&key); err != nil || len(key) != len(t.key) {
		return nil, fmt.Errorf("table %s: the change of %q cannot be read", t.name, s)
	}
	for i, v := range key {
		if n, ok := v.(json.Number); ok {
			whole, err := n.Int64()
			if err != nil {
				return nil, fmt.Errorf("table %s: the change of %q cannot be read", t.name, s)
			}
			v = whole
		}
		var err error
		if key[i], err = normalise(v, t.columns[t.key[i]]); err != nil {
			return nil, err
		}
	}
	return key, nil
}

// sum is a checksum of rows that does not depend on their order.
type sum struct {
	rows int64
	a, b uint64
}

func (s *sum) add(h [sha256.Size]byte) {
	s.rows++
	s.a += binary.BigEndian.Uint64(h[:8])
	s.b += binary.BigEndian.Uint64(h[8:16])
}

func (t table) sumOf(rows [][]any) (out sum) {
	for _, row := range rows {
		out.add(t.hash(row))
	}
	return out
}

// hash returns a hash of a row's values. It distinguishes types, and NULL from an empty value.
func (t table) hash(row []any) [sha256.Size]byte {
	var b bytes.Buffer
	for _, v := range row {
		switch v := v.(type) {
		case nil:
			b.WriteByte('n')
		case int64:
			b.WriteByte('i')
			_ = binary.Write(&b, binary.BigEndian, v)
		case bool:
			b.WriteByte('b')
			b.WriteString(strconv.FormatBool(v))
		case float64:
			b.WriteByte('f')
			_ = binary.Write(&b, binary.BigEndian, math.Float64bits(v))
		case string:
			b.WriteByte('s')
			_ = binary.Write(&b, binary.BigEndian, int64(len(v)))
			b.WriteString(v)
		case []byte:
			b.WriteByte('x')
			_ = binary.Write(&b, binary.BigEndian, int64(len(v)))
			b.Write(v)
		}
	}
	return sha256.Sum256(b.Bytes())
}

// rowSize estimates the size of a row in bytes.
func rowSize(row []any) int {
	n := 8 * len(row)
	for _, v := range row {
		switch v := v.(type) {
		case string:
			n += len(v)
		case []byte:
			n += len(v)
		}
	}
	return n
}
