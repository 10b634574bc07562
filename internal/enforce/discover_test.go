package enforce

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/rego"
)

// registry takes reports of hosts on a plane.
type registry struct {
	mu      sync.Mutex
	reports int
	seen    []sighting
	answer  func(w http.ResponseWriter, hosts []sighting)
}

func newRegistry(t testing.TB, p *plane) *registry {
	g := &registry{}
	next := p.srv.Config.Handler
	p.srv.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/api/v1/bridge/discovery" {
			next.ServeHTTP(w, r)
			return
		}
		var body struct{ Hosts []sighting }
		if err := json.NewDecoder(r.Body).Decode(&body); err != nil || r.Header.Get("Authorization") != "Bearer "+testToken {
			t.Errorf("a report with %q: %v", r.Header.Get("Authorization"), err)
		}
		g.mu.Lock()
		defer g.mu.Unlock()
		g.reports++
		if g.answer != nil {
			g.answer(w, body.Hosts)
			return
		}
		g.seen = append(g.seen, body.Hosts...)
		fmt.Fprint(w, `{"created":[],"known":[],"refused":[],"remaining":1}`)
	})
	return g
}

func (g *registry) hosts() []string {
	g.mu.Lock()
	defer g.mu.Unlock()
	out := hostsOf(g.seen)
	slices.Sort(out)
	return out
}

func at(host string) func(*http.Request) {
	return func(r *http.Request) { r.Host = host }
}

// TestNotice: names of hosts without a resource are reported, once, whatever
// becomes of the request; what is registered, an address or no name is not.
func TestNotice(t *testing.T) {
	for _, mode := range []string{"enforce", "shadow"} {
		t.Run(mode, func(t *testing.T) {
			p, app := newPlane(t), newApplication(t, nil)
			g := newRegistry(t, p)
			p.publish(policySet{revision: 1, mode: mode, controls: []control{{1, 0, adminOnly}}, resources: []rego.Resource{
				{ID: 1, Type: "api", Host: "known.example:8443", Path: "/x"}, {ID: 2, Type: "api", Path: "/anywhere"},
			}})
			b := start(t, p, app.URL, nil).at(t, 1)
			for range 3 {
				fetch(t, "GET", b.url+"/v1/chat/completions?key=secret", at("Models.Example:9000"))
			}
			fetch(t, "POST", b.url+"/admin", at("denied.example."))
			fetch(t, "GET", b.url+"/anywhere", at("elsewhere.example"))
			for _, host := range []string{"known.example", "known.example:1", "127.0.0.1", "[::1]:80", "localhost", "a_b-.example", "1.2.3"} {
				fetch(t, "GET", b.url+"/y", at(host))
			}
			p.logged(12)
			eventually(t, "two reports", func() bool { return len(g.hosts()) >= 2 })
			if got := g.hosts(); !slices.Equal(got, []string{"denied.example", "models.example"}) {
				t.Errorf("reported %q", got)
			}
			for _, s := range g.seen {
				if s.Host == "models.example" && (s.Path != "/v1/chat/completions" || s.Scheme != "http") {
					t.Errorf("reported %+v", s)
				}
			}
		})
	}
}

// TestNoticeIsBounded (B6): unknown hosts at full speed are one hour's budget,
// in few reports, and take no memory.
func TestNoticeIsBounded(t *testing.T) {
	p, app := newPlane(t), newApplication(t, nil)
	g := newRegistry(t, p)
	p.publish(policySet{revision: 1, mode: "enforce"})
	var mu sync.Mutex
	offset := time.Duration(0)
	b := start(t, p, app.URL, func(c *Config) {
		c.Now = func() time.Time { mu.Lock(); defer mu.Unlock(); return time.Now().Add(offset) }
	}).at(t, 1)
	st := b.state.Load()
	flood := func(n int, label string) {
		for i := range n {
			b.noteHost(st, &inbound{at: b.cfg.Now(), host: fmt.Sprintf("%s%d.example", label, i), path: "/", client: fmt.Sprint("192.0.2.", i%200)}, &verdict{})
		}
	}
	flood(20_000, "a")
	eventually(t, "a budget's worth of hosts", func() bool { return len(g.hosts()) == scoutBudget })
	if n := len(b.scout.until); n > scoutMemory || b.count.HostsWithheld.Load() != 20_000-scoutBudget {
		t.Errorf("%d hosts remembered, %d withheld", n, b.count.HostsWithheld.Load())
	}
	mu.Lock()
	offset = scoutWindow + time.Minute
	mu.Unlock()
	flood(scoutBudget, "a")
	flood(20_000, "b")
	eventually(t, "the next hour's", func() bool { return len(g.hosts()) == 2*scoutBudget })
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.reports > 10 {
		t.Errorf("%d reports", g.reports)
	}
}

// TestNoticeShare: a flood of unknown hosts from one source, however many addresses of
// its network it uses, takes its share of the budget. Others have theirs reported at
// once, and the source has a share again after an hour.
func TestNoticeShare(t *testing.T) {
	for name, client := range map[string]func(i int) string{
		"an IPv4 address":             func(int) string { return "192.0.2.1" },
		"the same, mapped":            func(int) string { return "::ffff:192.0.2.1" },
		"a network of IPv6":           func(i int) string { return fmt.Sprintf("2001:db8:1:2::%x", i) },
		"a socket without an address": func(int) string { return "@" },
	} {
		t.Run(name, func(t *testing.T) {
			p, app := newPlane(t), newApplication(t, nil)
			newRegistry(t, p)
			p.publish(policySet{revision: 1, mode: "enforce"})
			b := start(t, p, app.URL, nil).at(t, 1)
			st, now := b.state.Load(), time.Now()
			flood := func(label string) {
				for i := range 1000 {
					b.noteHost(st, &inbound{at: now, host: fmt.Sprintf("%s%d.example", label, i), path: "/", client: client(i)}, &verdict{})
				}
			}
			spent := func() int {
				b.scout.mu.Lock()
				defer b.scout.mu.Unlock()
				return b.scout.spent
			}
			flood("a")
			if n := spent(); n != scoutShare {
				t.Errorf("one source took %d of %d", n, scoutBudget)
			}
			for i := range scoutBudget - scoutShare {
				b.noteHost(st, &inbound{at: now, host: fmt.Sprintf("real%d.example", i), path: "/", client: []string{"198.51.100.7", "2001:db8:1:3::1"}[i%2]}, &verdict{})
			}
			if n := spent(); n != scoutBudget {
				t.Errorf("with the hosts of others %d of %d are taken", n, scoutBudget)
			}
			now = now.Add(scoutWindow)
			flood("b")
			if n := spent(); n != scoutShare {
				t.Errorf("an hour later the source took %d of %d", n, scoutBudget)
			}
		})
	}
}

// TestNoticeOff: a bouncer that is told not to does not report.
func TestNoticeOff(t *testing.T) {
	p, app := newPlane(t), newApplication(t, nil)
	g := newRegistry(t, p)
	p.publish(policySet{revision: 1, mode: "enforce", config: map[string]any{"discovery": "off"}})
	b := start(t, p, app.URL, nil).at(t, 1)
	fetch(t, "GET", b.url+"/", at("off.example"))
	p.publish(policySet{revision: 2, mode: "enforce"})
	b.at(t, 2)
	fetch(t, "GET", b.url+"/", at("on.example"))
	eventually(t, "the report", func() bool { return len(g.hosts()) > 0 })
	if got := g.hosts(); !slices.Equal(got, []string{"on.example"}) {
		t.Errorf("reported %q", got)
	}
	p.publish(policySet{revision: 3, mode: "enforce", config: map[string]any{"discovery": "perhaps"}})
	eventually(t, "the refusal", func() bool { return b.refusedTag() != "" })
}

// TestReportsGetThrough: a control plane that fails is asked again; one that
// does not understand is not, and hosts that it refuses are reported later.
func TestReportsGetThrough(t *testing.T) {
	t.Parallel()
	p, app := newPlane(t), newApplication(t, nil)
	g := newRegistry(t, p)
	failures := 2
	g.answer = func(w http.ResponseWriter, hosts []sighting) {
		switch {
		case failures > 0:
			failures--
			w.WriteHeader(http.StatusServiceUnavailable)
		case hosts[0].Host == "odd.example":
			w.WriteHeader(http.StatusNotFound)
		default:
			g.seen = append(g.seen, hosts...)
			fmt.Fprintf(w, `{"refused":[{"host":%q,"reason":"rate_limited"}]}`, hosts[0].Host)
		}
	}
	p.publish(policySet{revision: 1, mode: "enforce"})
	b := start(t, p, app.URL, nil).at(t, 1)
	fetch(t, "GET", b.url+"/", at("first.example"))
	eventually(t, "the report", func() bool { return len(g.hosts()) == 1 && b.count.HostsReported.Load() == 1 })
	fetch(t, "GET", b.url+"/", at("odd.example"))
	eventually(t, "the refused report", func() bool { g.mu.Lock(); defer g.mu.Unlock(); return g.reports == 4 })
	fetch(t, "GET", b.url+"/", at("last.example"))
	eventually(t, "the next report", func() bool { return b.count.HostsReported.Load() == 2 })
	eventually(t, "hosts that may come again", func() bool {
		b.scout.mu.Lock()
		defer b.scout.mu.Unlock()
		soon := b.cfg.Now().Add(scoutLater + time.Minute)
		return b.scout.until["first.example"].Before(soon) && b.scout.until["odd.example"].Before(soon) && b.scout.until["last.example"].Before(soon)
	})
}

// TestFloodHidesNoHost: made-up hosts at full speed do not keep one with traffic
// from being reported, and stay within their bound.
func TestFloodHidesNoHost(t *testing.T) {
	p, app := newPlane(t), newApplication(t, nil)
	g := newRegistry(t, p)
	p.publish(policySet{revision: 1, mode: "enforce"})
	b := start(t, p, app.URL, nil).at(t, 1)
	st := b.state.Load()
	for i := range 20_000 {
		b.noteHost(st, &inbound{at: b.cfg.Now(), host: fmt.Sprintf("a%d.example", i), path: "/", client: "192.0.2.1"}, &verdict{})
		if i%500 == 499 { // now and then somebody asks for the real one
			b.noteHost(st, &inbound{at: b.cfg.Now(), host: "real.example", path: "/orders", client: fmt.Sprint("198.51.100.", i/500)}, &verdict{})
		}
	}
	eventually(t, "the real host", func() bool { return slices.Contains(g.hosts(), "real.example") })
	if n := len(g.hosts()); n > scoutBudget+scoutReserve || len(b.scout.more) > scoutCandidates {
		t.Errorf("%d hosts reported, %d considered", n, len(b.scout.more))
	}
}

// A host that the control plane had no room for is reported again once it has traffic.
func TestRefusedHostComesBackWithTraffic(t *testing.T) {
	t.Parallel()
	p, app := newPlane(t), newApplication(t, nil)
	g := newRegistry(t, p)
	g.answer = func(w http.ResponseWriter, hosts []sighting) {
		g.seen = append(g.seen, hosts...)
		if hosts[0].Requests < oftenSeen {
			fmt.Fprintf(w, `{"refused":[{"host":%q,"reason":"too_many_unreviewed"}]}`, hosts[0].Host)
		}
	}
	p.publish(policySet{revision: 1, mode: "enforce"})
	b := start(t, p, app.URL, nil).at(t, 1)
	fetch(t, "GET", b.url+"/", at("real.example"))
	eventually(t, "the report and its refusal", func() bool {
		b.scout.mu.Lock()
		defer b.scout.mu.Unlock()
		return b.scout.more["real.example"] != nil
	})
	for range oftenSeen {
		fetch(t, "GET", b.url+"/", at("real.example"))
	}
	eventually(t, "the second report", func() bool { return len(g.hosts()) == 2 })
	g.mu.Lock()
	defer g.mu.Unlock()
	if last := g.seen[len(g.seen)-1]; last.Host != "real.example" || last.Requests < oftenSeen {
		t.Errorf("reported %+v", g.seen)
	}
}
