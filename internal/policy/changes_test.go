package policy

import (
	"context"
	"maps"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/db/dbtest"
	"github.com/gatehouse-dev/gatehouse/internal/errtest"
	"github.com/gatehouse-dev/gatehouse/internal/resource"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

// TestFollowingChangesGivesTheControls: a reader that applies ControlsSince has the active controls
// after every kind of change.
func TestFollowingChangesGivesTheControls(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, c *db.Cluster) {
		ctx, h := context.Background(), newFixture(t, c)
		type follower struct {
			at   int64
			have map[int64]Control
		}
		followers := map[scope.Env]*follower{scope.Sandbox: {have: map[int64]Control{}}, scope.Production: {have: map[int64]Control{}}}
		follow := func(after string) {
			t.Helper()
			for env, f := range followers {
				h.in(t, func(ctx context.Context, tx *db.Tx) error {
					to, err := tx.Revision(ctx, resource.Revision(env))
					if err != nil {
						return err
					}
					r, ok, err := resource.DocsSince(ctx, tx, env, f.at, to)
					if err != nil || !ok {
						t.Errorf("%s: DocsSince = %v, %v, want all changes", after, ok, err)
					}
					d, err := ControlsSince(ctx, tx, env, f.at)
					if err != nil {
						return err
					}
					if d.Revisions+r.Revisions != to-f.at {
						t.Errorf("%s: %d and %d of %d revisions in %s are reported", after, d.Revisions, r.Revisions, to-f.at, env)
					}
					for _, c := range d.Controls {
						f.have[c.ID] = c
					}
					for _, id := range d.Removed {
						delete(f.have, id)
					}
					f.at = to
					all, err := ControlsFor(ctx, tx, env)
					got := []Control{}
					for _, id := range slices.Sorted(maps.Keys(f.have)) {
						got = append(got, f.have[id])
					}
					if diff := cmp.Diff(append([]Control{}, all...), got); diff != "" {
						t.Errorf("%s: followed in %s (-stored +followed):\n%s", after, env, diff)
					}
					return err
				})
			}
		}
		change := func(_ any, err error) { t.Helper(); errtest.Must(t, err) }
		follow("no change")
		first := h.create(t, Draft{Name: "first", Status: Active})
		follow("create")
		second := h.create(t, Draft{Name: "second"})
		follow("create a draft")
		change(h.Update(ctx, sc(""), second.ID, Change{Status: new(Active)}, 0))
		follow("activate")
		change(h.Update(ctx, sc(""), first.ID, Change{RegoCode: new(better)}, 0))
		change(h.Update(ctx, sc(""), second.ID, Change{Name: new("renamed")}, 0))
		follow("two updates")
		change(h.Delete(ctx, sc(""), first.ID, false, 0))
		follow("delete")
		change(h.Restore(ctx, sc(""), first.ID))
		follow("restore")
		change(h.Promote(ctx, sc(""), first.ID, Promotion{}, 0))
		follow("promote")
		change(h.Update(ctx, sc(""), second.ID, Change{Status: new(Inactive)}, 0))
		follow("deactivate")
		change(h.Delete(ctx, sc(""), first.ID, true, 0))
		follow("erase an active one")
		h.resource(t, scope.Sandbox, "pay")
		follow("create a resource")
	})
}
