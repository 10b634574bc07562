package bridge

import (
	"context"
	"testing"

	"github.com/gatehouse-dev/gatehouse/internal/patch"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
	"github.com/gatehouse-dev/gatehouse/internal/tenant"
)

// TestReplaySettingReachesBouncers: a bouncer gets a new bundle when its tenant turns the storage
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
		told := func(i int) any {
			t.Helper()
			tag, b := clients[i].fetch(tags[i])
			tags[i] = tag
			own, ok := b.Meta["bouncer"].(map[string]any)
			if !ok {
				t.Fatalf("bouncer %d is not told of itself: %v", i, b.Meta)
			}
			return own["replay"]
		}
		for i := range clients {
			if got := told(i); got != nil {
				t.Errorf("bouncer %d is told %v at first", i, got)
			}
		}
		feeds := []*environment{h.environment(environmentKey{scope.DefaultTenant, scope.Production}), h.environment(environmentKey{scope.DefaultTenant, scope.Sandbox})}
		registry := func() int64 {
			t.Helper()
			store, err := h.stores.Tenant(ctx, scope.DefaultTenant)
			if err != nil {
				t.Fatal(err)
			}
			n, err := store.Revision(ctx, tenant.BouncerRevision)
			if err != nil {
				t.Fatal(err)
			}
			return n
		}
		for _, step := range []struct {
			name string
			set  tenant.Settings
			news bool
			want any
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
			before, made := registry(), h.made()
			sc := person(scope.DefaultTenant)
			sc.Platform = true
			if _, err := h.tenants.Update(ctx, sc, scope.DefaultTenant, tenant.Change{Settings: patch.Set(step.set)}); err != nil {
				t.Fatalf("%s: %v", step.name, err)
			}
			if moved := registry() != before; moved != step.news {
				t.Errorf("%s: the feeds are told to look: %v, want %v", step.name, moved, step.news)
			}
			if step.news {
				for i := range clients {
					if got := told(i); got != step.want {
						t.Errorf("%s: bouncer %d is told %v, want %v", step.name, i, got, step.want)
					}
				}
			} else {
				for _, f := range feeds {
					f.noteChange() // even if something else triggers a refresh
					if err := f.refresh(ctx); err != nil {
						t.Fatal(err)
					}
				}
				for i, g := range clients {
					if a, err := g.poll(0, "conn", tags[i]); err != nil || a.Parts != nil {
						t.Errorf("%s: bouncer %d got a bundle, or the error %v", step.name, i, err)
					}
				}
			}
			if now := h.made(); now != made {
				t.Errorf("%s: made %+v anew of %+v: the setting is in no content that bouncers share", step.name, now, made)
			}
		}
	})
}

// made returns the work of production so far.
func (h *fixture) made() packTotals {
	w, _, _ := h.rounds()
	return w
}
