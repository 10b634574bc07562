package integration

import (
	"bufio"
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/audit"
	"github.com/gatehouse-dev/gatehouse/internal/audit/tail"
	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/db/dbtest"
	"github.com/gatehouse-dev/gatehouse/internal/errtest"
	"github.com/gatehouse-dev/gatehouse/internal/fault"
	"github.com/gatehouse-dev/gatehouse/internal/job"
	"github.com/gatehouse-dev/gatehouse/internal/outbound/outboundtest"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
	"github.com/gatehouse-dev/gatehouse/internal/secret"
	"github.com/gatehouse-dev/gatehouse/internal/secret/reseal"
	"github.com/gatehouse-dev/gatehouse/internal/spool"
	"github.com/gatehouse-dev/gatehouse/internal/timetest"
)

var (
	ctx   = context.Background()
	admin = scope.Scope{Tenant: scope.DefaultTenant, Actor: scope.Actor{Kind: scope.Person, ID: "u1", Name: "alice"}}
)

// bench is a store with a decision log, integrations, and a clock that tests advance.
type bench struct {
	testing.TB
	*Service
	log   *audit.DecisionLog
	spool *spool.Log
	clock *timetest.Clock
	n     int
}

// newBench returns a bench whose clock stands still.
func newBench(t testing.TB, c *db.Cluster) *bench {
	t.Helper()
	b := &bench{TB: t, clock: timetest.At(time.Date(2026, 3, 2, 12, 0, 10, 0, time.UTC))}
	box, err := secret.New([secret.KeyBytes]byte{1})
	errtest.Must(t, err)
	target := outboundtest.Local(t)
	b.Service = &Service{Stores: c, Now: b.clock.Now, Random: rand.Reader, Box: box, Target: target, URL: "https://gatehouse.example.com"}
	if b.spool, err = spool.Open(spool.Config{Dir: t.TempDir(), Sync: spool.SyncNever}); err != nil {
		t.Fatal(err)
	}
	b.log = audit.NewDecisionLog(audit.Config{Cluster: c, Spool: b.spool, SetAside: t.TempDir(), Now: b.clock.Now, Logger: slog.New(slog.DiscardHandler)})
	running, cancel := context.WithCancel(ctx)
	done := make(chan error, 1)
	go func() { done <- b.log.Run(running) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		_ = b.spool.Close()
	})
	return b
}

// record stores decisions of both environments and of all levels, and entries of the administrative
// log.
func (b *bench) record(n int) {
	b.Helper()
	for range n {
		b.n++
		d := audit.Decision{
			DecisionID: fmt.Sprintf("d-%d", b.n), Decision: audit.Deny, Environment: []scope.Env{scope.Sandbox, scope.Production}[b.n%2],
			AuditLevel: []audit.Level{audit.Basic, audit.Detailed, audit.None}[b.n%3], Timestamp: b.clock.Now(), Input: json.RawMessage(`{"password":"hunter2"}`),
		}
		errtest.Must(b, b.log.Record(scope.DefaultTenant, &d))
		err := b.Stores.Write(ctx, scope.DefaultTenant, func(tx *db.Tx) error {
			return audit.Append(ctx, tx, admin, b.clock.Now(), audit.Entry{Type: "TRIED", Object: "thing", ObjectID: fmt.Sprint(b.n), Env: d.Environment, Changes: map[string]any{"password": "hunter2", "n": b.n}})
		})
		errtest.Must(b, err)
	}
	wait, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	errtest.Must(b, b.spool.Wait(wait))
}

// turn runs one turn of an integration's lane in a replica, if it is due.
func (b *bench) turn(holder string, id int64) {
	b.Helper()
	f := &Forwarder{Service: b.Service, Holder: holder, Logger: slog.New(slog.DiscardHandler)}
	defer f.closeProducers()
	var due bool
	err := b.Stores.Read(ctx, scope.DefaultTenant, func(tx *db.Tx) error {
		all, err := f.list(ctx, tx)
		for _, l := range all {
			due = due || l.ID == id && !l.Due.After(b.clock.Now())
		}
		return err
	})
	if err == nil && due {
		_, err = f.runLane(ctx, job.LaneKey{Tenant: scope.DefaultTenant, Lane: id}, func() {})
	}
	if err != nil && !fault.Is(err, fault.NotFound) {
		b.Fatal(err)
	}
}

// create creates an integration.
func (b *bench) create(d Draft) Integration {
	b.Helper()
	it, err := b.Create(ctx, admin, d)
	errtest.Must(b, err)
	return it
}

// siem is a SIEM that stores what it accepts and checks the chains.
type siem struct {
	*httptest.Server
	mu     sync.Mutex
	status int
	bodies []string
	ends   map[string]tail.End // by chain
	seen   map[string]bool     // chain and position
	lines  []tail.Line
	again  int // lines that it had already
	gaps   []string
}

// newSIEM starts a SIEM that accepts everything.
func newSIEM(t testing.TB) *siem {
	s := &siem{status: 200, ends: map[string]tail.End{}, seen: map[string]bool{}}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		s.mu.Lock()
		defer s.mu.Unlock()
		s.bodies = append(s.bodies, string(body))
		if s.status == 200 || s.status == 299 { // 299: stored, but the answer is lost
			s.take(string(body))
		}
		if s.status == 299 {
			w.WriteHeader(500)
			return
		}
		w.WriteHeader(s.status)
	}))
	t.Cleanup(s.Close)
	return s
}

// take stores the lines of a body.
func (s *siem) take(body string) {
	scan := bufio.NewScanner(strings.NewReader(body))
	scan.Buffer(nil, 1<<20)
	for scan.Scan() {
		var l tail.Line
		if err := json.Unmarshal(scan.Bytes(), &l); err != nil {
			s.gaps = append(s.gaps, err.Error())
			continue
		}
		if id := fmt.Sprint(l.Chain, l.Position); s.seen[id] {
			s.again++
			continue
		} else {
			s.seen[id] = true
		}
		if end, known := s.ends[l.Chain]; known && (l.Position != end.Position+1 || l.PreviousHash != end.Hash) {
			s.gaps = append(s.gaps, fmt.Sprintf("%s: %d after %d", l.Chain, l.Position, end.Position))
		}
		s.ends[l.Chain] = tail.End{Position: l.Position, Hash: l.Hash}
		s.lines = append(s.lines, l)
	}
}

// set sets the status of later answers.
func (s *siem) set(status int) {
	s.mu.Lock()
	s.status = status
	s.mu.Unlock()
}

// received returns the bodies that arrived, in order.
func (s *siem) received() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.bodies)
}

// wantComplete compares the SIEM with the report of the log itself: everything has arrived, in order, and
// the last hash of each chain is the same.
func (s *siem) wantComplete(t *testing.T, b *bench) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	rep, err := b.log.Verify(ctx, admin)
	if err != nil || !rep.Valid {
		t.Fatalf("Verify = %+v, error %v, want a valid log", rep, err)
	}
	for _, c := range rep.Chains {
		if s.ends[c.Name].Hash != c.Head {
			t.Errorf("%s ends with %+v at the SIEM, want %s as in the log", c.Name, s.ends[c.Name], c.Head)
		}
	}
	if len(s.gaps) > 0 {
		t.Errorf("the SIEM has the gaps %v, want none", s.gaps)
	}
	if all := strings.Join(s.bodies, ""); strings.Contains(all, "hunter2") {
		t.Error("a secret reached the SIEM")
	}
}

// TestForwarding checks that both logs arrive complete and in order, although requests are refused,
// answers are lost, and replicas end and take over.
func TestForwarding(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, c *db.Cluster) {
		b, s := newBench(t, c), newSIEM(t)
		b.record(20)
		it := b.create(Draft{Name: "siem", Kind: SIEM, Endpoint: s.URL, Settings: map[string]any{"start": "oldest"}})
		for round, status := range []int{200, 500, 299, 200, 429, 307, 200} {
			b.record(5)
			s.set(status)
			b.turn(fmt.Sprint("replica ", round%2), it.ID)
			b.clock.Move(longestWait)
		}
		s.wantComplete(t, b)
		if s.again == 0 || len(s.lines) != 1+55+37 { // its creation, the entries, and the decisions except level none
			t.Errorf("the SIEM has %d lines and got %d again, want %d and some", len(s.lines), s.again, 1+55+37)
		}
		for _, l := range s.lines {
			if (l.Decision == nil) == (l.Event == nil) {
				t.Errorf("the line %+v has no entry or two, want one", l)
			}
		}
		got, err := b.Get(ctx, admin, it.ID)
		if err != nil || got.Failures != 0 || got.LastError != "" || got.LastSuccessAt == nil || got.LastFailureAt == nil || got.ChangeNo != 1 {
			t.Errorf("the integration is %+v, error %v, want no failure after some", got, err)
		}
	})
}

// TestFollowIsBounded checks that a request contains a bounded number of bytes of each log, that
// nothing is left out between two requests, and that one log does not wait for the end of the
// other.
func TestFollowIsBounded(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, c *db.Cluster) {
		b := newBench(t, c)
		b.record(70)
		place, all := tail.Place{}, 0
		for rounds := 0; ; rounds++ {
			var lines []tail.Line
			err := b.Stores.Read(ctx, scope.DefaultTenant, func(tx *db.Tx) (err error) {
				lines, place, err = tail.Read(ctx, tx, scope.DefaultTenant, scope.AnyEnv, place, 60, 8000)
				return err
			})
			errtest.Must(t, err)
			if all += len(lines); len(lines) == 0 {
				break
			}
			if first, last := lines[0], lines[len(lines)-1]; rounds == 0 && (first.Decision == nil || last.Event == nil || len(lines) > 40) {
				t.Errorf("the first request has %d lines from %s to %s, want at most 40 from a decision to an event", len(lines), first.Chain, last.Chain)
			}
		}
		if all != 70+47 {
			t.Errorf("all requests have %d lines, want %d", all, 70+47)
		}
	})
}

// TestForwardsFromNow checks that without the setting start, older entries are not sent, and that
// the first line links to them.
func TestForwardsFromNow(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, c *db.Cluster) {
		b, s := newBench(t, c), newSIEM(t)
		b.record(6)
		it := b.create(Draft{Name: "siem", Kind: SIEM, Endpoint: s.URL})
		rep, err := b.log.Verify(ctx, admin)
		errtest.Must(t, err)
		b.record(3)
		b.turn("one", it.ID)
		s.wantComplete(t, b)
		for _, chain := range rep.Chains {
			for _, l := range s.lines {
				if l.Chain != chain.Name || l.Chain == "events" {
					continue
				}
				if l.PreviousHash != chain.Head {
					t.Errorf("%s begins with %+v at the SIEM, want the line after %s", chain.Name, l, chain.Head)
				}
				break
			}
		}
		if first := s.lines[0]; len(s.lines) != 2+3+1 || first.Event != nil && first.Event.Type != "INTEGRATION_CREATED" {
			t.Errorf("the SIEM has %d lines, the first is %+v, want %d after the creation", len(s.lines), first, 2+3+1)
		}
	})
}

// TestForwardsOneEnvironment checks that entries of the other environment are sent without their
// content, and that the chains stay complete.
func TestForwardsOneEnvironment(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, c *db.Cluster) {
		b, s := newBench(t, c), newSIEM(t)
		it := b.create(Draft{Name: "siem", Kind: SIEM, Endpoint: s.URL, Environment: scope.Production})
		b.record(12)
		b.turn("one", it.ID)
		s.wantComplete(t, b)
		for _, l := range s.lines {
			if shown := l.Decision != nil || l.Event != nil; shown != (l.Environment != scope.Sandbox) {
				t.Errorf("the line is %+v, want content only of the other entries than sandbox", l)
			}
		}
	})
}

// TestGapShows checks that entries that retention removed before they were sent leave a visible gap
// at the SIEM.
func TestGapShows(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, c *db.Cluster) {
		b, s := newBench(t, c), newSIEM(t)
		it := b.create(Draft{Name: "siem", Kind: SIEM, Endpoint: s.URL})
		b.record(6)
		b.turn("one", it.ID)
		s.set(500)
		b.record(6)
		b.turn("one", it.ID)
		b.clock.Move(100 * 24 * time.Hour)
		errtest.Must(t, errtest.Of(b.log.Retain(ctx, scope.DefaultTenant)))
		s.set(200)
		b.record(6)
		b.turn("one", it.ID)
		s.mu.Lock()
		defer s.mu.Unlock()
		if len(s.gaps) != 1 || !strings.HasPrefix(s.gaps[0], "decisions.basic: ") {
			t.Errorf("the SIEM has the gaps %v, want one in decisions.basic", s.gaps)
		}
	})
}

// TestFailingSystem checks that the audit reports once that a system fails and once that it has
// recovered, and that attempts keep their pauses.
func TestFailingSystem(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, c *db.Cluster) {
		b, s := newBench(t, c), newSIEM(t)
		it := b.create(Draft{Name: "siem", Kind: SIEM, Endpoint: s.URL})
		s.set(503)
		for range outage + 3 {
			b.turn("one", it.ID)
			b.turn("one", it.ID) // not due yet
			b.clock.Move(longestWait)
		}
		if n := len(s.received()); n != outage+3 {
			t.Errorf("the SIEM got %d attempts, want %d", n, outage+3)
		}
		got, err := b.Get(ctx, admin, it.ID)
		if err != nil || got.Failures != outage+3 || got.LastError != "the system answered 503" || got.NextAttemptAt == nil {
			t.Errorf("the integration is %+v, error %v, want %d failures with 503 and a next attempt", got, err, outage+3)
		}
		s.set(200)
		b.turn("one", it.ID)
		b.wantAudited("INTEGRATION_FAILING", 1)
		b.wantAudited("INTEGRATION_RECOVERED", 1)
	})
}

// TestMessages checks that messages of actions are sent in order and signed, each until it is
// accepted or dropped.
func TestMessages(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, c *db.Cluster) {
		b, s := newBench(t, c), newSIEM(t)
		it := b.create(Draft{Name: "hook", Kind: Webhook, Endpoint: s.URL, Environment: scope.Sandbox, Credential: "a-long-random-key"})
		s.set(400)
		b.queue(it.ID, "one")
		b.queueIn(scope.Production, it.ID, "of the other environment")
		b.queue(it.ID, "two")
		for range maxAttempts {
			b.turn("one", it.ID)
			b.clock.Move(longestWait)
		}
		s.set(204)
		b.turn("one", it.ID)
		b.turn("one", it.ID)
		var got []string
		for _, body := range s.received() {
			got = append(got, body[strings.Index(body, `"event_id":"`)+12:][:3])
		}
		if want := strings.Repeat("one ", maxAttempts) + "two"; strings.Join(got, " ") != want {
			t.Errorf("the system got %v, want %s", got, want)
		}
		page, err := b.log.Events(ctx, admin, audit.EventFilter{Type: "INTEGRATION_MESSAGE_DROPPED"})
		if err != nil || page.Filtered != 1 || page.Events[0].EventContext["event_id"] != "one" {
			t.Errorf("the audit has %+v, error %v, want one dropped message", page, err)
		}
	})
}

// TestReseal checks that credentials are sealed again under a new key.
func TestReseal(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, c *db.Cluster) {
		b, s := newBench(t, c), newSIEM(t)
		it := b.create(Draft{Name: "siem", Kind: SIEM, Endpoint: s.URL, Credential: "token-of-the-siem"})
		both, err := secret.New([secret.KeyBytes]byte{2}, [secret.KeyBytes]byte{1})
		errtest.Must(t, err)
		b.Box = both
		sealer := reseal.Sealer{Stores: c, Columns: b.Secrets(), Logger: slog.New(slog.DiscardHandler)}
		errtest.Must(t, sealer.Run(ctx))
		if b.Box, err = secret.New([secret.KeyBytes]byte{2}); err != nil {
			t.Fatal(err)
		}
		if res, err := b.Test(ctx, admin, it.ID); err != nil || !res.Delivered {
			t.Errorf("Test with the new key = %+v, error %v, want delivered", res, err)
		}
	})
}
