package discovery

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/enforce/ids"
	"github.com/gatehouse-dev/gatehouse/internal/enforce/metrics"
	"github.com/gatehouse-dev/gatehouse/internal/enforce/uplink"
	"github.com/gatehouse-dev/gatehouse/internal/rego"
)

// rig is a reporter with a control plane that receives its reports.
type rig struct {
	*Reporter
	mu      sync.Mutex
	clock   time.Time
	reports int
	seen    []sighting
}

// newRig starts a reporter over an empty set of controls. answer, if not nil, answers
// reports.
func newRig(t *testing.T, answer func(g *rig, w http.ResponseWriter, hosts []sighting)) *rig {
	t.Helper()
	g := &rig{clock: time.Now()}
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var body struct{ Hosts []sighting }
		if err := json.NewDecoder(r.Body).Decode(&body); err != nil || r.URL.Path != "/api/v1/bridge/discovery" {
			t.Errorf("a report to %s: %v", r.URL.Path, err)
		}
		g.mu.Lock()
		defer g.mu.Unlock()
		g.reports++
		if answer != nil {
			answer(g, w, body.Hosts)
			return
		}
		g.seen = append(g.seen, body.Hosts...)
		fmt.Fprint(w, `{"refused":[]}`)
	}))
	t.Cleanup(srv.Close)
	client, err := uplink.NewClient(srv.URL, "token", "test", srv.Client())
	if err != nil {
		t.Fatal(err)
	}
	set := rego.NewSet(rego.SetSpec{Revision: 1, Env: "sandbox"})
	g.Reporter = New(client, ids.New([32]byte{}), new(metrics.Counters), slog.New(slog.NewTextHandler(io.Discard, nil)), g.time, func() *rego.Set { return set })
	ctx, cancel := context.WithCancel(context.Background())
	var all sync.WaitGroup
	all.Go(func() { g.Run(ctx) })
	t.Cleanup(func() { cancel(); all.Wait() })
	return g
}

func (g *rig) time() time.Time {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.clock
}

func (g *rig) pass(d time.Duration) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.clock = g.clock.Add(d)
}

// visit makes a request to a host.
func (g *rig) visit(host, path, client string) {
	at := g.time()
	if !g.WasNotedRecently(host, at) {
		g.Note(g.set(), &Request{Target: rego.Request{Host: host, Path: path, Method: "GET"}, Client: client, Scheme: "http", At: at})
	}
}

func (g *rig) hosts() []string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return hostsOf(g.seen)
}

// inside reads the state of the reporter.
func (g *rig) inside(f func(s *Reporter) bool) func() bool {
	return func() bool {
		g.Reporter.mu.Lock()
		defer g.Reporter.mu.Unlock()
		return f(g.Reporter)
	}
}

func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	late := time.After(30 * time.Second)
	for !holds() {
		select {
		case <-tick.C:
		case <-late:
			t.Fatalf("waiting for %s", what)
		}
	}
}

// TestBounded checks that many unknown hosts use up only the budget of an hour, in few reports, and
// that the memory for them is limited.
func TestBounded(t *testing.T) {
	t.Parallel()
	g := newRig(t, nil)
	flood := func(n int, label string) {
		for i := range n {
			g.visit(fmt.Sprintf("%s%d.example", label, i), "/", fmt.Sprint("192.0.2.", i%200))
		}
	}
	flood(20_000, "a")
	eventually(t, "a budget's worth of hosts", func() bool { return len(g.hosts()) == budget })
	if n := g.count.HostsWithheld.Load(); !g.inside(func(s *Reporter) bool { return len(s.until) <= maxRemembered })() || n != 20_000-budget {
		t.Errorf("%d hosts withheld", n)
	}
	g.pass(window + time.Minute)
	flood(budget, "a")
	flood(20_000, "b")
	eventually(t, "the next hour's", func() bool { return len(g.hosts()) == 2*budget })
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.reports > 10 {
		t.Errorf("%d reports", g.reports)
	}
}

// TestShare checks that many unknown hosts from one source use only its share of the budget, however
// many addresses of its network it uses. Hosts from others are reported at once. After an hour, the
// source has a share again.
func TestShare(t *testing.T) {
	t.Parallel()
	for name, client := range map[string]func(i int) string{
		"an IPv4 address":             func(int) string { return "192.0.2.1" },
		"the same, mapped":            func(int) string { return "::ffff:192.0.2.1" },
		"a network of IPv6":           func(i int) string { return fmt.Sprintf("2001:db8:1:2::%x", i) },
		"a socket without an address": func(int) string { return "@" },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := newRig(t, nil)
			flood := func(label string) {
				for i := range 1000 {
					g.visit(fmt.Sprintf("%s%d.example", label, i), "/", client(i))
				}
			}
			used := func(want int) {
				t.Helper()
				if !g.inside(func(s *Reporter) bool { return s.used == want })() {
					t.Errorf("not %d of %d are taken", want, budget)
				}
			}
			flood("a")
			used(share)
			for i := range budget - share {
				g.visit(fmt.Sprintf("real%d.example", i), "/", []string{"198.51.100.7", "2001:db8:1:3::1"}[i%2])
			}
			used(budget)
			g.pass(window)
			flood("b")
			used(share)
		})
	}
}

// TestFailedReportsAreRepeated checks that a report that fails is sent again, unless the control
// plane rejects it. Refused hosts are reported again later.
func TestFailedReportsAreRepeated(t *testing.T) {
	t.Parallel()
	failures := 2
	g := newRig(t, func(g *rig, w http.ResponseWriter, hosts []sighting) {
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
	})
	g.visit("first.example", "/", "192.0.2.1")
	eventually(t, "the report", func() bool { return len(g.hosts()) == 1 && g.count.HostsReported.Load() == 1 })
	g.visit("odd.example", "/", "192.0.2.1")
	eventually(t, "the refused report", func() bool { g.mu.Lock(); defer g.mu.Unlock(); return g.reports == 4 })
	g.visit("last.example", "/", "192.0.2.1")
	eventually(t, "the next report", func() bool { return g.count.HostsReported.Load() == 2 })
	soon := g.time().Add(refusedFor + time.Minute)
	eventually(t, "hosts that may come again", g.inside(func(s *Reporter) bool {
		return s.until["first.example"].Before(soon) && s.until["odd.example"].Before(soon) && s.until["last.example"].Before(soon)
	}))
}

// TestFloodHidesNoHost checks that a flood of invented hosts does not prevent the report of a host
// with traffic, and that its own reports are limited.
func TestFloodHidesNoHost(t *testing.T) {
	t.Parallel()
	g := newRig(t, nil)
	for i := range 20_000 {
		g.visit(fmt.Sprintf("a%d.example", i), "/", "192.0.2.1")
		if i%500 == 499 { // now and then somebody asks for the real one
			g.visit("real.example", "/orders", fmt.Sprint("198.51.100.", i/500))
		}
	}
	eventually(t, "the real host", func() bool { return slices.Contains(g.hosts(), "real.example") })
	if n := len(g.hosts()); n > budget+reserve || !g.inside(func(s *Reporter) bool { return len(s.candidates) <= maxCandidates })() {
		t.Errorf("%d hosts reported", n)
	}
}

// TestRefusedHostComesBackWithTraffic checks that a host that the control plane had no room for is
// reported again when it has traffic.
func TestRefusedHostComesBackWithTraffic(t *testing.T) {
	t.Parallel()
	g := newRig(t, func(g *rig, w http.ResponseWriter, hosts []sighting) {
		g.seen = append(g.seen, hosts...)
		if hosts[0].Requests < minRequests {
			fmt.Fprintf(w, `{"refused":[{"host":%q,"reason":"too_many_unreviewed"}]}`, hosts[0].Host)
		}
	})
	g.visit("real.example", "/", "192.0.2.1")
	eventually(t, "the report and its refusal", g.inside(func(s *Reporter) bool { return s.candidates["real.example"] != nil }))
	for range minRequests {
		g.visit("real.example", "/", "192.0.2.1")
	}
	eventually(t, "the second report", func() bool { return len(g.hosts()) == 2 })
	g.mu.Lock()
	defer g.mu.Unlock()
	if last := g.seen[len(g.seen)-1]; last.Host != "real.example" || last.Requests < minRequests {
		t.Errorf("reported %+v", g.seen)
	}
}
