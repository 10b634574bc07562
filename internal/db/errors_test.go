package db

import (
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
)

// TestRetryable: conflicts with other sessions are retried; errors of the statement or the server
// are not.
func TestRetryable(t *testing.T) {
	for _, c := range []struct {
		code, message string
		want          bool
	}{
		{"40001", "could not serialize access due to concurrent update", true},
		{"40P01", "deadlock detected", true},
		{"0A000", "cached plan must not change result type", true},
		{"0A000", "cross-database references are not implemented", false},
		{"XX000", "cache lookup failed for database 1032115", true},
		{"XX000", "cache lookup failed for relation 16384", false},
		{"XX001", "invalid page in block 0 of relation", false},
		{"23505", "duplicate key value violates unique constraint", false},
	} {
		if got := retryable(&pgconn.PgError{Code: c.code, Message: c.message}); got != c.want {
			t.Errorf("retryable(%s %s) = %t, want %t", c.code, c.message, got, c.want)
		}
	}
}
