package bridge

import (
	"context"
	"fmt"
	"testing"

	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/errtest"
	"github.com/gatehouse-dev/gatehouse/internal/fulltest"
	"github.com/gatehouse-dev/gatehouse/internal/patch"
	"github.com/gatehouse-dev/gatehouse/internal/rego/bundle"
	"github.com/gatehouse-dev/gatehouse/internal/resource"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

// populate creates resources that no bouncer protects, as an import does.
func (h *fixture) populate(n int) {
	h.t.Helper()
	ctx := context.Background()
	store, err := h.stores.Tenant(ctx, scope.DefaultTenant)
	if err != nil {
		h.t.Fatal(err)
	}
	err = store.Write(ctx, func(tx *db.Tx) error {
		_, err := tx.Exec(ctx, fmt.Sprintf(`WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < %d)
			INSERT INTO resources (name, type, environment, path, auto_discovered, version, created_at, updated_at)
			SELECT 'service ' || i, 'api', 'production', '/svc' || i || '/{id}', FALSE, 1, 0, 0 FROM n`, n))
		return err
	})
	if err != nil {
		h.t.Fatal(err)
	}
}

// rounds returns the work of the environment so far, the number of cached resources, and the packed
// contents with their number of bouncers.
func (h *fixture) rounds() (w packTotals, resources int, contents map[*bundle.Packed]int) {
	f := h.environment(environmentKey{scope.DefaultTenant, scope.Production})
	f.refreshing.Lock()
	defer f.refreshing.Unlock()
	f.mu.Lock()
	defer f.mu.Unlock()
	contents = map[*bundle.Packed]int{}
	for _, d := range f.states {
		contents[d.currentTarget().packed]++
	}
	return f.packs.work, len(f.packs.resources), contents
}

// TestChangeRebuildsOnlyWhatItAffects checks that, if one of many resources changes, only this resource
// is read, digested and packed, and only for the bouncers that protect it. Resources that no bouncer
// protects are skipped.
func TestChangeRebuildsOnlyWhatItAffects(t *testing.T) {
	fulltest.Only(t)
	const many, bouncers = 5000, 12
	each(t, func(t *testing.T, h *fixture) {
		ctx := context.Background()
		h.populate(many)
		far := h.resource(scope.Production, "/far")
		var clients []*client
		var own []resource.Resource
		for i := range bouncers {
			r := h.resource(scope.Production, fmt.Sprint("/own", i))
			h.control(scope.Production, fmt.Sprint("own", i), r.ID, alice)
			own = append(own, r)
			clients = append(clients, h.bouncer(scope.Production, nil, r.ID))
		}
		twin := h.bouncer(scope.Production, nil, own[0].ID) // shares its content with the first
		tag, _ := clients[0].fetch()
		other, _ := clients[1].fetch()
		before, cached, contents := h.rounds()
		if fullReads, _ := h.count(0, 0); cached != bouncers || len(contents) != bouncers || fullReads != 1 {
			t.Errorf("%d resources are cached, %d contents, all resources were read %d times, want %d, %d and 1", cached, len(contents), fullReads, bouncers, bouncers)
		}
		team := func(r resource.Resource, name string) {
			t.Helper()
			errtest.Must(t, errtest.Of(h.resources.Enrich(ctx, person(scope.DefaultTenant), r.ID, resource.EnrichmentChange{OwnerTeam: patch.Set(name)}, 0)))
		}
		team(own[0], "payments")
		tag, b := clients[0].fetch(tag)
		if got, _ := b.Set.Resource(own[0].ID).Doc.Get("owner_team").Str(); got != "payments" {
			t.Errorf("the bouncer has the team %q, want payments", got)
		}
		errtest.Must(t, errtest.Of(twin.poll(0, "conn")))
		after, cached, now := h.rounds()
		if done := (packTotals{after.controls - before.controls, after.resources - before.resources, after.groups - before.groups}); done != (packTotals{0, 1, 1}) {
			t.Errorf("the work of the change is %+v, want one resource and one content", done)
		}
		same := 0
		for c, n := range now {
			if contents[c] == n {
				same++
			}
		}
		if fullReads, singleReads := h.count(0, 0); cached != bouncers || same != bouncers-1 || fullReads != 1 || singleReads != 1 {
			t.Errorf("%d resources are cached, %d contents are unchanged; all resources were read %d times, single ones %d, want %d, %d, 1 and 1", cached, same, fullReads, singleReads, bouncers, bouncers-1)
		}
		clients[1].wantNothing("a bouncer that the change does not affect", "x", other)
		team(far, "nobody's")
		team(own[1], "orders") // the environment has applied both changes when this one arrives
		clients[1].fetch(other)
		last, _, _ := h.rounds()
		if fullReads, singleReads := h.count(0, 0); last.resources-after.resources != 1 || last.groups-after.groups != 1 || fullReads != 1 || singleReads != 3 {
			t.Errorf("the work of two changes, one for a bouncer, is %+v after %+v; all resources were read %d times, single ones %d, want 1 and 3", last, after, fullReads, singleReads)
		}
		clients[0].wantNothing("a bouncer that neither change affects", "x", tag)
	})
}
