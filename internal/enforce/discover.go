package enforce

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/enforce/ids"
	"github.com/gatehouse-dev/gatehouse/internal/enforce/settings"
	"github.com/gatehouse-dev/gatehouse/internal/enforce/uplink"
	"github.com/gatehouse-dev/gatehouse/internal/rego"
)

// Bounds of discovery. The control plane holds the same budget.
const (
	// scoutBudget is how many hosts are reported within scoutWindow.
	scoutBudget = 100
	scoutWindow = time.Hour
	// scoutShare is how many of these requests from one source bring about: an IPv4
	// address, or an IPv6 network of 64 bits. Further hosts count as beyond the budget.
	scoutShare = scoutBudget / 2
	// scoutMemory is how many hosts are remembered as reported or known.
	scoutMemory = 4096
	// scoutSettled is how long a host is not reported again once the control
	// plane knows it, scoutLater when it took no notice.
	scoutSettled = 24 * time.Hour
	scoutLater   = time.Hour
	// scoutLinger lets hosts gather before a report.
	scoutLinger = 200 * time.Millisecond
	scoutPath   = 512
	// scoutReserve is what is kept beyond scoutBudget for hosts with traffic: made-up
	// names, sent once each, must not hide a real one. One is taken every scoutPace,
	// the one that most clients, then most requests, named, and oftenSeen at least.
	scoutReserve    = 20
	scoutPace       = time.Second
	scoutCandidates = 512
	oftenSeen       = 3
)

// sighting is a host that no resource of the bundle names.
type sighting struct {
	Host   string `json:"host"`
	Scheme string `json:"scheme,omitempty"`
	Path   string `json:"path,omitempty"`
	// Requests is how many there were, where that is why the host is reported.
	Requests int `json:"requests,omitempty"`
}

// candidate is a host beyond the budget that more traffic may bring forward.
type candidate struct {
	sight   sighting
	clients []string // the first few addresses
	// refused: the control plane has no room for hosts without traffic.
	refused bool
}

// outranks reports whether c has more to say for it than o.
func (c *candidate) outranks(o *candidate) bool {
	if len(c.clients) != len(o.clients) {
		return len(c.clients) > len(o.clients)
	}
	return c.sight.Requests > o.sight.Requests
}

// scout remembers which hosts were seen, so that each is reported once, and
// gathers those that are to be reported.
type scout struct {
	last atomic.Pointer[quietHost] // the host asked about last
	wake chan struct{}

	mu    sync.Mutex
	until map[string]time.Time // by host name: settled until then
	began time.Time            // of the budget's window
	spent int
	from  map[string]int // of spent, by source
	queue []sighting
	more  map[string]*candidate // by host name: beyond the budget
	extra int                   // how many of those were reported within the window
}

// quietHost is a host, as requests name it, that is not asked about for a while.
type quietHost struct {
	host  string
	until time.Time
}

func newScout() *scout {
	return &scout{until: map[string]time.Time{}, from: map[string]int{}, more: map[string]*candidate{}, wake: make(chan struct{}, 1)}
}

// noteHost takes down the host of a request that no resource is about. Of what the
// client says it takes the name alone; nothing is decided by it.
func (b *Bouncer) noteHost(st *settings.State, in *inbound, v *verdict) {
	if !st.Discovery || st.Set == nil || v.dec.Resource != nil {
		return
	}
	s := b.scout
	if last := s.last.Load(); last != nil && last.host == in.host && in.at.Before(last.until) {
		return
	}
	name, ok := rego.HostName(in.host)
	if !ok {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if until, seen := s.until[name]; seen && in.at.Before(until) {
		s.last.Store(&quietHost{strings.Clone(in.host), until})
		return
	}
	if in.at.Sub(s.began) >= scoutWindow {
		s.began, s.spent, s.extra = in.at, 0, 0
		clear(s.from)
	}
	source := sourceOf(in.client)
	if c := s.more[name]; s.spent >= scoutBudget || s.from[source] >= scoutShare || c != nil && c.refused || !s.room(in.at) {
		b.count.HostsWithheld.Add(1)
		s.consider(name, in, b.scheme(in))
		return
	}
	if len(st.Set.UnknownHosts([]string{name})) == 0 || st.Set.Match(in.locator()) != nil {
		s.until[name] = in.at.Add(scoutLater) // another path of a host that is registered
		return
	}
	s.spent++
	s.from[strings.Clone(source)]++
	name = strings.Clone(name) // what is kept must not hold on to the request
	s.until[name] = in.at.Add(scoutSettled)
	sight := sighting{Host: name, Scheme: b.scheme(in), Path: strings.Clone(in.path)}
	if len(sight.Path) > scoutPath {
		sight.Path = ""
	}
	s.queue = append(s.queue, sight)
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// sourceOf is what shares of the budget are counted by: whoever has one IPv6 address
// usually has the network of 64 bits that it lies in.
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

// consider counts a request to a host beyond the budget. Of more hosts than can be
// counted, one of those with the least traffic makes room. Caller holds mu.
func (s *scout) consider(name string, in *inbound, scheme string) {
	c := s.more[name]
	if c == nil {
		name = strings.Clone(name)
		c = &candidate{sight: sighting{Host: name, Scheme: scheme}}
		if len(in.path) <= scoutPath {
			c.sight.Path = strings.Clone(in.path)
		}
		s.watch(c)
	}
	c.sight.Requests++
	if len(c.clients) < 4 && !slices.Contains(c.clients, in.client) {
		c.clients = append(c.clients, strings.Clone(in.client))
	}
}

// watch begins to count the requests to a host. Caller holds mu.
func (s *scout) watch(c *candidate) {
	if len(s.more) >= scoutCandidates {
		least, looked := "", 0
		for n, o := range s.more {
			if least == "" || s.more[least].outranks(o) {
				least = n
			}
			if looked++; looked == 8 {
				break
			}
		}
		delete(s.more, least)
	}
	s.more[c.sight.Host] = c
}

// refuse takes note of hosts that the control plane did not take up. One for which it
// had no room is reported again once it has traffic, the others after a while.
func (s *scout) refuse(list []sighting, refused map[string]string, at time.Time) {
	var others []string
	s.mu.Lock()
	for _, sight := range list {
		switch reason, no := refused[sight.Host]; {
		case !no:
		case reason == refusedFull && sight.Requests < oftenSeen:
			delete(s.until, sight.Host)
			sight.Requests = max(sight.Requests, 1)
			s.watch(&candidate{sight: sight, refused: true})
		default:
			others = append(others, sight.Host)
		}
	}
	s.mu.Unlock()
	s.later(others, at)
}

// refusedFull is the control plane's word for a table that is full.
const refusedFull = "too_many_unreviewed"

// promote queues the candidate with the most traffic; false: there is none, or no
// budget for it.
func (s *scout) promote(now time.Time, st *settings.State) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.extra >= scoutReserve || len(s.more) == 0 {
		return false
	}
	var best *candidate
	for _, c := range s.more {
		if c.sight.Requests >= oftenSeen && (best == nil || c.outranks(best)) {
			best = c
		}
	}
	if best == nil {
		return false
	}
	delete(s.more, best.sight.Host)
	if st.Set == nil || len(st.Set.UnknownHosts([]string{best.sight.Host})) == 0 {
		return false // it was registered meanwhile
	}
	s.extra++
	s.until[best.sight.Host] = now.Add(scoutSettled)
	s.queue = append(s.queue, best.sight)
	return true
}

// room reports whether one more host can be remembered. Caller holds mu.
func (s *scout) room(now time.Time) bool {
	if len(s.until) < scoutMemory {
		return true
	}
	for name, until := range s.until {
		if !now.Before(until) {
			delete(s.until, name)
		}
	}
	return len(s.until) < scoutMemory
}

func (s *scout) take() []sighting {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := s.queue
	s.queue = nil
	return out
}

// later lets hosts be reported again after a while.
func (s *scout) later(hosts []string, at time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, h := range hosts {
		s.until[h] = at
	}
	s.last.Store(nil)
}

// scouting reports hosts until ctx ends. A report that does not get through is
// sent again; one that the control plane does not understand is dropped.
func (b *Bouncer) scouting(ctx context.Context) {
	pace := time.NewTicker(scoutPace)
	defer pace.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-b.scout.wake:
		case <-pace.C:
			if !b.scout.promote(b.cfg.Now(), b.state.Load()) {
				continue
			}
		}
		if !ids.Pause(ctx, scoutLinger) {
			return
		}
		list := b.scout.take()
		for wait := uplink.RetryMin; len(list) > 0; wait = min(2*wait, uplink.RetryMax) {
			refused, err := b.reportHosts(ctx, list)
			var no *uplink.StatusError
			if err == nil {
				b.count.HostsReported.Add(uint64(len(list)))
				b.scout.refuse(list, refused, b.cfg.Now().Add(scoutLater))
				break
			}
			if errors.As(err, &no) && no.Code/100 == 4 && no.Code != http.StatusTooManyRequests {
				b.log.WarnContext(ctx, "the control plane did not accept the report of hosts", "error", err)
				b.scout.later(hostsOf(list), b.cfg.Now().Add(scoutLater))
				break
			}
			if !ids.Pause(ctx, b.ids.Jitter(max(wait, uplink.RetryAfter(err)))) {
				return
			}
		}
	}
}

func hostsOf(list []sighting) []string {
	out := make([]string, len(list))
	for i, s := range list {
		out[i] = s.Host
	}
	return out
}

// reportHosts posts one report and gives the hosts that were not taken up, and why.
func (b *Bouncer) reportHosts(ctx context.Context, list []sighting) (refused map[string]string, err error) {
	body, err := json.Marshal(map[string]any{"hosts": list})
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	req, err := b.client.Request(ctx, http.MethodPost, "/bridge/discovery", bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := b.client.Do(req)
	if err != nil {
		return nil, fmt.Errorf("the control plane cannot be reached: %w", err)
	}
	defer resp.Body.Close()
	if resp.StatusCode/100 != 2 {
		return nil, uplink.ErrorOf(resp)
	}
	var out struct {
		Refused []struct {
			Host   string `json:"host"`
			Reason string `json:"reason"`
		} `json:"refused"`
	}
	// An answer that cannot be read changes nothing: what was taken up is known there.
	if json.NewDecoder(io.LimitReader(resp.Body, 256<<10)).Decode(&out) == nil {
		refused = make(map[string]string, len(out.Refused))
		for _, r := range out.Refused {
			refused[r.Host] = r.Reason
		}
	}
	return refused, nil
}

// scheme is how the client reached us, or the trusted proxy in front of us.
func (b *Bouncer) scheme(in *inbound) string {
	if p := in.headers["X-Forwarded-Proto"]; in.trusted && len(p) == 1 && (p[0] == "http" || p[0] == "https") {
		return p[0]
	}
	if in.secure {
		return "https"
	}
	return "http"
}
