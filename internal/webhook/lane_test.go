package webhook

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/db/dbtest"
	"github.com/gatehouse-dev/gatehouse/internal/errtest"
	"github.com/gatehouse-dev/gatehouse/internal/event"
	"github.com/gatehouse-dev/gatehouse/internal/job"
	"github.com/gatehouse-dev/gatehouse/internal/outbound"
	"github.com/gatehouse-dev/gatehouse/internal/outbound/outboundtest"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
	"github.com/gatehouse-dev/gatehouse/internal/secret"
	"github.com/gatehouse-dev/gatehouse/internal/timetest"
)

// receiver is a server that records what it gets.
type receiver struct {
	*httptest.Server
	mu     sync.Mutex
	got    []Payload // what it accepted
	bodies []string
	header []http.Header
	paths  []string
	status func(p Payload) int // 0: it closes the connection without an answer
	extra  map[string]string   // headers of the answer
}

// newReceiver starts a receiver that accepts everything.
func newReceiver(t *testing.T) *receiver {
	r := &receiver{status: func(Payload) int { return 204 }}
	r.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		body, _ := io.ReadAll(req.Body)
		var p Payload
		_ = json.Unmarshal(body, &p)
		r.mu.Lock()
		status := r.status(p)
		if status > 0 && status < 300 {
			r.got = append(r.got, p)
		}
		r.bodies, r.header = append(r.bodies, string(body)), append(r.header, req.Header)
		r.paths = append(r.paths, req.URL.Path)
		extra := r.extra
		r.mu.Unlock()
		if status == 0 { // simulate a receiver that cannot be reached
			panic(http.ErrAbortHandler)
		}
		for name, value := range extra {
			w.Header().Set(name, value)
		}
		w.WriteHeader(status)
	}))
	t.Cleanup(r.Close)
	return r
}

// answer sets the status of later answers.
func (r *receiver) answer(status func(p Payload) int) {
	r.mu.Lock()
	r.status = status
	r.mu.Unlock()
}

// accepted returns the accepted events in order.
func (r *receiver) accepted() []Payload {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]Payload{}, r.got...)
}

// calls returns how many requests arrived.
func (r *receiver) calls() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.bodies)
}

// waitForCalls waits until n requests have arrived.
func (r *receiver) waitForCalls(t *testing.T, n int) {
	t.Helper()
	timetest.Eventually(t, time.Minute, func() error {
		if got := r.calls(); got < n {
			return fmt.Errorf("the receiver got %d calls, want %d", got, n)
		}
		return nil
	})
}

// waitForEvents waits until the receiver has accepted n events.
func (r *receiver) waitForEvents(t *testing.T, n int) {
	t.Helper()
	timetest.Eventually(t, time.Minute, func() error {
		if got := len(r.accepted()); got != n {
			return fmt.Errorf("the receiver accepted %d events, want %d", got, n)
		}
		return nil
	})
}

// bench is a service with its store.
type bench struct {
	*testing.T
	stores *db.Cluster
	clock  timetest.Clock
	*Service
	events *event.Dispatcher
}

var admin = scope.Scope{Tenant: scope.DefaultTenant, Actor: scope.Actor{Kind: scope.Person, ID: "u1", Name: "alice"}}

// newBench returns a service on a store.
func newBench(t *testing.T, c *db.Cluster) *bench {
	t.Helper()
	box, err := secret.New([32]byte{1})
	errtest.Must(t, err)
	b := &bench{T: t, stores: c}
	target := outboundtest.Local(t)
	b.Service = &Service{Stores: c, Now: b.clock.Now, Random: rand.Reader, Box: box, Target: target}
	b.events = &event.Dispatcher{Cluster: c, Sinks: []event.Sink{Sink{}}, Now: b.clock.Now, Logger: slog.New(slog.DiscardHandler)}
	return b
}

// subscribe subscribes a URL, to all events unless the draft names some.
func (b *bench) subscribe(url string, d Draft) Issued {
	b.Helper()
	d.Name, d.URL = fmt.Sprintf("hook %s %s", d.Name, url), url
	if d.Events == nil {
		d.Events = event.Types()
	}
	w, err := b.Create(context.Background(), admin, d)
	errtest.Must(b, err)
	return w
}

// emit raises policy events, one for each policy id, and delivers them to the sink.
func (b *bench) emit(ids ...int) {
	b.Helper()
	b.raise(ids...)
	b.dispatch()
}

// dispatch delivers the raised events to the sink.
func (b *bench) dispatch() {
	b.Helper()
	for behind := true; behind; {
		var err error
		if behind, err = b.events.DispatchTenant(context.Background(), scope.DefaultTenant); err != nil {
			b.Fatal(err)
		}
	}
}

// raise raises policy events, one for each policy id.
func (b *bench) raise(ids ...int) {
	b.Helper()
	ctx := context.Background()
	err := b.stores.Write(ctx, scope.DefaultTenant, func(tx *db.Tx) error {
		for _, id := range ids {
			e := event.Event{Type: event.PolicyUpdated, ObjectKind: "policy", ObjectID: fmt.Sprint(id), Env: scope.Sandbox}
			if err := event.Emit(ctx, tx, admin, e); err != nil {
				return err
			}
		}
		return nil
	})
	errtest.Must(b, err)
}

// deliver runs n replicas until the test ends.
func (b *bench) deliver(n int) { b.deliverWith(n, nil) }

// deliverWith is deliver with other pauses between attempts.
func (b *bench) deliverWith(n int, pause func(int) time.Duration) {
	ctx, cancel := context.WithCancel(context.Background())
	var done sync.WaitGroup
	for i := range n {
		d := &Deliverer{
			Service: b.Service, Holder: fmt.Sprint("replica ", i), Poll: 50 * time.Millisecond, Logger: slog.New(slog.DiscardHandler), Backoff: pause,
			Active: func(context.Context, scope.TenantID) (bool, error) { return true, nil },
		}
		done.Go(func() {
			if err := d.Run(ctx); err != nil {
				b.Error(err)
			}
		})
	}
	b.Cleanup(func() { cancel(); done.Wait() })
}

// deliveries returns the deliveries of a subscription, newest first.
func (b *bench) deliveries(id int64, f DeliveryFilter) DeliveryPage {
	b.Helper()
	page, err := b.Deliveries(context.Background(), admin, id, f, "", 1000)
	errtest.Must(b, err)
	return page
}

// TestOrderThroughFailures checks that a receiver that fails at random gets each event of each
// object once and in order, from several replicas.
func TestOrderThroughFailures(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, c *db.Cluster) {
		b := newBench(t, c)
		r := newReceiver(t)
		n := 0
		r.answer(func(Payload) int { n++; return []int{204, 500, 200, 204, 302, 204}[n%6] })
		w := b.subscribe(r.URL, Draft{})
		b.deliverWith(3, func(int) time.Duration { return time.Millisecond })
		const objects, each = 5, 12
		var ids []int
		for range each {
			for o := range objects {
				ids = append(ids, o+1)
			}
		}
		b.emit(ids...)
		r.waitForEvents(t, objects*each)
		b.waitForDeliveries(w.ID, Delivered, objects*each)
		// The deliveries' ids have the order of the events.
		rank := map[string]int64{}
		for _, d := range b.deliveries(w.ID, DeliveryFilter{}).Deliveries {
			rank[d.EventID] = d.ID
		}
		last, seen := map[any]int64{}, map[string]bool{}
		for _, p := range r.accepted() {
			if seen[p.EventID] {
				t.Errorf("the event %s arrived twice, want once", p.EventID)
			}
			seen[p.EventID] = true
			if id := rank[p.EventID]; id < last[p.Data["policy_id"]] {
				t.Errorf("policy %v: the delivery %d arrived after %d, want it before", p.Data["policy_id"], id, last[p.Data["policy_id"]])
			} else {
				last[p.Data["policy_id"]] = id
			}
		}
	})
}

// TestDeadReceiver checks that a receiver that hangs does not delay others. What it never accepts
// is given up after three days, and sent again if somebody asks for it.
func TestDeadReceiver(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, c *db.Cluster) {
		ctx := context.Background()
		b := newBench(t, c)
		hang := make(chan struct{})
		stuck := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, req *http.Request) {
			select {
			case <-hang:
			case <-req.Context().Done():
			}
		}))
		t.Cleanup(func() { close(hang); stuck.Close() })
		dead, live := newReceiver(t), newReceiver(t)
		dead.answer(func(Payload) int { return 503 })
		b.subscribe(stuck.URL, Draft{})
		w := b.subscribe(dead.URL, Draft{})
		b.subscribe(live.URL, Draft{})
		b.deliver(1)
		b.emit(1, 2, 1)
		live.waitForEvents(t, 3)
		timetest.Eventually(b, time.Minute, func() error { // advance the clock until all deliveries are given up
			page := b.deliveries(w.ID, DeliveryFilter{Status: Dead})
			if page.Total != 3 {
				b.clock.Move(time.Hour)
				return fmt.Errorf("%d deliveries are dead, want 3", page.Total)
			}
			return nil
		})
		for _, d := range b.deliveries(w.ID, DeliveryFilter{Status: Dead}).Deliveries {
			if d.FinishedAt.Sub(d.CreatedAt) < patience || d.ResponseStatus != 503 {
				t.Errorf("given up after %s, %d attempts, status %d, want at least %s and 503", d.FinishedAt.Sub(d.CreatedAt), d.Attempts, d.ResponseStatus, patience)
			}
		}
		dead.answer(func(Payload) int { return 200 })
		out, err := b.RedeliverRange(ctx, admin, w.ID, Range{})
		if err != nil || out.Queued != 3 {
			t.Fatalf("RedeliverRange = %+v, %v, want 3 queued", out, err)
		}
		if again, err := b.RedeliverRange(ctx, admin, w.ID, Range{}); err != nil || again.Queued != 0 {
			t.Errorf("the second RedeliverRange = %+v, %v, want none queued", again, err)
		}
		dead.waitForEvents(t, 3)
	})
}

// TestLaneOfAKilledReplica checks that another replica sends the deliveries of a killed process
// after its lease has ended, and not before.
func TestLaneOfAKilledReplica(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, c *db.Cluster) {
		ctx := context.Background()
		b := newBench(t, c)
		r := newReceiver(t)
		w := b.subscribe(r.URL, Draft{})
		b.emit(1, 2)
		now := b.clock.Now()
		err := c.Write(ctx, scope.DefaultTenant, func(tx *db.Tx) error {
			ours, err := job.AcquireLane(ctx, tx, lanes, w.ID, "killed", now)
			if err == nil && !ours {
				err = errors.New("the lane is taken")
			}
			return err
		})
		errtest.Must(t, err)
		d := &Deliverer{Service: b.Service, Holder: "other"}
		if again, err := d.runLane(ctx, job.LaneKey{Tenant: scope.DefaultTenant, Lane: w.ID}, func() {}); err != nil || again.IsZero() || r.calls() != 0 {
			t.Fatalf("a turn of a lane of another replica: again at %s, %v, %d calls, want a later time and none", again, err, r.calls())
		}
		b.clock.Move(job.LaneTime + time.Second)
		if _, err := d.runLane(ctx, job.LaneKey{Tenant: scope.DefaultTenant, Lane: w.ID}, func() {}); err != nil || len(r.accepted()) != 2 {
			t.Fatalf("a turn after the lease: %d events, %v, want 2", len(r.accepted()), err)
		}
		// If the process was only slow and stores its results now, it is too late.
		err = c.Write(ctx, scope.DefaultTenant, func(tx *db.Tx) error {
			late := &Deliverer{Service: b.Service, Holder: "killed"}
			_, err := late.record(ctx, tx, w.Webhook, outcome{failed: 1, results: []result{{parcel: parcel{ID: 1}, attempt: Attempt{Error: "x"}}}})
			return err
		})
		if !errors.Is(err, errLost) {
			t.Errorf("record for a lost lane = %v, want errLost", err)
		}
	})
}

// TestSignatures checks that all three signatures are valid, during a rotation with both secrets.
func TestSignatures(t *testing.T) {
	b := newBench(t, dbtest.Open(t, dbtest.SQLite))
	ctx := context.Background()
	r := newReceiver(t)
	w := b.subscribe(r.URL, Draft{Secret: "first secret"})
	if w.Secret != "" || !w.SecretSet {
		t.Errorf("Create with a secret = %+v, want it set and not shown", w)
	}
	b.deliver(1)
	check := func(call int, secrets ...string) {
		t.Helper()
		b.emit(1)
		r.waitForCalls(t, call+1)
		body, h := r.bodies[call], r.header[call]
		var full struct {
			Payload
			Signature string `json:"signature"`
		}
		errtest.Must(t, json.Unmarshal([]byte(body), &full))
		unsigned := strings.Replace(body, `,"signature":"`+full.Signature+`"`, "", 1)
		if !outbound.SignatureValid([]byte(secrets[0]), []byte(unsigned), full.Signature) {
			t.Errorf("the member signature %s is not valid for %s", full.Signature, unsigned)
		}
		if !outbound.SignatureValid([]byte(secrets[0]), []byte(body), h.Get("X-Service-Signature")) {
			t.Errorf("X-Service-Signature %q is not valid for the body", h.Get("X-Service-Signature"))
		}
		if old := h.Get("X-Service-Signature-Previous"); (len(secrets) > 1) != (old != "") || old != "" && !outbound.SignatureValid([]byte(secrets[1]), []byte(body), old) {
			t.Errorf("X-Service-Signature-Previous = %q with %d secrets, want a valid one during a rotation alone", old, len(secrets))
		}
		listed := strings.Fields(h.Get("Webhook-Signature"))
		if len(listed) != len(secrets) || h.Get("Webhook-Id") != full.EventID {
			t.Fatalf("Webhook-Signature %q, Webhook-Id %q, want %d signatures and %s", listed, h.Get("Webhook-Id"), len(secrets), full.EventID)
		}
		for i, s := range secrets {
			key := []byte(s)
			if text, ok := strings.CutPrefix(s, "whsec_"); ok {
				key, _ = base64.StdEncoding.DecodeString(text)
			}
			mac := hmac.New(sha256.New, key)
			mac.Write([]byte(h.Get("Webhook-Id") + "." + h.Get("Webhook-Timestamp") + "." + body))
			if want := "v1," + base64.StdEncoding.EncodeToString(mac.Sum(nil)); listed[i] != want {
				t.Errorf("signature %d of Webhook-Signature = %s, want %s", i, listed[i], want)
			}
		}
	}
	check(0, "first secret")
	made, err := b.RotateSecret(ctx, admin, w.ID, Rotation{})
	if err != nil || !strings.HasPrefix(made.Secret, "whsec_") || made.PreviousSecretUntil == nil {
		t.Fatalf("RotateSecret = %+v, %v, want a new secret and the end of the old one", made, err)
	}
	check(1, made.Secret, "first secret")
	b.clock.Move(defaultOverlap + time.Minute)
	check(2, made.Secret)
	if w, err := b.Get(ctx, admin, w.ID); err != nil || w.PreviousSecretUntil != nil {
		t.Errorf("after the overlap: %+v, %v, want no previous secret", w, err)
	}
}

// TestWhatIsSent checks that a subscription gets the events that it names, of its environment, from
// its creation on, while it is enabled.
func TestWhatIsSent(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, c *db.Cluster) {
		ctx := context.Background()
		b := newBench(t, c)
		r := newReceiver(t)
		b.emit(1)
		all := b.subscribe(r.URL+"/all", Draft{})
		production := b.subscribe(r.URL+"/production", Draft{Environment: scope.Production})
		users := b.subscribe(r.URL+"/users", Draft{Events: []string{event.UserRoleChanged}})
		off := b.subscribe(r.URL+"/off", Draft{})
		errtest.Must(t, errtest.Of(b.Enable(ctx, admin, off.ID, false)))
		raise := func(e event.Event) {
			t.Helper()
			err := c.Write(ctx, scope.DefaultTenant, func(tx *db.Tx) error { return event.Emit(ctx, tx, admin, e) })
			errtest.Must(t, err)
			b.dispatch()
		}
		raise(event.Event{Type: event.PolicyCreated, ObjectKind: "policy", ObjectID: "1", Env: scope.Sandbox})
		raise(event.Event{Type: event.PolicyPromoted, ObjectKind: "policy", ObjectID: "1", Env: scope.Production, Data: map[string]any{"api_key": "shown to nobody"}})
		raise(event.Event{Type: event.UserRoleChanged, ObjectKind: "user", ObjectID: "7"})
		raise(event.Event{Type: "user.failed_logins", ObjectKind: "user", ObjectID: "7"})
		for id, want := range map[int64][]string{
			all.ID: {event.UserRoleChanged, event.PolicyPromoted, event.PolicyCreated}, production.ID: {event.UserRoleChanged, event.PolicyPromoted},
			users.ID: {event.UserRoleChanged}, off.ID: {},
		} {
			got := []string{}
			for _, d := range b.deliveries(id, DeliveryFilter{}).Deliveries {
				got = append(got, d.EventType)
				if d.Payload.Data["user_id"] != nil && d.Payload.Data["user_id"] != "7" || d.Payload.Data["api_key"] != nil && d.Payload.Data["api_key"] != "[redacted]" {
					t.Errorf("%s: the data is %v, want the user 7 and no key", d.EventType, d.Payload.Data)
				}
			}
			if strings.Join(got, " ") != strings.Join(want, " ") {
				t.Errorf("the webhook %d got %v, want %v", id, got, want)
			}
		}
	})
}

// TestCatalogue checks that the catalogue has each event type, with an example that fits its schema.
func TestCatalogue(t *testing.T) {
	list := Catalogue()
	if len(list) != len(event.Types()) {
		t.Fatalf("the catalogue has %d entries, want %d", len(list), len(event.Types()))
	}
	for i, e := range list {
		if e.Type != event.Types()[i] || e.Example.EventType != e.Type {
			t.Errorf("entry %d is %s with an example of %s, want %s", i, e.Type, e.Example.EventType, event.Types()[i])
		}
		for _, name := range e.DataSchema["required"].([]string) {
			if _, ok := e.Example.Data[name]; !ok {
				t.Errorf("%s: the example lacks %s", e.Type, name)
			}
		}
		if o := objectOf(event.Occurrence{Type: e.Type, Data: e.Example.Data}); !strings.Contains(o, ":") || strings.HasSuffix(o, ":null") {
			t.Errorf("%s: the object of its data is %q, want a kind and an id", e.Type, o)
		}
	}
}

// TestForget checks that deliveries are removed when they are old.
func TestForget(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, c *db.Cluster) {
		b := newBench(t, c)
		r := newReceiver(t)
		w := b.subscribe(r.URL, Draft{})
		b.deliver(1)
		b.emit(1, 2, 3)
		b.waitForDeliveries(w.ID, Delivered, 3)
		b.clock.Move(keepDeliveries + time.Hour)
		errtest.Must(t, b.Forget(context.Background(), scope.DefaultTenant))
		if n := b.deliveries(w.ID, DeliveryFilter{}).Total; n != 0 {
			t.Errorf("%d deliveries remain, want none", n)
		}
	})
}
