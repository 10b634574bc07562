// Package patch describes changes of objects. A PUT changes only the members that are sent.
// A member that cannot be null is a pointer, for Assign.
// Field distinguishes the three states of a member of its body: not sent (keep it), null
// (clear it) and a value (set it). A pointer cannot distinguish null from not sent.
// Differences are what the audit records of a change.
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
	// Sent is set if the member was in the body, null or not.
	Sent bool
	// Null is set if it was null; then Value is the zero T.
	Null  bool
	Value T
}

// Set returns a sent value, for callers in Go.
func Set[T any](v T) Field[T] { return Field[T]{Sent: true, Value: v} }

// Clear returns a sent null.
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

// Assign writes the value of a sent member to dst; nil: it was not sent.
func Assign[T any](dst, sent *T) {
	if sent != nil {
		*dst = *sent
	}
}

// IsZero reports whether the member is absent, so that the tag omitzero omits it.
func (f Field[T]) IsZero() bool { return !f.Sent }

// UnmarshalJSON reads a sent value or null. It is called only for members that were sent.
func (f *Field[T]) UnmarshalJSON(data []byte) error {
	*f = Field[T]{Sent: true}
	if bytes.Equal(bytes.TrimSpace(data), []byte("null")) {
		f.Null = true
		return nil
	}
	return json.Unmarshal(data, &f.Value)
}

// MarshalJSON writes the value, or null if there is none.
func (f Field[T]) MarshalJSON() ([]byte, error) {
	if !f.Sent || f.Null {
		return []byte("null"), nil
	}
	return json.Marshal(f.Value)
}

// Schema returns T's schema, which also allows null. So the field's tags for doc, enum and
// limits apply to the value.
func (Field[T]) Schema(r huma.Registry) *huma.Schema {
	s := r.Schema(reflect.TypeFor[T](), false, "")
	s.Nullable = true
	return s
}
