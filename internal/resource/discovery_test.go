package resource

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/db/dbtest"
	"github.com/gatehouse-dev/gatehouse/internal/errtest"
	"github.com/gatehouse-dev/gatehouse/internal/fault"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

// TestAddress: an address keeps the leading words of the path, and nothing that could be
// a name, a number or a secret.
func TestAddress(t *testing.T) {
	for path, want := range map[string]string{
		"":                              "https://h.example/",
		"/":                             "https://h.example/",
		"/v1/chat/completions":          "https://h.example/v1/chat/completions",
		"/mcp":                          "https://h.example/mcp",
		"/a/b/c/d/e/f":                  "https://h.example/a/b/c/d",
		"/users/ada@example.com/orders": "https://h.example/users",
		"/users/4111111111111111":       "https://h.example/users",
		"/k/sk-abcdef1234567890":        "https://h.example/k",
		"/o/f47ac10b-58cc-4372-a567-0e02b2c3d479": "https://h.example/o",
		"/models/gemini-1.5-pro:generateContent":  "https://h.example/models/gemini-1.5-pro:generateContent",
		"/x/<script>alert(1)</script>":            "https://h.example/x",
		"/x/%2e%2e/%2fy":                          "https://h.example/",
		"relative":                                "https://h.example/",
		"//evil.example/x":                        "https://h.example/evil.example/x",
	} {
		if got := (Sighting{Host: "h.example", Path: path}).address(); got != want {
			t.Errorf("address of %q = %s, want %s", path, got, want)
		}
	}
	if got := (Sighting{Host: "h.example", Scheme: "http"}).address(); got != "http://h.example/" {
		t.Errorf("address with the scheme http = %s", got)
	}
}

// TestDiscoveredNeedsAttention: a discovered resource needs attention until a person has
// classified it, whatever the heuristic proposed.
func TestDiscoveredNeedsAttention(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, c *db.Cluster) {
		ctx, s := context.Background(), service(c, nil, nil)
		by := scope.Scope{Tenant: scope.DefaultTenant, Env: scope.Production, Actor: scope.Actor{Kind: scope.Bouncer, ID: "7", Name: "edge"}}
		out, err := s.Discover(ctx, by, 7, []Sighting{{Host: "api.openai.com", Path: "/v1/chat/completions"}}, func(names []string) []string { return names })
		if err != nil || len(out.Created) != 1 {
			t.Fatalf("Discover = %+v, %v, want one resource", out, err)
		}
		reasons := func() []string {
			i, err := s.Inventory(ctx, sc(scope.Production))
			errtest.Must(t, err)
			for _, a := range i.Attention {
				if a.ID == out.Created[0].ResourceID {
					return a.Reasons
				}
			}
			return nil
		}
		if got := reasons(); !slices.Contains(got, "auto_discovered") {
			t.Errorf("reasons for attention = %q, want auto_discovered", got)
		}
		errtest.Must(t, errtest.Of(s.ApplyClassification(ctx, sc(scope.Production), out.Created[0].ResourceID, ClassificationChange{Source: "manual"}, 0)))
		if got := reasons(); slices.Contains(got, "auto_discovered") {
			t.Errorf("reasons for attention after a classification = %q, want no auto_discovered", got)
		}
		last := entries(t, c)[0]
		if last.Type != "RESOURCE_CREATED" || last.ActorKind != scope.Bouncer || last.ActorID != "7" || last.Changes["auto_discovered"] != true {
			t.Errorf("audit entry = %+v", last)
		}
	})
}

// TestRoomForTraffic: a host with traffic takes the place of the oldest discovered resource that
// nobody uses. A resource to which a control is bound stays.
func TestRoomForTraffic(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, c *db.Cluster) {
		bound := map[int64][]int64{}
		ctx, s := t.Context(), service(c, bound, nil)
		by := scope.Scope{Tenant: scope.DefaultTenant, Env: scope.Production, Actor: scope.Actor{Kind: scope.Bouncer, ID: "7", Name: "edge"}}
		discover := func(bouncer int64, seen ...Sighting) []Discovered {
			t.Helper()
			out, err := s.Discover(ctx, by, bouncer, seen, func(names []string) []string { return names })
			if err != nil || len(out.Created) != len(seen) {
				t.Fatalf("Discover creates %d of %d, refuses %+v, %v", len(out.Created), len(seen), out.Refused, err)
			}
			return out.Created
		}
		var made []Discovered
		for bouncer := range int64(maxUnreviewed / discoveriesPerHour) {
			var seen []Sighting
			for i := range discoveriesPerHour {
				seen = append(seen, Sighting{Host: fmt.Sprintf("h%d.of%d.example", i, bouncer)})
			}
			made = append(made, discover(bouncer+1, seen...)...)
		}
		bound[made[0].ResourceID] = []int64{5}
		discover(99, Sighting{Host: "busy.example", Requests: oftenSeen})
		for i, want := range []fault.Kind{0, fault.NotFound, 0} {
			_, err := s.Get(ctx, sc(scope.Production), made[i].ResourceID)
			if (want == 0) != (err == nil) || err != nil && !fault.Is(err, want) {
				t.Errorf("Get of the discovered resource %d: got %v, want kind %d", i, err, want)
			}
		}
	})
}
