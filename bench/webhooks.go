package main

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/event"
	"github.com/gatehouse-dev/gatehouse/internal/outbound"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
	"github.com/gatehouse-dev/gatehouse/internal/secret"
	"github.com/gatehouse-dev/gatehouse/internal/webhook"
)

const (
	hookReceivers = 50
	// hookDead is the number of receivers that accept nothing: in turn they hang, refuse the
	// connection, and answer 503.
	hookDead = 9
	// hookObjects is the number of objects that a receiver's events are about.
	hookObjects  = 20
	hookReplicas = 2
	// hookBulk is the number of events in a transaction.
	hookBulk = 5
	// hookTimeout is the time limit of a call that hangs. It is less than usual, because the clock
	// only moves while no call hangs.
	hookTimeout = 2 * time.Second
)

// hookRow is the result of one run.
type hookRow struct {
	events, deliveries, delivered, dead int64
	// twice counts deliveries that a receiver accepted again, disorder those that came before an
	// earlier one of their object.
	twice, disorder int64
	rate            float64
	// p50, p99 and worst are the times from the commit of an event to its arrival at a live
	// receiver.
	p50, p99, worst time.Duration
}

// hookWorld is a store with subscriptions and their receivers.
type hookWorld struct {
	stores  *db.Cluster
	hooks   *webhook.Service
	servers []*http.Server
	ahead   atomic.Int64 // how far the clock was moved
	emitted atomic.Int64
	hanging atomic.Int64 // calls that hang

	mu    sync.Mutex
	waits []time.Duration
	last  map[string]int64 // by receiver and object: number of the newest event
	row   hookRow
}

// benchWebhooks sends events to receivers, some of them dead, at a rate far above that of real
// changes. Then it moves the clock until nothing is pending.
func benchWebhooks(ctx context.Context, o options, dir string) (string, error) {
	row, err := measureWebhooks(ctx, o, dir)
	return hookTable(row), err
}

func measureWebhooks(ctx context.Context, o options, dir string) (row hookRow, err error) {
	w := &hookWorld{last: map[string]int64{}}
	if w.stores, err = db.Open(ctx, db.Config{URL: o.database, Dir: dir, Now: w.now}); err != nil {
		return row, err
	}
	defer func() { err = errors.Join(err, w.stores.Close()) }()
	if err := w.subscribe(ctx); err != nil {
		return row, err
	}
	defer w.closeServers()
	inner, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel()
	for i := range hookReplicas {
		events := &event.Dispatcher{Cluster: w.stores, Sinks: []event.Sink{webhook.Sink{}}, Now: w.now, Logger: slog.New(slog.DiscardHandler)}
		deliverer := &webhook.Deliverer{
			Service: w.hooks, Holder: fmt.Sprint("replica ", i), Poll: time.Second, Logger: slog.New(slog.DiscardHandler),
			Active: func(context.Context, scope.TenantID) (bool, error) { return true, nil },
		}
		running.Go(func() { _ = events.Run(inner) })
		running.Go(func() { _ = deliverer.Run(inner) })
	}
	if err := w.emit(ctx, o); err != nil {
		return row, err
	}
	if err := w.drain(ctx); err != nil {
		return row, err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	slices.Sort(w.waits)
	if n := len(w.waits); n > 0 {
		w.row.p50, w.row.p99, w.row.worst = w.waits[n/2], w.waits[n*99/100], w.waits[n-1]
	}
	return w.row, nil
}

func (w *hookWorld) now() time.Time {
	return time.Now().UTC().Add(time.Duration(w.ahead.Load()))
}

// topics returns the events that receivers subscribe to, one each.
func topics() (out []event.Event) {
	for _, env := range []scope.Env{scope.Sandbox, scope.Production} {
		for _, kind := range event.Types() {
			out = append(out, event.Event{Type: kind, Env: env})
		}
	}
	return out
}

// subscribe starts the receivers and creates their subscriptions.
func (w *hookWorld) subscribe(ctx context.Context) error {
	if err := w.stores.CreateTenant(ctx, scope.DefaultTenant); err != nil {
		return err
	}
	box, err := secret.New([32]byte{1})
	if err != nil {
		return err
	}
	target := outbound.New(outbound.Config{AllowCIDRs: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}, PlainToAllowed: true, Timeout: hookTimeout})
	w.hooks = &webhook.Service{Stores: w.stores, Now: w.now, Random: rand.Reader, Box: box, Target: target}
	all := topics()
	for i := range hookReceivers {
		address, err := w.receiver(i)
		if err != nil {
			return err
		}
		topic := all[i%len(all)]
		_, err = w.hooks.Create(ctx, bencher, webhook.Draft{
			Name: strconv.Itoa(i), URL: "http://" + address + "/", Events: []string{topic.Type}, Environment: topic.Env,
		})
		if err != nil {
			return err
		}
	}
	return nil
}

var bencher = scope.Scope{Tenant: scope.DefaultTenant, Actor: scope.Actor{Kind: scope.Person, ID: "u1", Name: "bench"}}

// receiver starts the i-th receiver.
func (w *hookWorld) receiver(i int) (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	address := l.Addr().String()
	handler := http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { w.take(i, r) })
	if i < hookDead {
		switch i % 3 {
		case 0:
			handler = func(_ http.ResponseWriter, r *http.Request) {
				w.hanging.Add(1)
				defer w.hanging.Add(-1)
				_, _ = io.Copy(io.Discard, r.Body)
				<-r.Context().Done()
			}
		case 1:
			return address, l.Close()
		default:
			handler = func(rw http.ResponseWriter, _ *http.Request) { rw.WriteHeader(http.StatusServiceUnavailable) }
		}
	}
	s := &http.Server{Handler: handler, ReadHeaderTimeout: time.Minute}
	w.servers = append(w.servers, s)
	go func() { _ = s.Serve(l) }()
	return address, nil
}

func (w *hookWorld) closeServers() {
	for _, s := range w.servers {
		_ = s.Close()
	}
}

// take records what a live receiver gets.
func (w *hookWorld) take(receiver int, r *http.Request) {
	var p struct {
		Data struct {
			Number int64  `json:"number"`
			At     int64  `json:"at_ns"`
			Object string `json:"object"`
		} `json:"data"`
	}
	if err := json.NewDecoder(r.Body).Decode(&p); err != nil {
		return
	}
	wait := time.Duration(time.Now().UnixNano() - p.Data.At)
	key := fmt.Sprint(receiver, " ", p.Data.Object)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.waits = append(w.waits, wait)
	switch last := w.last[key]; {
	case p.Data.Number == last:
		w.row.twice++
	case p.Data.Number < last:
		w.row.disorder++
	default:
		w.last[key] = p.Data.Number
	}
}

// emit raises the events at the rate, in small transactions like real changes.
func (w *hookWorld) emit(ctx context.Context, o options) error {
	began := time.Now()
	var next atomic.Int64
	const writers = 4
	errs := make(chan error, writers)
	for range writers {
		go func() {
			for {
				n := next.Add(hookBulk)
				if n-hookBulk >= int64(o.events) {
					errs <- nil
					return
				}
				time.Sleep(time.Until(began.Add(time.Duration(n) * time.Second / time.Duration(o.rate))))
				if err := w.emitSome(ctx, n-hookBulk, min(n, int64(o.events))); err != nil {
					errs <- err
					return
				}
			}
		}()
	}
	var failed []error
	for range writers {
		failed = append(failed, <-errs)
	}
	w.row.events = int64(o.events)
	w.row.rate = float64(o.events) / time.Since(began).Seconds()
	return errors.Join(failed...)
}

// emitSome raises the events from first to before end. It assigns their numbers under the lock of
// the outbox, so that they are in commit order.
func (w *hookWorld) emitSome(ctx context.Context, first, end int64) error {
	all := topics()
	return w.stores.Write(ctx, scope.DefaultTenant, func(tx *db.Tx) error {
		if err := tx.Lock(ctx, "audit"); err != nil {
			return err
		}
		var some []event.Event
		for n := first; n < end; n++ {
			e := all[n%int64(len(all))]
			e.ObjectKind, _, _ = strings.Cut(e.Type, ".")
			switch e.ObjectKind {
			case "policy-bridge":
				e.ObjectKind = "bouncer"
			case "decision":
				e.ObjectKind = "anomaly"
			}
			e.ObjectID, e.ObjectName = strconv.FormatInt(n/int64(len(all))%hookObjects+1, 10), "object"
			e.Data = map[string]any{"number": w.emitted.Add(1), "at_ns": time.Now().UnixNano(), "object": e.ObjectID}
			some = append(some, e)
		}
		return event.Emit(ctx, tx, bencher, some...)
	})
}

// drain waits until no live receiver has pending deliveries, and then moves the clock until nothing
// is pending.
func (w *hookWorld) drain(ctx context.Context) error {
	calm := time.Now()
	var before, pending int64
	for {
		var live int64
		page, err := w.hooks.List(ctx, bencher, 0, 1000)
		if err != nil {
			return err
		}
		w.row.delivered, w.row.dead, pending = 0, 0, 0
		for i, h := range page.Webhooks {
			all, err := w.hooks.Deliveries(ctx, bencher, h.ID, webhook.DeliveryFilter{Status: webhook.Delivered}, "", 1)
			if err != nil {
				return err
			}
			w.row.delivered, w.row.dead, pending = w.row.delivered+all.Total, w.row.dead+h.Dead, pending+h.Pending
			if i >= hookDead {
				live += h.Pending
			}
		}
		w.row.deliveries = w.row.delivered + w.row.dead + pending
		switch {
		case pending == 0 && w.row.deliveries >= w.expected():
			return nil
		case pending != before:
			before, calm = pending, time.Now()
		case time.Since(calm) > 5*time.Minute:
			return fmt.Errorf("%d deliveries still wait", pending)
		}
		if live == 0 && w.row.deliveries >= w.expected() && w.hanging.Load() == 0 {
			w.ahead.Add(int64(time.Hour))
		}
		time.Sleep(200 * time.Millisecond)
	}
}

// expected returns the number of deliveries that the events cause.
func (w *hookWorld) expected() int64 {
	n := int64(len(topics()))
	out := int64(0)
	for i := range int64(hookReceivers) {
		topic := i % n
		out += w.row.events / n
		if rest := w.row.events % n; topic < rest {
			out++
		}
	}
	return out
}

// hookTable returns the part of the report about webhooks.
func hookTable(r hookRow) string {
	var b strings.Builder
	fmt.Fprintf(&b, "\n## Webhooks (%d receivers, %d of them dead; %d replicas; the clock is moved for what waits)\n\n", hookReceivers, hookDead, hookReplicas)
	b.WriteString("| events | events/s | deliveries | delivered | dead | lost | twice | out of order | first attempt p50 ms | p99 ms | worst ms |\n|---|---|---|---|---|---|---|---|---|---|---|\n")
	fmt.Fprintf(&b, "| %d | %.0f | %d | %d | %d | %d | %d | %d | %.1f | %.1f | %.1f |\n", r.events, r.rate, r.deliveries, r.delivered, r.dead,
		r.deliveries-r.delivered-r.dead, r.twice, r.disorder, ms(r.p50), ms(r.p99), ms(r.worst))
	return b.String()
}
