package policy

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/db/dbtest"
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

// TestWithActions: of the controls asked about, those with actions come back, whichever others
// have some. The list of all that have any is an index: each batch of decisions asks for it.
func TestWithActions(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, c *db.Cluster) {
		h := newHouse(t, c)
		note := []Action{{Type: Notification, DestinationRef: "channel:1", Trigger: OnDeny}}
		quiet := h.create(t, Draft{Name: "quiet"})
		acts := h.create(t, Draft{Name: "acts", Actions: note})
		h.create(t, Draft{Name: "acts unasked", Actions: note})
		h.in(t, func(ctx context.Context, tx *db.Tx) error {
			got, err := WithActions(ctx, tx, []int64{quiet.ID, acts.ID, acts.ID + 1000})
			if err == nil && (len(got) != 1 || got[0].ID != acts.ID || len(got[0].Actions) != 1) {
				t.Errorf("%+v", got)
			}
			return err
		})
	})
	t.Run("plan", func(t *testing.T) {
		h := newHouse(t, dbtest.Open(t, dbtest.SQLite))
		h.in(t, func(ctx context.Context, tx *db.Tx) error {
			plan, err := db.All[struct {
				ID     int64  `db:"id"`
				Parent int64  `db:"parent"`
				Unused int64  `db:"notused"`
				Detail string `db:"detail"`
			}](ctx, tx, "EXPLAIN QUERY PLAN "+actingIDs)
			if err == nil && (len(plan) != 1 || !strings.Contains(plan[0].Detail, "policies_acting")) {
				t.Errorf("%+v", plan)
			}
			return err
		})
	})
}
