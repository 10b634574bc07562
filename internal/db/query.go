package db

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"reflect"
	"slices"
	"sync"
)

// One runs a query and maps its first row to a T: a struct with `db` tags, or a single
// column's value. Without a row the error is ErrNoRows.
func One[T any](ctx context.Context, tx *Tx, sql string, args ...any) (T, error) {
	for row, err := range Rows[T](ctx, tx, sql, args...) {
		return row, err
	}
	var none T
	return none, ErrNoRows
}

// OneOrZero is like One, but without a row it returns the zero value of T and no error.
func OneOrZero[T any](ctx context.Context, tx *Tx, sql string, args ...any) (T, error) {
	v, err := One[T](ctx, tx, sql, args...)
	if errors.Is(err, ErrNoRows) {
		err = nil
	}
	return v, err
}

// All runs a query and maps all its rows, like One. The slice is never nil.
func All[T any](ctx context.Context, tx *Tx, sql string, args ...any) ([]T, error) {
	list := []T{}
	for row, err := range Rows[T](ctx, tx, sql, args...) {
		if err != nil {
			return []T{}, err
		}
		list = append(list, row)
	}
	return list, nil
}

// Rows runs a query and yields its rows one at a time, for results that are too large for memory.
// After an error, it ends. No other statement may run in the transaction until the loop ends.
func Rows[T any](ctx context.Context, tx *Tx, sql string, args ...any) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		var none T
		vals, err := tx.args(ctx, args)
		if err != nil {
			yield(none, err)
			return
		}
		cur, err := tx.txn.query(ctx, sql, vals)
		if err != nil {
			yield(none, tx.failed(ctx, err))
			return
		}
		err = each(ctx, cur, func(row T) bool { return yield(row, nil) })
		if err != nil {
			yield(none, tx.failed(ctx, err))
		}
	}
}

// Values runs a query and yields the values of its rows as the driver reads them: nil, int64,
// float64, bool, string or []byte. Otherwise it is like Rows.
func Values(ctx context.Context, tx *Tx, sql string, args ...any) iter.Seq2[[]any, error] {
	return func(yield func([]any, error) bool) {
		vals, err := tx.args(ctx, args)
		if err != nil {
			yield(nil, err)
			return
		}
		cur, err := tx.txn.query(ctx, sql, vals)
		if err != nil {
			yield(nil, tx.failed(ctx, err))
			return
		}
		for {
			row, err := cur.next(ctx)
			if err != nil || row == nil {
				if err = errors.Join(err, cur.close()); err != nil {
					yield(nil, tx.failed(ctx, err))
				}
				return
			}
			if !yield(slices.Clone(row), nil) {
				_ = cur.close() // the caller stopped, so an error does not matter
				return
			}
		}
	}
}

// each maps the rows of cur until it ends or do returns false, and closes it.
func each[T any](ctx context.Context, cur cursor, do func(T) bool) (err error) {
	stopped := false
	defer func() {
		if e := cur.close(); err == nil && !stopped {
			err = e
		}
	}()
	var names []string
	var fields []field
	for {
		src, err := cur.next(ctx)
		if err != nil {
			return err
		}
		if names == nil {
			names = cur.columns()
			if fields, err = planOf(reflect.TypeFor[T]()).fields(names); err != nil {
				return err
			}
		}
		if src == nil {
			return nil
		}
		var row T
		dst := reflect.ValueOf(&row).Elem()
		for i, f := range fields {
			at := dst
			if f.index != nil {
				at = dst.FieldByIndex(f.index)
			}
			if err := f.set(at, src[i]); err != nil {
				return fmt.Errorf("column %s: %w", names[i], err)
			}
		}
		if !do(row) {
			stopped = true
			return nil
		}
	}
}

// plan says how to convert rows to values of one type. It is computed once for each type.
type plan struct {
	scalar  setter // set when the type takes a single column
	columns map[string]field
	name    string
}

type field struct {
	index []int
	set   setter
}

// plans caches the plans. It can be global because a plan depends on nothing but the type.
var plans sync.Map // reflect.Type → *plan

func planOf(t reflect.Type) *plan {
	if p, ok := plans.Load(t); ok {
		return p.(*plan)
	}
	p := &plan{columns: map[string]field{}, name: t.String()}
	if t.Kind() == reflect.Struct && t != timeType {
		p.collect(t, nil)
	}
	if len(p.columns) == 0 {
		p.scalar = setterOf(t)
	}
	actual, _ := plans.LoadOrStore(t, p)
	return actual.(*plan)
}

// collect adds the tagged fields of t, including those of embedded structs.
func (p *plan) collect(t reflect.Type, at []int) {
	for i := range t.NumField() {
		f := t.Field(i)
		index := append(append([]int{}, at...), i)
		tag := f.Tag.Get("db")
		switch {
		case tag == "-":
		case tag != "":
			p.columns[tag] = field{index: index, set: setterOf(f.Type)}
		case f.Anonymous && f.Type.Kind() == reflect.Struct:
			p.collect(f.Type, index)
		}
	}
}

// fields matches a result's columns to fields. A column without a field is an error.
func (p *plan) fields(names []string) ([]field, error) {
	if p.scalar != nil {
		if len(names) != 1 {
			return nil, fmt.Errorf("%d columns do not fit one %s", len(names), p.name)
		}
		return []field{{set: p.scalar}}, nil
	}
	out := make([]field, len(names))
	for i, name := range names {
		f, ok := p.columns[name]
		if !ok {
			return nil, fmt.Errorf("%s has no field for column %s", p.name, name)
		}
		out[i] = f
	}
	return out, nil
}
