package rest

import (
	"context"
	"fmt"
	"testing"

	"github.com/gatehouse-dev/gatehouse/internal/fault"
)

// TestContextErrors: an error of the request's context is not an internal error.
func TestContextErrors(t *testing.T) {
	for code, err := range map[string]error{
		"cancelled": fmt.Errorf("read: %w", context.Canceled), "timeout": fmt.Errorf("read: %w", context.DeadlineExceeded),
	} {
		if f := AsFault(err); f.Kind != fault.Unavailable || f.Code != code || f.Cause != err {
			t.Errorf("AsFault(%v) = %+v, want %s", err, f, code)
		}
	}
}
