package bridge

import (
	"context"
	"fmt"
	"testing"

	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/fulltest"
	"github.com/gatehouse-dev/gatehouse/internal/patch"

	"github.com/gatehouse-dev/gatehouse/internal/rego/bundle"
	"github.com/gatehouse-dev/gatehouse/internal/resource"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

// populate makes resources that no bouncer stands before, as an import does.
func (h *house) populate(n int) {
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

// rounds gives what the feed made so far, what it holds on to, and the packed
// contents that its bouncers share.
func (h *house) rounds() (w work, resources int, contents map[*bundle.Packed]int) {
	f := h.feed(place{scope.DefaultTenant, scope.Production})
	f.refreshing.Lock()
	defer f.refreshing.Unlock()
	f.mu.Lock()
	defer f.mu.Unlock()
	contents = map[*bundle.Packed]int{}
	for _, d := range f.desks {
		contents[d.currentTarget().packed]++
	}
	return f.packs.work, len(f.packs.resources), contents
}

// TestAChangeCostsWhatItTouches: of many resources, one that changes is read,
// digested and packed, for those bouncers that stand before it, and nothing else
// is made anew. A resource that no bouncer stands before costs the bridge nothing.
func TestAChangeCostsWhatItTouches(t *testing.T) {
	fulltest.Only(t)
	const many, bouncers = 5000, 12
	each(t, func(t *testing.T, h *house) {
		ctx := context.Background()
		h.populate(many)
		far := h.resource(scope.Production, "/far")
		var guards []*guard
		var own []resource.Resource
		for i := range bouncers {
			r := h.resource(scope.Production, fmt.Sprint("/own", i))
			h.control(scope.Production, fmt.Sprint("own", i), r.ID, alice)
			own = append(own, r)
			guards = append(guards, h.bouncer(scope.Production, nil, r.ID))
		}
		twin := h.bouncer(scope.Production, nil, own[0].ID) // shares its content with the first
		tag, _ := guards[0].fetch()
		other, _ := guards[1].fetch()
		before, held, contents := h.rounds()
		if wholes, _ := h.count(0, 0); held != bouncers || len(contents) != bouncers || wholes != 1 {
			t.Errorf("%d resources held, %d contents, everything read %d times", held, len(contents), wholes)
		}
		team := func(r resource.Resource, name string) {
			t.Helper()
			if _, err := h.resources.Enrich(ctx, person(scope.DefaultTenant), r.ID, resource.EnrichmentChange{OwnerTeam: patch.Set(name)}, 0); err != nil {
				t.Fatal(err)
			}
		}
		team(own[0], "payments")
		tag, b := guards[0].fetch(tag)
		if got, _ := b.Set.Resource(own[0].ID).Doc.Get("owner_team").Str(); got != "payments" {
			t.Errorf("the bouncer has the team %q", got)
		}
		if _, err := twin.poll(0, "conn"); err != nil {
			t.Fatal(err)
		}
		after, held, now := h.rounds()
		if made := (work{after.controls - before.controls, after.resources - before.resources, after.groups - before.groups}); made != (work{0, 1, 1}) {
			t.Errorf("the change made %+v anew, want one resource and one content", made)
		}
		same := 0
		for c, n := range now {
			if contents[c] == n {
				same++
			}
		}
		if wholes, parts := h.count(0, 0); held != bouncers || same != bouncers-1 || wholes != 1 || parts != 1 {
			t.Errorf("%d resources held, %d contents are the old ones; everything was read %d times, single resources %d", held, same, wholes, parts)
		}
		if a, err := guards[1].poll(0, "x", other); err != nil || a.Parts != nil {
			t.Errorf("a bouncer that it does not touch got %+v, error %v", a, err)
		}
		team(far, "nobody's")
		team(own[1], "orders") // behind the other: both are taken in when this arrives
		guards[1].fetch(other)
		last, _, _ := h.rounds()
		if wholes, parts := h.count(0, 0); last.resources-after.resources != 1 || last.groups-after.groups != 1 || wholes != 1 || parts != 3 {
			t.Errorf("two changes, one at a bouncer, made %+v of %+v; everything was read %d times, single resources %d", last, after, wholes, parts)
		}
		if a, err := guards[0].poll(0, "x", tag); err != nil || a.Parts != nil {
			t.Errorf("a bouncer that neither touches got %+v, error %v", a, err)
		}
	})
}
