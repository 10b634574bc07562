package policy

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/db/dbtest"
)

// wantAudit fails unless the administrative log has entries of these types, oldest first.
func (h *fixture) wantAudit(t *testing.T, want ...string) {
	t.Helper()
	h.wantTypes(t, "audit_events", want)
}

// wantTypes fails unless the rows of a table have these types, oldest first.
func (h *fixture) wantTypes(t *testing.T, table string, want []string) {
	t.Helper()
	h.in(t, func(ctx context.Context, tx *db.Tx) error {
		got, err := db.All[string](ctx, tx, `SELECT type FROM `+table+` ORDER BY seq`)
		if !slices.Equal(got, want) {
			t.Errorf("types in %s = %v, want %v", table, got, want)
		}
		return err
	})
}

// wantEvents fails unless events of these types were emitted, oldest first.
func (h *fixture) wantEvents(t *testing.T, want ...string) {
	t.Helper()
	h.wantTypes(t, "events", want)
}

// TestWithActions: WithActions returns the controls with actions, and only those that were asked
// for. The query for all controls with actions must use the index, because every batch of decisions
// runs it.
func TestWithActions(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, c *db.Cluster) {
		h := newFixture(t, c)
		note := []Action{{Type: Notification, DestinationRef: "channel:1", Trigger: OnDeny}}
		quiet := h.create(t, Draft{Name: "quiet"})
		acts := h.create(t, Draft{Name: "acts", Actions: note})
		h.create(t, Draft{Name: "acts unasked", Actions: note})
		h.in(t, func(ctx context.Context, tx *db.Tx) error {
			got, err := WithActions(ctx, tx, []int64{quiet.ID, acts.ID, acts.ID + 1000})
			if err == nil && (len(got) != 1 || got[0].ID != acts.ID || len(got[0].Actions) != 1) {
				t.Errorf("WithActions = %+v, want only %d", got, acts.ID)
			}
			return err
		})
	})
	t.Run("plan", func(t *testing.T) {
		h := newFixture(t, dbtest.Open(t, dbtest.SQLite))
		h.in(t, func(ctx context.Context, tx *db.Tx) error {
			plan, err := db.All[struct {
				ID     int64  `db:"id"`
				Parent int64  `db:"parent"`
				Unused int64  `db:"notused"`
				Detail string `db:"detail"`
			}](ctx, tx, "EXPLAIN QUERY PLAN "+actingIDs)
			if err == nil && (len(plan) != 1 || !strings.Contains(plan[0].Detail, "policies_acting")) {
				t.Errorf("plan = %+v, want the index policies_acting", plan)
			}
			return err
		})
	})
}
