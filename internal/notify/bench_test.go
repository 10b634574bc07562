package notify

import (
	"context"
	"crypto/rand"
	"crypto/x509"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/errtest"
	"github.com/gatehouse-dev/gatehouse/internal/event"
	"github.com/gatehouse-dev/gatehouse/internal/job"
	"github.com/gatehouse-dev/gatehouse/internal/notify/format"
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
	calls  []recorded
	answer func(r recorded) (int, string)
}

// recorded is a request.
type recorded struct {
	method, path, body string
	header             http.Header
}

// newReceiver starts a receiver that answers 200.
func newReceiver(t *testing.T) *receiver {
	r := &receiver{answer: func(recorded) (int, string) { return 200, "" }}
	r.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		body, _ := io.ReadAll(req.Body)
		c := recorded{req.Method, req.URL.Path, string(body), req.Header}
		r.mu.Lock()
		r.calls = append(r.calls, c)
		answer := r.answer
		r.mu.Unlock()
		status, text := answer(c)
		if status == http.StatusTooManyRequests {
			w.Header().Set("Retry-After", "120")
		}
		w.WriteHeader(status)
		_, _ = io.WriteString(w, text)
	}))
	t.Cleanup(r.Close)
	return r
}

// set sets the answer to later requests.
func (r *receiver) set(answer func(r recorded) (int, string)) {
	r.mu.Lock()
	r.answer = answer
	r.mu.Unlock()
}

// list returns the requests in order.
func (r *receiver) list() []recorded {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]recorded{}, r.calls...)
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
func newBench(t *testing.T, c *db.Cluster) *bench { return newBenchTrusting(t, c, nil) }

// newBenchTrusting is newBench with other certificate authorities.
func newBenchTrusting(t *testing.T, c *db.Cluster, roots *x509.CertPool) *bench {
	t.Helper()
	box, err := secret.New([32]byte{1})
	errtest.Must(t, err)
	b := &bench{T: t, stores: c}
	target := outboundtest.New(t, outbound.Config{RootCAs: roots}, outboundtest.Loopback)
	out := Outbox{Root: "https://gatehouse.example.com"}
	b.Service = &Service{Stores: c, Now: b.clock.Now, Random: rand.Reader, Box: box, Target: target, Outbox: out}
	b.events = &event.Dispatcher{Cluster: c, Sinks: []event.Sink{Sink{Outbox: out}}, Now: b.clock.Now, Logger: slog.New(slog.DiscardHandler)}
	return b
}

// channel creates a channel, a webhook unless the draft has a type.
func (b *bench) channel(d Draft) Channel {
	b.Helper()
	if d.Type == "" {
		d.Type = format.Webhook
	}
	if d.Name == "" {
		d.Name = "channel " + d.Endpoint
	}
	c, err := b.Create(context.Background(), admin, d)
	if err != nil {
		b.Fatalf("Create(%v): %v", d, err)
	}
	return c
}

// queue queues notes for all channels.
func (b *bench) queue(notes ...Note) {
	b.Helper()
	ctx := context.Background()
	err := b.stores.Write(ctx, scope.DefaultTenant, func(tx *db.Tx) error {
		for i, n := range notes {
			if n.ID == "" {
				n.ID = fmt.Sprintf("ntf_%s_%d", n.Fault, i)
			}
			if n.Severity == "" {
				n.Severity = format.Error
			}
			n.At = b.clock.Now()
			if err := b.Outbox.Broadcast(ctx, tx, scope.DefaultTenant, n); err != nil {
				return err
			}
		}
		return nil
	})
	errtest.Must(b, err)
}

// runLane runs one turn of a lane, as one replica. It returns when the lane is due again.
func (b *bench) runLane(holder string, c Channel) time.Time {
	b.Helper()
	d := &Deliverer{Service: b.Service, Holder: holder, Logger: slog.New(slog.DiscardHandler)}
	again, err := d.runLane(context.Background(), job.LaneKey{Tenant: scope.DefaultTenant, Lane: c.ID}, func() {})
	errtest.Must(b, err)
	return again
}

// run runs n replicas until the test ends.
func (b *bench) run(n int) {
	ctx, cancel := context.WithCancel(context.Background())
	var done sync.WaitGroup
	for i := range n {
		d := &Deliverer{
			Service: b.Service, Holder: fmt.Sprint("replica ", i), Poll: 50 * time.Millisecond, Logger: slog.New(slog.DiscardHandler),
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

// deliveries returns the deliveries, newest first.
func (b *bench) deliveries(f DeliveryFilter) []Delivery {
	b.Helper()
	page, err := b.Deliveries(context.Background(), admin, f, "", 1000)
	errtest.Must(b, err)
	return page.Deliveries
}

// countAudit counts the audit entries of a type.
func (b *bench) countAudit(kind string) int64 {
	b.Helper()
	var n int64
	err := b.stores.Read(context.Background(), scope.DefaultTenant, func(tx *db.Tx) (err error) {
		n, err = db.One[int64](context.Background(), tx, `SELECT COUNT(*) FROM audit_events WHERE type = $1`, kind)
		return err
	})
	errtest.Must(b, err)
	return n
}
