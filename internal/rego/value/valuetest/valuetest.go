// Package valuetest decodes JSON documents in tests.
package valuetest

import (
	"testing"

	"github.com/gatehouse-dev/gatehouse/internal/rego/value"
)

// Decode decodes a JSON document, and fails the test if it is not valid.
func Decode(t testing.TB, text string) value.Value {
	t.Helper()
	v, err := value.Decode([]byte(text), value.Limits{})
	if err != nil {
		t.Fatalf("decode %s: %v", text, err)
	}
	return v
}
