package enforce

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"testing"

	"github.com/gatehouse-dev/gatehouse/internal/rego/target"
)

// reported is a host as bouncers report it.
type reported struct{ Host, Scheme, Path string }

// registry records the hosts that are reported to a plane.
type registry struct {
	mu   sync.Mutex
	seen []reported
}

// newRegistry adds a registry to p.
func newRegistry(t testing.TB, p *plane) *registry {
	g := &registry{}
	next := p.srv.Config.Handler
	p.srv.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/api/v1/bridge/discovery" {
			next.ServeHTTP(w, r)
			return
		}
		var body struct{ Hosts []reported }
		if err := json.NewDecoder(r.Body).Decode(&body); err != nil || r.Header.Get("Authorization") != "Bearer "+testToken {
			t.Errorf("a report with the credential %q: %v, want JSON with the token", r.Header.Get("Authorization"), err)
		}
		g.mu.Lock()
		defer g.mu.Unlock()
		g.seen = append(g.seen, body.Hosts...)
		fmt.Fprint(w, `{"created":[],"known":[],"refused":[],"remaining":1}`)
	})
	return g
}

// hosts returns the reported hosts in order.
func (g *registry) hosts() []string {
	g.mu.Lock()
	defer g.mu.Unlock()
	out := make([]string, len(g.seen))
	for i, s := range g.seen {
		out[i] = s.Host
	}
	slices.Sort(out)
	return out
}

// withHost asks for host.
func withHost(host string) func(*http.Request) {
	return func(r *http.Request) { r.Host = host }
}

// TestDiscovery checks that hosts without a resource are reported once, whether the request is refused
// or not. Registered hosts, addresses and invalid names are not reported.
func TestDiscovery(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{"enforce", "shadow"} {
		t.Run(mode, func(t *testing.T) {
			p, app := newPlane(t), newApplication(t, nil)
			g := newRegistry(t, p)
			p.publish(policySet{revision: 1, mode: mode, controls: []control{{1, 0, adminOnly}}, resources: []target.Resource{
				{ID: 1, Type: "api", Host: "known.example:8443", Path: "/x"}, {ID: 2, Type: "api", Path: "/anywhere"},
			}})
			b := start(t, p, app.URL, nil).at(t, 1)
			for range 3 {
				fetch(t, "GET", b.url+"/v1/chat/completions?key=secret", withHost("Models.Example:9000"))
			}
			fetch(t, "POST", b.url+"/admin", withHost("denied.example."))
			fetch(t, "GET", b.url+"/anywhere", withHost("elsewhere.example"))
			for _, host := range []string{"known.example", "known.example:1", "127.0.0.1", "[::1]:80", "localhost", "a_b-.example", "1.2.3"} {
				fetch(t, "GET", b.url+"/y", withHost(host))
			}
			p.logged(12)
			eventually(t, "two reports", func() bool { return len(g.hosts()) >= 2 })
			if got := g.hosts(); !slices.Equal(got, []string{"denied.example", "models.example"}) {
				t.Errorf("reported %q, want the two hosts without a resource", got)
			}
			for _, s := range g.seen {
				if s.Host == "models.example" && (s.Path != "/v1/chat/completions" || s.Scheme != "http") {
					t.Errorf("reported %+v, want the path without its query, and http", s)
				}
			}
		})
	}
}

// TestDiscoveryOff checks that a bouncer does not report hosts if discovery is off.
func TestDiscoveryOff(t *testing.T) {
	t.Parallel()
	p, app := newPlane(t), newApplication(t, nil)
	g := newRegistry(t, p)
	p.publish(policySet{revision: 1, mode: "enforce", config: map[string]any{"discovery": "off"}})
	b := start(t, p, app.URL, nil).at(t, 1)
	fetch(t, "GET", b.url+"/", withHost("off.example"))
	p.deploy(b, policySet{revision: 2, mode: "enforce"})
	fetch(t, "GET", b.url+"/", withHost("on.example"))
	eventually(t, "the report", func() bool { return len(g.hosts()) > 0 })
	if got := g.hosts(); !slices.Equal(got, []string{"on.example"}) {
		t.Errorf("reported %q, want only on.example", got)
	}
	p.publish(policySet{revision: 3, mode: "enforce", config: map[string]any{"discovery": "perhaps"}})
	eventually(t, "the refusal of an unknown value", func() bool { return b.bundles.RefusedTag() != "" })
}
