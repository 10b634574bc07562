package bridge

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/audit"
	"github.com/gatehouse-dev/gatehouse/internal/db/dbtest"
	"github.com/gatehouse-dev/gatehouse/internal/errtest"
	"github.com/gatehouse-dev/gatehouse/internal/fault"
	"github.com/gatehouse-dev/gatehouse/internal/fulltest"
	"github.com/gatehouse-dev/gatehouse/internal/resource"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

// report reports hosts, and returns the answer.
func (g *client) report(hosts ...resource.Sighting) resource.Discovery {
	g.h.t.Helper()
	body, err := json.Marshal(Sightings{Hosts: hosts})
	if err != nil {
		g.h.t.Fatal(err)
	}
	var out resource.Discovery
	err = dbtest.RetryUnavailable(func() (err error) { // retry like a bouncer
		out, err = g.h.Discover(context.Background(), g.sc, g.token, body)
		return err
	})
	if err != nil {
		g.h.t.Error(err)
	}
	return out
}

// hostsNamed returns sightings of hosts.
func hostsNamed(names ...string) []resource.Sighting {
	out := make([]resource.Sighting, len(names))
	for i, n := range names {
		out[i] = resource.Sighting{Host: n}
	}
	return out
}

// stored returns a resource.
func (h *fixture) stored(id int64) resource.Resource {
	h.t.Helper()
	r, err := h.resources.Get(context.Background(), person(scope.DefaultTenant), id)
	if err != nil {
		h.t.Fatal(err)
	}
	return r
}

// unreviewed returns the number of discovered resources in production.
func (h *fixture) unreviewed() int64 {
	h.t.Helper()
	return h.countRows(`SELECT count(*) FROM resources WHERE auto_discovered AND environment = 'production'`)
}

// recordDecision records a decision on a resource.
func (h *fixture) recordDecision(resource int64, i int) {
	h.t.Helper()
	d := audit.Decision{DecisionID: fmt.Sprint("seen-", resource, "-", i), Decision: audit.Permit, Environment: scope.Production, ResourceID: resource}
	if err := h.log.Record(scope.DefaultTenant, &d); err != nil {
		h.t.Fatal(err)
	}
}

// TestDiscoveredHosts checks that a reported host becomes a classified resource of the bouncer's environment,
// once. Existing resources do not change.
func TestDiscoveredHosts(t *testing.T) {
	each(t, func(t *testing.T, h *fixture) {
		ctx := context.Background()
		mine, err := h.resources.Create(ctx, person(scope.DefaultTenant), resource.Draft{Name: "Mine", Type: "api", Path: "/x", OriginalHost: "known.example:8443", Environment: scope.Production})
		errtest.Must(t, err)
		byURL, err := h.resources.Create(ctx, person(scope.DefaultTenant), resource.Draft{Name: "By url", Type: "api", Path: "/x", URL: "https://url.example/x", Environment: scope.Production})
		errtest.Must(t, err)
		g := h.bouncer(scope.Production, nil)
		out := g.report(
			resource.Sighting{Host: "API.OpenAI.com:443", Path: "/v1/chat/completions"}, resource.Sighting{Host: "api.openai.com."},
			resource.Sighting{Host: "orders.example", Scheme: "http", Path: "/orders/ada@example.com/4111111111111111"},
			resource.Sighting{Host: "known.example"}, resource.Sighting{Host: "url.example"},
			resource.Sighting{Host: "10.0.0.1"}, resource.Sighting{Host: "[::1]:80"}, resource.Sighting{Host: "<script>alert(1)</script>"}, resource.Sighting{Host: ""},
			resource.Sighting{Host: "localhost"}, resource.Sighting{Host: strings.Repeat("a", 300)},
		)
		if len(out.Created) != 2 || len(out.Known) != 2 || len(out.Refused) != 6 || out.Remaining != 98 {
			t.Fatalf("the report is answered with %+v, want 2 created, 2 known, 6 refused and 98 remaining", out)
		}
		r := h.stored(out.Created[0].ResourceID)
		if r.Name != "api.openai.com" || r.OriginalHost != "api.openai.com" || r.URL != "https://api.openai.com/v1/chat/completions" || r.Path != "/**" || r.Type != "api" ||
			r.Environment != scope.Production || !r.AutoDiscovered || r.Kind != "llm_endpoint" || r.AIProvider != "openai" || r.Source != "heuristic" ||
			r.Confidence == nil || *r.Confidence < 0.6 || r.LastClassifiedAt == nil {
			t.Errorf("discovered %+v, want an endpoint of OpenAI", r)
		}
		if r := h.stored(out.Created[1].ResourceID); r.URL != "http://orders.example/orders" || r.Kind != "api" || *r.Confidence != 0.4 {
			t.Errorf("discovered %+v, want an API with the public part of its path", r)
		}
		for _, old := range []resource.Resource{mine, byURL} {
			if now := h.stored(old.ID); now.Version != old.Version || now.AutoDiscovered {
				t.Errorf("%s is now %+v, want it unchanged", old.Name, now)
			}
		}
		again := h.bouncer(scope.Production, nil).report(hostsNamed("orders.example", "api.openai.com")...)
		if len(again.Created) != 0 || len(again.Known) != 2 || again.Remaining != 100 {
			t.Errorf("the report of another bouncer is answered with %+v, want 2 known", again)
		}
		if other := h.bouncer(scope.Sandbox, nil).report(hostsNamed("orders.example")...); len(other.Created) != 1 {
			t.Errorf("in the other environment: %+v, want one created", other)
		}
		page, err := h.log.Events(ctx, person(scope.DefaultTenant), audit.EventFilter{Limit: 100})
		errtest.Must(t, err)
		entries := 0
		for _, e := range page.Events {
			if e.Type == "RESOURCE_CREATED" && e.ActorKind == scope.Bouncer && e.ActorID == strconv.FormatInt(g.id, 10) {
				entries++
			}
		}
		if entries != 2 {
			t.Errorf("%d audit entries of the bouncer, want 2", entries)
		}
	})
}

// TestDiscoveryBudget checks that a bouncer can create about a hundred resources an hour, even with many
// reports at once. The number of unreviewed resources is limited too.
func TestDiscoveryBudget(t *testing.T) {
	fulltest.Only(t)
	each(t, func(t *testing.T, h *fixture) {
		g := h.bouncer(scope.Production, nil)
		var all sync.WaitGroup
		var mu sync.Mutex
		created, refused := 0, 0
		for r := range 8 {
			all.Go(func() {
				var names []string
				for i := range 30 {
					names = append(names, fmt.Sprintf("h%d-%d.example", r, i))
				}
				out := g.report(hostsNamed(names...)...)
				mu.Lock()
				defer mu.Unlock()
				created += len(out.Created)
				for _, no := range out.Refused {
					if no.Reason == resource.RefusedBudget {
						refused++
					}
				}
			})
		}
		all.Wait()
		if created != 100 || refused != 140 {
			t.Fatalf("%d created, %d refused, want 100 and 140", created, refused)
		}
		if out := h.bouncer(scope.Production, nil).report(hostsNamed("elsewhere.example")...); len(out.Created) != 1 {
			t.Errorf("another bouncer: %+v, want a budget of its own", out)
		}
		h.skip(59 * time.Minute)
		if out := g.report(hostsNamed("late.example")...); len(out.Created) != 0 || out.Remaining != 0 {
			t.Errorf("within the hour: %+v, want none created", out)
		}
		h.skip(2 * time.Minute)
		if out := g.report(hostsNamed("late.example")...); len(out.Created) != 1 || out.Remaining != 99 {
			t.Errorf("after the hour: %+v, want one created", out)
		}
		for created := 102; created < 1000; {
			h.skip(61 * time.Minute)
			var names []string
			for i := range 100 {
				names = append(names, fmt.Sprintf("n%d.example", created+i))
			}
			out := g.report(hostsNamed(names...)...)
			created += len(out.Created)
			if len(out.Created) == 0 {
				t.Fatalf("after %d: %+v, want more created", created, out)
			}
		}
		h.skip(61 * time.Minute)
		if out := g.report(hostsNamed("one-too-many.example")...); len(out.Refused) != 1 || out.Refused[0].Reason != resource.RefusedFull {
			t.Errorf("after a thousand: %+v, want it refused as full", out)
		}
		// A host with traffic replaces the oldest one without traffic, and the replacement is
		// recorded.
		out := g.report(resource.Sighting{Host: "real.example", Requests: 3})
		if len(out.Created) != 1 {
			t.Fatalf("a host with traffic: %+v, want it created", out)
		}
		if n := h.unreviewed(); n != 1000 {
			t.Errorf("%d unreviewed resources, want 1000", n)
		}
		// A host that has had traffic since then stays, however many new ones are reported.
		for i := range 40 {
			h.recordDecision(out.Created[0].ResourceID, i)
		}
		h.until("the decisions to be stored", func() bool { return h.log.Pending() == 0 })
		for i := range 30 {
			h.skip(31 * time.Minute)
			if more := g.report(resource.Sighting{Host: fmt.Sprintf("often%d.example", i), Requests: 5}); len(more.Created) != 1 {
				t.Fatalf("host %d with traffic: %+v, want it created", i, more)
			}
		}
		if r := h.stored(out.Created[0].ResourceID); r.OriginalHost != "real.example" {
			t.Errorf("the host with traffic is now %+v, want real.example", r)
		}
		if n := h.unreviewed(); n != 1000 {
			t.Errorf("%d unreviewed resources, want 1000", n)
		}
	})
}

// TestDiscoveryOff checks that reports of a bouncer with discovery turned off are ignored, and that
// reports of other callers and malformed ones are refused.
func TestDiscoveryOff(t *testing.T) {
	each(t, func(t *testing.T, h *fixture) {
		ctx := context.Background()
		g := h.bouncer(scope.Production, map[string]any{"discovery": "off"})
		if out := g.report(hostsNamed("a.example", "b.example")...); len(out.Created) != 0 || len(out.Refused) != 2 || out.Refused[0].Reason != resource.RefusedOff {
			t.Errorf("with discovery off: %+v, want both refused", out)
		}
		g = h.bouncer(scope.Production, nil)
		if _, err := h.Discover(ctx, person(scope.DefaultTenant), g.token, []byte(`{"hosts":[{"host":"a.example"}]}`)); !fault.Is(err, fault.Forbidden) {
			t.Errorf("a report of a person: %v, want Forbidden", err)
		}
		if _, err := h.Discover(ctx, g.sc, g.token, []byte(`[]`)); !fault.Is(err, fault.BadRequest) {
			t.Errorf("a list as report: %v, want BadRequest", err)
		}
		many, err := json.Marshal(Sightings{Hosts: make([]resource.Sighting, 101)})
		errtest.Must(t, err)
		if _, err := h.Discover(ctx, g.sc, g.token, many); !fault.Is(err, fault.Invalid) {
			t.Errorf("101 hosts: %v, want Invalid", err)
		}
	})
}
