// Package discovery finds hosts that no resource names and reports them to the control
// plane, within limits. Of each request, it reports only the host, the scheme and the path.
package discovery

import (
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/enforce/controlplane"
	"github.com/gatehouse-dev/gatehouse/internal/enforce/ids"
	"github.com/gatehouse-dev/gatehouse/internal/enforce/metrics"
	"github.com/gatehouse-dev/gatehouse/internal/rego"
	"github.com/gatehouse-dev/gatehouse/internal/rego/target"
)

// The limits of discovery. The control plane has the same budget.
const (
	// budget is how many hosts are reported within window.
	budget = 100
	window = time.Hour
	// share is the part of the budget for one source: an IPv4 address or an IPv6 /64 network. Its
	// other hosts count as beyond the budget.
	share = budget / 2
	// maxRemembered is the maximum number of reported or known hosts that are remembered.
	maxRemembered = 4096
	// reportedFor is how long a host is not reported again after a report, refusedFor the
	// same after a refusal.
	reportedFor = 24 * time.Hour
	refusedFor  = time.Hour
	// collectTime is how long hosts are collected before a report.
	collectTime = 200 * time.Millisecond
	longestPath = 512
	// reserve is kept beyond the budget for hosts with traffic, so that invented names,
	// sent once each, cannot hide a real one. One host is reported every promoteEvery:
	// the one with the most clients, then the most requests, and at least minRequests.
	reserve       = 20
	promoteEvery  = time.Second
	maxCandidates = 512
	minRequests   = 3
)

// sighting is a host that no resource of the bundle names.
type sighting struct {
	Host   string `json:"host"`
	Scheme string `json:"scheme,omitempty"`
	Path   string `json:"path,omitempty"`
	// Requests is the number of requests, if that is why the host is reported.
	Requests int `json:"requests,omitempty"`
}

// candidate is a host beyond the budget. More traffic may get it reported.
type candidate struct {
	sight   sighting
	clients []string // the first few addresses
	// refused is set when the control plane had no room for hosts without traffic.
	refused bool
}

// outranks reports whether c has more traffic than o.
func (c *candidate) outranks(o *candidate) bool {
	if len(c.clients) != len(o.clients) {
		return len(c.clients) > len(o.clients)
	}
	return c.sight.Requests > o.sight.Requests
}

// Reporter records the hosts that were seen, and queues each of them for one report.
type Reporter struct {
	client *controlplane.Client
	ids    *ids.Source
	count  *metrics.Counters
	log    *slog.Logger
	now    func() time.Time
	set    func() *rego.Set // the active one; nil: none yet

	lastHost atomic.Pointer[recentHost] // the last host that was not to be reported
	wake     chan struct{}

	mu          sync.Mutex
	until       map[string]time.Time // by host name: when it may be reported again
	windowStart time.Time            // of the budget's window
	used        int
	usedBy      map[string]int // of the budget, by source
	queue       []sighting
	candidates  map[string]*candidate // by host name: beyond the budget
	promoted    int                   // how many of those were reported in the window
}

// recentHost is a host, as requests name it, that is not reported before a time.
type recentHost struct {
	host  string
	until time.Time
}

// New returns a reporter that reports to client. set returns the active controls.
func New(client *controlplane.Client, chance *ids.Source, count *metrics.Counters, log *slog.Logger, now func() time.Time, set func() *rego.Set) *Reporter {
	return &Reporter{
		client: client, ids: chance, count: count, log: log, now: now, set: set,
		until: map[string]time.Time{}, usedBy: map[string]int{}, candidates: map[string]*candidate{}, wake: make(chan struct{}, 1),
	}
}

// Request is a request that no resource covers.
type Request struct {
	// Target finds its resource.
	Target rego.Request
	// Client is the client's address. Scheme is the scheme that it used.
	Client, Scheme string
	At             time.Time
}

// WasNotedRecently reports whether Note would do nothing for a host. It is cheap.
func (rep *Reporter) WasNotedRecently(host string, at time.Time) bool {
	last := rep.lastHost.Load()
	return last != nil && last.host == host && at.Before(last.until)
}

// Note queues the host of a request that no resource of set covers for a report, or counts
// the request if the budget is used up.
func (rep *Reporter) Note(set *rego.Set, seen *Request) {
	name, ok := target.HostName(seen.Target.Host)
	if !ok {
		return
	}
	rep.mu.Lock()
	defer rep.mu.Unlock()
	if until, known := rep.until[name]; known && seen.At.Before(until) {
		rep.lastHost.Store(&recentHost{strings.Clone(seen.Target.Host), until})
		return
	}
	if seen.At.Sub(rep.windowStart) >= window {
		rep.windowStart, rep.used, rep.promoted = seen.At, 0, 0
		clear(rep.usedBy)
	}
	source := sourceOf(seen.Client)
	if c := rep.candidates[name]; rep.used >= budget || rep.usedBy[source] >= share || c != nil && c.refused || !rep.hasRoom(seen.At) {
		rep.count.HostsWithheld.Add(1)
		rep.consider(name, seen)
		return
	}
	if len(set.UnknownHosts([]string{name})) == 0 || set.Match(&seen.Target) != nil {
		rep.until[name] = seen.At.Add(refusedFor) // another path of a registered host
		return
	}
	rep.used++
	rep.usedBy[strings.Clone(source)]++
	name = strings.Clone(name) // a substring would keep the whole request in memory
	rep.until[name] = seen.At.Add(reportedFor)
	rep.queue = append(rep.queue, sightingOf(name, seen))
	select {
	case rep.wake <- struct{}{}:
	default:
	}
}

// sightingOf returns what is reported of a request.
func sightingOf(name string, seen *Request) sighting {
	out := sighting{Host: name, Scheme: seen.Scheme}
	if len(seen.Target.Path) <= longestPath {
		out.Path = strings.Clone(seen.Target.Path)
	}
	return out
}

// sourceOf returns the source that a client's share of the budget belongs to. A client with one
// IPv6 address usually has the whole /64.
func sourceOf(client string) string {
	addr, err := netip.ParseAddr(client)
	if err != nil || addr.Unmap().Is4() {
		return client
	}
	network, err := addr.Prefix(64)
	if err != nil {
		return client
	}
	return network.String()
}

// consider counts a request to a host beyond the budget. The caller holds mu.
func (rep *Reporter) consider(name string, seen *Request) {
	c := rep.candidates[name]
	if c == nil {
		c = &candidate{sight: sightingOf(strings.Clone(name), seen)}
		rep.watch(c)
	}
	c.sight.Requests++
	if len(c.clients) < 4 && !slices.Contains(c.clients, seen.Client) {
		c.clients = append(c.clients, strings.Clone(seen.Client))
	}
}

// watch starts to count the requests to a host. If there are too many such hosts, it drops
// the one with the least traffic of a sample. The caller holds mu.
func (rep *Reporter) watch(c *candidate) {
	if len(rep.candidates) >= maxCandidates {
		least, looked := "", 0
		for n, o := range rep.candidates {
			if least == "" || rep.candidates[least].outranks(o) {
				least = n
			}
			if looked++; looked == 8 {
				break
			}
		}
		delete(rep.candidates, least)
	}
	rep.candidates[c.sight.Host] = c
}

// refuse handles the hosts that the control plane refused. A host that it had no room for
// is reported again once it has traffic, the others after refusedFor.
func (rep *Reporter) refuse(list []sighting, refused map[string]string, at time.Time) {
	var others []string
	rep.mu.Lock()
	for _, sight := range list {
		switch reason, isRefused := refused[sight.Host]; {
		case !isRefused:
		case reason == refusedFull && sight.Requests < minRequests:
			delete(rep.until, sight.Host)
			sight.Requests = max(sight.Requests, 1)
			rep.watch(&candidate{sight: sight, refused: true})
		default:
			others = append(others, sight.Host)
		}
	}
	rep.mu.Unlock()
	rep.postpone(others, at)
}

// refusedFull is the control plane's reason when its table is full.
const refusedFull = "too_many_unreviewed"

// promote queues the candidate with the most traffic. It returns false if there is none,
// or no budget for it.
func (rep *Reporter) promote(now time.Time, set *rego.Set) bool {
	rep.mu.Lock()
	defer rep.mu.Unlock()
	if rep.promoted >= reserve || len(rep.candidates) == 0 {
		return false
	}
	var best *candidate
	for _, c := range rep.candidates {
		if c.sight.Requests >= minRequests && (best == nil || c.outranks(best)) {
			best = c
		}
	}
	if best == nil {
		return false
	}
	delete(rep.candidates, best.sight.Host)
	if set == nil || len(set.UnknownHosts([]string{best.sight.Host})) == 0 {
		return false // it has been registered since
	}
	rep.promoted++
	rep.until[best.sight.Host] = now.Add(reportedFor)
	rep.queue = append(rep.queue, best.sight)
	return true
}

// hasRoom reports whether one more host can be remembered. The caller holds mu.
func (rep *Reporter) hasRoom(now time.Time) bool {
	if len(rep.until) < maxRemembered {
		return true
	}
	for name, until := range rep.until {
		if !now.Before(until) {
			delete(rep.until, name)
		}
	}
	return len(rep.until) < maxRemembered
}

func (rep *Reporter) drainQueue() []sighting {
	rep.mu.Lock()
	defer rep.mu.Unlock()
	out := rep.queue
	rep.queue = nil
	return out
}

// postpone allows hosts to be reported again from a time on.
func (rep *Reporter) postpone(hosts []string, at time.Time) {
	rep.mu.Lock()
	defer rep.mu.Unlock()
	for _, h := range hosts {
		rep.until[h] = at
	}
	rep.lastHost.Store(nil)
}
