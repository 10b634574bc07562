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

	"github.com/gatehouse-dev/gatehouse/internal/enforce/controlplane"
	"github.com/gatehouse-dev/gatehouse/internal/enforce/ids"
	"github.com/gatehouse-dev/gatehouse/internal/enforce/metrics"
	"github.com/gatehouse-dev/gatehouse/internal/errtest"
	"github.com/gatehouse-dev/gatehouse/internal/fulltest"
	"github.com/gatehouse-dev/gatehouse/internal/rego"
	"github.com/gatehouse-dev/gatehouse/internal/timetest"
)

// rig is a reporter with a control plane that receives its reports.
type rig struct {
	*Reporter
	mu      sync.Mutex
	clock   *timetest.Clock
	reports int
	seen    []sighting
}

// newRig starts a reporter over an empty set of controls. answer, if not nil, answers
// reports.
func newRig(t *testing.T, answer func(g *rig, w http.ResponseWriter, hosts []sighting)) *rig {
	t.Helper()
	g := &rig{clock: timetest.At(time.Now())}
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var body struct{ Hosts []sighting }
		if err := json.NewDecoder(r.Body).Decode(&body); err != nil || r.URL.Path != "/api/v1/bridge/discovery" {
			t.Errorf("a report to %s: %v, want JSON to /api/v1/bridge/discovery", r.URL.Path, err)
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
	client, err := controlplane.NewClient(srv.URL, "token", "test", srv.Client())
	errtest.Must(t, err)
	set := rego.NewSet(rego.SetSpec{Revision: 1, Env: "sandbox"})
	g.Reporter = New(client, ids.New([32]byte{}), new(metrics.Counters), slog.New(slog.NewTextHandler(io.Discard, nil)), g.clock.Now, func() *rego.Set { return set })
	ctx, cancel := context.WithCancel(context.Background())
	var all sync.WaitGroup
	all.Go(func() { g.Run(ctx) })
	t.Cleanup(func() { cancel(); all.Wait() })
	return g
}

// visit makes a request to a host.
func (g *rig) visit(host, path, client string) {
	at := g.clock.Now()
	if !g.WasNotedRecently(host, at) {
		g.Note(g.set(), &Request{Target: rego.Request{Host: host, Path: path, Method: "GET"}, Client: client, Scheme: "http", At: at})
	}
}

// hosts returns the reported hosts.
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
	timetest.WaitFor(t, "as many hosts as the budget allows", func() bool { return len(g.hosts()) == budget })
	if n := g.count.HostsWithheld.Load(); !g.inside(func(s *Reporter) bool { return len(s.until) <= maxRemembered })() || n != 20_000-budget {
		t.Errorf("%d hosts are withheld, want %d and at most %d in memory", n, 20_000-budget, maxRemembered)
	}
	g.clock.Move(window + time.Minute)
	flood(budget, "a")
	flood(20_000, "b")
	timetest.WaitFor(t, "as many hosts in the next hour", func() bool { return len(g.hosts()) == 2*budget })
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.reports > 10 {
		t.Errorf("%d reports, want at most 10", g.reports)
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
			wantUsed := func(want int) {
				t.Helper()
				g.Reporter.mu.Lock()
				defer g.Reporter.mu.Unlock()
				if g.Reporter.used != want {
					t.Errorf("%d of the budget of %d are used, want %d", g.Reporter.used, budget, want)
				}
			}
			flood("a")
			wantUsed(share)
			for i := range budget - share {
				g.visit(fmt.Sprintf("real%d.example", i), "/", []string{"198.51.100.7", "2001:db8:1:3::1"}[i%2])
			}
			wantUsed(budget)
			g.clock.Move(window)
			flood("b")
			wantUsed(share)
		})
	}
}

// TestFailedReportsAreRepeated checks that a report that fails is sent again, unless the control
// plane rejects it. Refused hosts are reported again later.
func TestFailedReportsAreRepeated(t *testing.T) {
	fulltest.Only(t)
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
	timetest.WaitFor(t, "the report", func() bool { return len(g.hosts()) == 1 && g.count.HostsReported.Load() == 1 })
	g.visit("odd.example", "/", "192.0.2.1")
	timetest.WaitFor(t, "the refused report", func() bool { g.mu.Lock(); defer g.mu.Unlock(); return g.reports == 4 })
	g.visit("last.example", "/", "192.0.2.1")
	timetest.WaitFor(t, "the next report", func() bool { return g.count.HostsReported.Load() == 2 })
	again := g.clock.Now().Add(refusedFor + time.Minute)
	timetest.WaitFor(t, "hosts that may come again", g.inside(func(s *Reporter) bool {
		return s.until["first.example"].Before(again) && s.until["odd.example"].Before(again) && s.until["last.example"].Before(again)
	}))
}

// TestFloodHidesNoHost checks that a flood of invented hosts does not prevent the report of a host
// with traffic, and that its own reports are limited.
func TestFloodHidesNoHost(t *testing.T) {
	t.Parallel()
	g := newRig(t, nil)
	for i := range 20_000 {
		g.visit(fmt.Sprintf("a%d.example", i), "/", "192.0.2.1")
		if i%500 == 499 { // a request for the real host now and then
			g.visit("real.example", "/orders", fmt.Sprint("198.51.100.", i/500))
		}
	}
	timetest.WaitFor(t, "the real host", func() bool { return slices.Contains(g.hosts(), "real.example") })
	if n := len(g.hosts()); n > budget+reserve || !g.inside(func(s *Reporter) bool { return len(s.candidates) <= maxCandidates })() {
		t.Errorf("%d hosts are reported, want at most %d, and at most %d candidates", n, budget+reserve, maxCandidates)
	}
}

// TestRefusedHostComesBackWithTraffic checks that a host that the control plane had no room for is
// reported again when it has traffic.
func TestRefusedHostComesBackWithTraffic(t *testing.T) {
	fulltest.Only(t)
	t.Parallel()
	g := newRig(t, func(g *rig, w http.ResponseWriter, hosts []sighting) {
		g.seen = append(g.seen, hosts...)
		if hosts[0].Requests < minRequests {
			fmt.Fprintf(w, `{"refused":[{"host":%q,"reason":"too_many_unreviewed"}]}`, hosts[0].Host)
		}
	})
	g.visit("real.example", "/", "192.0.2.1")
	timetest.WaitFor(t, "the report and its refusal", g.inside(func(s *Reporter) bool { return s.candidates["real.example"] != nil }))
	for range minRequests {
		g.visit("real.example", "/", "192.0.2.1")
	}
	timetest.WaitFor(t, "the second report", func() bool { return len(g.hosts()) == 2 })
	g.mu.Lock()
	defer g.mu.Unlock()
	if last := g.seen[len(g.seen)-1]; last.Host != "real.example" || last.Requests < minRequests {
		t.Errorf("reported %+v, want real.example with its requests last", g.seen)
	}
}
