package policy

import (
	"context"
	"slices"
	"testing"

	"github.com/gatehouse-dev/gatehouse/internal/db"
)

// audited gives the types of the administrative log, oldest first.
func (h *house) audited(t *testing.T, want ...string) {
	t.Helper()
	var got []string
	h.in(t, func(ctx context.Context, tx *db.Tx) error {
		rows, err := db.All[string](ctx, tx, `SELECT type FROM audit_events ORDER BY seq`)
		got = rows
		return err
	})
	if !slices.Equal(got, want) {
		t.Errorf("audited %v, want %v", got, want)
	}
}

// told gives the types of the events emitted, oldest first.
func (h *house) told(t *testing.T, want ...string) {
	t.Helper()
	var got []string
	h.in(t, func(ctx context.Context, tx *db.Tx) error {
		rows, err := db.All[string](ctx, tx, `SELECT type FROM events ORDER BY seq`)
		got = rows
		return err
	})
	if !slices.Equal(got, want) {
		t.Errorf("told %v, want %v", got, want)
	}
}
