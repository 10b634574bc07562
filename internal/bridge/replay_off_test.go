package bridge

import (
	"context"
	"testing"

	"github.com/gatehouse-dev/gatehouse/internal/errtest"
	"github.com/gatehouse-dev/gatehouse/internal/patch"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
	"github.com/gatehouse-dev/gatehouse/internal/tenant"
)

// TestReplaySettingReachesBouncers checks that a bouncer gets a new bundle when its tenant turns the storage
// of replay inputs off or on. Other changes of the settings cause no new bundle, and not even a
// refresh of the environment.
func TestReplaySettingReachesBouncers(t *testing.T) {
	each(t, func(t *testing.T, h *fixture) {
		ctx := context.Background()
		r := h.resource(scope.Production, "/a")
		h.control(scope.Production, "a", r.ID, alice)
		h.resource(scope.Sandbox, "/b")
		clients := []*client{h.bouncer(scope.Production, nil, r.ID), h.bouncer(scope.Production, map[string]any{"signing": "signed"}, r.ID), h.bouncer(scope.Sandbox, nil)}
		tags := make([]string, len(clients))
		replayOf := func(i int) any {
			t.Helper()
			tag, b := clients[i].fetch(tags[i])
			tags[i] = tag
			own, ok := b.Meta["bouncer"].(map[string]any)
			if !ok {
				t.Fatalf("bouncer %d: the metadata is %v, want the bouncer in it", i, b.Meta)
			}
			return own["replay"]
		}
		for i := range clients {
			if got := replayOf(i); got != nil {
				t.Errorf("bouncer %d: replay = %v at first, want none", i, got)
			}
		}
		environments := []*environment{h.environment(environmentKey{scope.DefaultTenant, scope.Production}), h.environment(environmentKey{scope.DefaultTenant, scope.Sandbox})}
		registry := func() int64 {
			t.Helper()
			store, err := h.stores.Tenant(ctx, scope.DefaultTenant)
			errtest.Must(t, err)
			n, err := store.Revision(ctx, tenant.BouncerRevision)
			errtest.Must(t, err)
			return n
		}
		for _, step := range []struct {
			name    string
			set     tenant.Settings
			changes bool
			want    any
		}{
			{"hours", tenant.Settings{"replay": 72.0}, false, nil},
			{"off", tenant.Settings{"replay": "off"}, true, "off"},
			{"off again", tenant.Settings{"replay": "off"}, false, nil},
			{"another setting while off", tenant.Settings{"x-theme": "dark", "four_eyes": true}, false, nil},
			{"bounds", tenant.Settings{"replay": map[string]any{"hours": 2.0, "size_mib": 1.0}}, true, nil},
			{"other bounds", tenant.Settings{"replay": map[string]any{"hours": 3.0}}, false, nil},
			{"removed", tenant.Settings{"replay": nil}, false, nil},
			{"another setting", tenant.Settings{"impact_gate": "warn"}, false, nil},
			{"off once more", tenant.Settings{"replay": "off"}, true, "off"},
			{"removed from off", tenant.Settings{"replay": nil}, true, nil},
		} {
			before, work := registry(), h.workDone()
			sc := person(scope.DefaultTenant)
			sc.Platform = true
			if _, err := h.tenants.Update(ctx, sc, scope.DefaultTenant, tenant.Change{Settings: patch.Set(step.set)}); err != nil {
				t.Fatalf("%s: %v", step.name, err)
			}
			if changed := registry() != before; changed != step.changes {
				t.Errorf("%s: the revision of bouncers changed: %v, want %v", step.name, changed, step.changes)
			}
			if step.changes {
				for i := range clients {
					if got := replayOf(i); got != step.want {
						t.Errorf("%s: bouncer %d: replay = %v, want %v", step.name, i, got, step.want)
					}
				}
			} else {
				for _, f := range environments {
					f.noteChange() // even if something else triggers a refresh
					errtest.Must(t, f.refresh(ctx))
				}
				for i, g := range clients {
					g.wantNothing(step.name, "conn", tags[i])
				}
			}
			if done := h.workDone(); done != work {
				t.Errorf("%s: the work is %+v after %+v, want no more: no content that bouncers share has the setting", step.name, done, work)
			}
		}
	})
}

// workDone returns the work of production's environment so far.
func (h *fixture) workDone() packTotals {
	w, _, _ := h.rounds()
	return w
}
