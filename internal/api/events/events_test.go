package events

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/db/dbtest"
	"github.com/gatehouse-dev/gatehouse/internal/errtest"
	"github.com/gatehouse-dev/gatehouse/internal/fault"
	"github.com/gatehouse-dev/gatehouse/internal/live"
	"github.com/gatehouse-dev/gatehouse/internal/rest"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

// pipes is a listener whose connections have no buffer: a write waits until its bytes are
// read.
type pipes struct {
	next chan net.Conn
	done chan struct{}
}

func (p pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.next:
		return c, nil
	case <-p.done:
		return nil, net.ErrClosed
	}
}
func (p pipes) Close() error   { close(p.done); return nil }
func (p pipes) Addr() net.Addr { return &net.TCPAddr{} }

// server is a server of the stream. valid says whether the credential is valid.
type server struct {
	live  *live.Service
	store *db.Cluster
	valid atomic.Bool
	idle  atomic.Bool // whether all checks of the credential had Idle set
	ended chan struct{}
	pipes pipes
}

// startServer starts a server whose streams have these waiting times.
func startServer(t *testing.T, c *db.Cluster, waits times) *server {
	t.Helper()
	h := &server{store: c, ended: make(chan struct{}, 4), pipes: pipes{make(chan net.Conn), make(chan struct{})}}
	h.valid.Store(true)
	h.idle.Store(true)
	h.live = &live.Service{Stores: c, Log: slog.New(slog.DiscardHandler), Now: time.Now}
	stop := c.Watch(h.live.OnChange)
	authenticate := func(_ context.Context, cr rest.Credential) (scope.Scope, rest.Principal, error) {
		if !cr.Idle {
			h.idle.Store(false)
		}
		if !h.valid.Load() {
			return scope.Scope{}, rest.Principal{}, fault.New(fault.Unauthenticated, "invalid_credentials", "no")
		}
		return scope.Scope{Tenant: scope.DefaultTenant, Actor: scope.Actor{Kind: scope.Person, ID: "ada"}, Permissions: scope.Permissions{All: true}}, rest.Principal{}, nil
	}
	room := &Handler{Live: h.live, Authenticate: authenticate, Log: slog.New(slog.DiscardHandler), Ticks: time.Now, times: waits}
	r, err := rest.New(rest.Config{Now: time.Now, NewID: func() string { return "id" }, Log: slog.New(slog.DiscardHandler), Authenticate: authenticate, Document: rest.Document{Title: "t", Version: "1", Languages: []string{"en"}}})
	errtest.Must(t, err)
	room.Mount(r)
	srv := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		r.ServeHTTP(w, req)
		h.ended <- struct{}{}
	})}
	served := make(chan error, 1)
	go func() { served <- srv.Serve(h.pipes) }()
	t.Cleanup(func() {
		h.live.Close()
		stop()
		_ = srv.Close()
		if err := <-served; !errors.Is(err, http.ErrServerClosed) && !errors.Is(err, net.ErrClosed) {
			t.Errorf("Serve: %v", err)
		}
	})
	return h
}

// send requests a stream, and reads nothing.
func (h *server) send(t *testing.T) net.Conn {
	t.Helper()
	client, far := net.Pipe()
	t.Cleanup(func() { _ = client.Close() })
	h.pipes.next <- far
	errtest.Must(t, errtest.Of(fmt.Fprint(client, "GET /api/v1/events/stream HTTP/1.1\r\nHost: h\r\nCookie: gatehouse=x\r\nSec-Fetch-Site: same-origin\r\nConnection: close\r\n\r\n")))
	return client
}

// open opens a stream, and returns a reader of it.
func (h *server) open(t *testing.T) *bufio.Reader {
	t.Helper()
	client := h.send(t)
	errtest.Must(t, client.SetReadDeadline(time.Now().Add(time.Minute)))
	r := bufio.NewReader(client)
	if line, err := r.ReadString('\n'); err != nil || !strings.HasPrefix(line, "HTTP/1.1 200 ") {
		more, _ := r.Peek(r.Buffered())
		t.Fatalf("answer = %q, %v, want 200: %s", line, err, more)
	}
	return r
}

// until reads lines until one begins with prefix.
func until(t *testing.T, r *bufio.Reader, prefix string) string {
	t.Helper()
	for {
		line, err := r.ReadString('\n')
		if err != nil {
			t.Fatalf("read until %q: %v", prefix, err)
		}
		if strings.HasPrefix(line, prefix) {
			return strings.TrimSpace(line)
		}
	}
}

// waitEnd waits until a stream has ended.
func (h *server) waitEnd(t *testing.T) {
	t.Helper()
	select {
	case <-h.ended:
	case <-time.After(time.Minute):
		t.Fatal("the stream does not end")
	}
}

// touch raises the revision of sandbox.
func (h *server) touch(t *testing.T) {
	t.Helper()
	err := h.store.Write(t.Context(), scope.DefaultTenant, func(tx *db.Tx) error {
		_, err := tx.Bump(t.Context(), "env:sandbox")
		return err
	})
	errtest.Must(t, err)
}

// TestHeartbeat: a stream without changes sends comments. Its checks of the credential do not
// count as a person's activity.
func TestHeartbeat(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, c *db.Cluster) {
		h := startServer(t, c, times{check: 5 * time.Millisecond, heartbeat: 20 * time.Millisecond, patience: time.Minute})
		r := h.open(t)
		until(t, r, "Content-Type: text/event-stream")
		until(t, r, "retry: 2000")
		until(t, r, "id: ")
		until(t, r, ":")
		h.touch(t)
		until(t, r, "event: change")
		if data := until(t, r, "data: "); !strings.HasPrefix(data, `data: {"topic":"revisions","environment":"sandbox","revision":`) {
			t.Errorf("change = %s, want a revision of sandbox", data)
		}
		until(t, r, ":")
		h.valid.Store(false)
		_, _ = io.Copy(io.Discard, r)
		h.waitEnd(t)
		if !h.idle.Load() {
			t.Error("the stream's checks count as activity of the person")
		}
	})
}

// TestSlowReader: a client that does not read is disconnected.
func TestSlowReader(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, c *db.Cluster) {
		h := startServer(t, c, times{check: time.Hour, heartbeat: time.Hour, patience: 50 * time.Millisecond})
		h.send(t)
		h.waitEnd(t)
	})
}

// TestEnd: the end of the server ends the streams.
func TestEnd(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, c *db.Cluster) {
		h := startServer(t, c, times{check: time.Hour, heartbeat: time.Hour, patience: time.Minute})
		r := h.open(t)
		until(t, r, "id: ")
		h.live.Close()
		_, _ = io.Copy(io.Discard, r)
		h.waitEnd(t)
	})
}
