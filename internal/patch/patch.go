// Package patch describes changes of objects. Field tells the three states of a member of a
// PUT body apart: not sent (leave it), null (clear it), a value (set it). A pointer cannot:
// null and absent look alike in it. A PUT changes the members that are sent and leaves the
// others. Differences are what the audit records of a change.
package patch

import (
	"bytes"
	"encoding/json"
	"reflect"

	"github.com/danielgtaylor/huma/v2"
)

// Field is a member of a Change that may be absent, null or a value. The zero
// Field is absent.
type Field[T any] struct {
	// Sent is set when the member stood in the body, null or not.
	Sent bool
	// Null is set when it was null; Value is then the zero T.
	Null  bool
	Value T
}

// Set is a sent value, for callers in Go.
func Set[T any](v T) Field[T] { return Field[T]{Sent: true, Value: v} }

// Clear is a sent null.
func Clear[T any]() Field[T] { return Field[T]{Sent: true, Null: true} }

// Apply writes a sent value, or the zero T for null, to dst.
func (f Field[T]) Apply(dst *T) {
	if f.Sent {
		*dst = f.Value
	}
}

// ApplyPointer is Apply for a member that is itself optional: null gives nil.
func (f Field[T]) ApplyPointer(dst **T) {
	switch {
	case !f.Sent:
	case f.Null:
		*dst = nil
	default:
		v := f.Value
		*dst = &v
	}
}

// IsZero makes the tag omitzero leave an absent member out.
func (f Field[T]) IsZero() bool { return !f.Sent }

// UnmarshalJSON is called only for members that are there.
func (f *Field[T]) UnmarshalJSON(data []byte) error {
	*f = Field[T]{Sent: true}
	if bytes.Equal(bytes.TrimSpace(data), []byte("null")) {
		f.Null = true
		return nil
	}
	return json.Unmarshal(data, &f.Value)
}

// MarshalJSON writes the value, or null.
func (f Field[T]) MarshalJSON() ([]byte, error) {
	if !f.Sent || f.Null {
		return []byte("null"), nil
	}
	return json.Marshal(f.Value)
}

// Schema is T's own schema, null allowed, so that a field's doc, enum and
// limit tags go to the value.
func (Field[T]) Schema(r huma.Registry) *huma.Schema {
	s := r.Schema(reflect.TypeFor[T](), false, "")
	s.Nullable = true
	return s
}
