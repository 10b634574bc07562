package policy

import (
	"context"
	"slices"
	"testing"

	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/db/dbtest"
	"github.com/gatehouse-dev/gatehouse/internal/policy/actions"
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

// TestControlsWithActions: of the controls that were asked for, actions.Of returns those with actions.
func TestControlsWithActions(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, c *db.Cluster) {
		h := newFixture(t, c)
		note := []actions.Action{{Type: actions.Notification, DestinationRef: "channel:1", Trigger: actions.OnDeny}}
		quiet := h.create(t, Draft{Name: "quiet"})
		acts := h.create(t, Draft{Name: "acts", Actions: note})
		h.create(t, Draft{Name: "acts unasked", Actions: note})
		h.in(t, func(ctx context.Context, tx *db.Tx) error {
			got, err := actions.Of(ctx, tx, []int64{quiet.ID, acts.ID, acts.ID + 1000})
			if err == nil && (len(got) != 1 || got[0].ID != acts.ID || len(got[0].Actions) != 1) {
				t.Errorf("actions.Of = %+v, want only %d", got, acts.ID)
			}
			return err
		})
	})
}
