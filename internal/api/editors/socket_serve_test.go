package editors

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/gatehouse-dev/gatehouse/internal/errtest"
	"github.com/gatehouse-dev/gatehouse/internal/fault"
	"github.com/gatehouse-dev/gatehouse/internal/fulltest"
	"github.com/gatehouse-dev/gatehouse/internal/ide"
	"github.com/gatehouse-dev/gatehouse/internal/policy"
	"github.com/gatehouse-dev/gatehouse/internal/rest"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

// wire is a server with only the editors' WebSocket. Tests write and read raw frames.
type wire struct {
	t       *testing.T
	h       *Handler
	panics  atomic.Int64
	addr    string
	refused atomic.Pointer[fault.Error]
	check   atomic.Pointer[validate]
	// uses and rechecks count the checks of the credential: those for a person's message, and those by the
	// socket itself.
	uses, rechecks atomic.Int64
}

type validate func(ctx context.Context, source string) (policy.Validation, error)

// quick are short waiting times of a socket, for tests that do not test them.
var quick = socketTimes{check: 20 * time.Millisecond, ping: time.Hour, answer: 10 * time.Second, message: 10 * time.Second, closing: 100 * time.Millisecond}

// newWire starts a server whose sockets have these waiting times.
func newWire(t *testing.T, times socketTimes) *wire {
	t.Helper()
	w := &wire{t: t}
	authenticate := func(_ context.Context, c rest.Credential) (scope.Scope, rest.Principal, error) {
		if c.Idle {
			w.rechecks.Add(1)
		} else {
			w.uses.Add(1)
		}
		if f := w.refused.Load(); f != nil {
			return scope.Scope{}, rest.Principal{}, f
		}
		n, ok := strings.CutPrefix(c.Bearer, "person-")
		if !ok {
			return scope.Scope{}, rest.Principal{}, fault.New(fault.Unauthenticated, "invalid_credentials", "the credential is not valid")
		}
		return scope.Scope{Tenant: "t1", Permissions: scope.Permissions{All: true}, Actor: scope.Actor{Kind: scope.Person, ID: n}}, rest.Principal{}, nil
	}
	log, panics := slog.New(slog.DiscardHandler), &fault.Panics{Add: func(string) { w.panics.Add(1) }}
	r, err := rest.New(rest.Config{
		Now: time.Now, NewID: func() string { return "id" }, Log: log, Panics: panics, Authenticate: authenticate,
		Document: rest.Document{Title: "test", Version: "1.0.0", License: "Apache-2.0", Languages: []string{"en"}},
	})
	errtest.Must(t, err)
	w.h = &Handler{Authenticate: authenticate, Now: time.Now, Log: log, Panics: panics, sockets: sockets{times: &times}}
	w.h.IDE = &ide.Service{PublicURL: "https://gate.example", Check: func(ctx context.Context, _ scope.Scope, source string) (policy.Validation, error) {
		return (*w.check.Load())(ctx, source)
	}}
	w.h.Mount(r)
	errtest.Must(t, r.Finish())
	srv := httptest.NewServer(r)
	t.Cleanup(srv.Close)
	t.Cleanup(w.h.CloseSockets)
	w.addr = strings.TrimPrefix(srv.URL, "http://")
	return w
}

// setCheck sets what validates a source.
func (w *wire) setCheck(f validate) { w.check.Store(&f) }

// open upgrades a raw connection for the person with an id.
func (w *wire) open(id string) *bare {
	w.t.Helper()
	b, status := w.try(id)
	if status != http.StatusSwitchingProtocols {
		w.t.Fatalf("upgrade = %d, want %d", status, http.StatusSwitchingProtocols)
	}
	return b
}

// try requests an upgrade, and returns the status of the answer.
func (w *wire) try(id string) (*bare, int) {
	w.t.Helper()
	conn, err := net.Dial("tcp", w.addr)
	errtest.Must(w.t, err)
	w.t.Cleanup(func() { _ = conn.Close() })
	_ = conn.SetDeadline(time.Now().Add(20 * time.Second))
	fmt.Fprintf(conn, "GET /api/v1/ide-integration/ws/%s HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer person-%s\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n", id, id)
	var head []byte
	for one := make([]byte, 1); !bytes.HasSuffix(head, []byte("\r\n\r\n")); head = append(head, one...) {
		if _, err := io.ReadFull(conn, one); err != nil {
			w.t.Fatalf("answer to the upgrade = %q, %v", head, err)
		}
	}
	var status int
	_, _ = fmt.Sscanf(string(head), "HTTP/1.1 %d", &status)
	return &bare{w.t, conn}, status
}

// bare is a client that can write any bytes.
type bare struct {
	t *testing.T
	net.Conn
}

// frame returns a masked frame (RFC 6455 section 5.2). first is FIN, RSV and opcode.
func frame(first byte, payload []byte) []byte {
	out := []byte{first}
	switch n := len(payload); {
	case n < 126:
		out = append(out, 0x80|byte(n))
	case n < 1<<16:
		out = binary.BigEndian.AppendUint16(append(out, 0x80|126), uint16(n))
	default:
		out = binary.BigEndian.AppendUint64(append(out, 0x80|127), uint64(n))
	}
	mask := []byte{1, 2, 3, 4}
	out = append(out, mask...)
	for i, c := range payload {
		out = append(out, c^mask[i%4])
	}
	return out
}

// text returns the frame of a text message.
func text(s string) []byte { return frame(0x81, []byte(s)) }

// read reads one frame of the server.
func (b *bare) read() (opcode byte, payload []byte, err error) {
	head := make([]byte, 2)
	if _, err := io.ReadFull(b, head); err != nil {
		return 0, nil, err
	}
	n := int(head[1])
	switch n {
	case 126:
		var l uint16
		err = binary.Read(b, binary.BigEndian, &l)
		n = int(l)
	case 127:
		var l uint64
		err = binary.Read(b, binary.BigEndian, &l)
		n = int(l)
	}
	if err != nil {
		return 0, nil, err
	}
	payload = make([]byte, n)
	_, err = io.ReadFull(b, payload)
	return head[0] & 0x0f, payload, err
}

// code reads until the close frame, and returns its code, or -1 if the connection ends
// without one.
func (b *bare) code() int {
	b.t.Helper()
	for {
		opcode, payload, err := b.read()
		if err != nil {
			if errors.Is(err, context.DeadlineExceeded) || isTimeout(err) {
				b.t.Error("the server does not close the socket")
			}
			return -1
		}
		if opcode == 8 && len(payload) >= 2 {
			return int(binary.BigEndian.Uint16(payload))
		}
	}
}

func isTimeout(err error) bool {
	n, ok := errors.AsType[net.Error](err)
	return ok && n.Timeout()
}

// wantClosed fails unless the server closes the connection.
func (b *bare) wantClosed(what string) {
	b.t.Helper()
	if _, err := io.Copy(io.Discard, b); isTimeout(err) {
		b.t.Errorf("%s: the connection is open, want it closed", what)
	}
}

// waitClosed waits until no socket is open.
func (w *wire) waitClosed(what string) {
	w.t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	over := time.After(30 * time.Second)
	for {
		w.h.sockets.mu.Lock()
		n := len(w.h.sockets.open)
		w.h.sockets.mu.Unlock()
		if held := w.h.sockets.bytes.Load(); n == 0 && held == 0 {
			return
		} else if n == 0 && held != 0 {
			w.t.Fatalf("%s: %d bytes are counted without a socket, want none", what, held)
		}
		select {
		case <-over:
			w.t.Fatalf("%s: %d sockets stay open, want none", what, n)
		case <-tick.C:
		}
	}
}

// TestSocketFrames: an invalid frame or message closes the socket with the code of RFC
// 6455 section 7.4.1, and the client can read it.
func TestSocketFrames(t *testing.T) {
	fulltest.Only(t)
	w := newWire(t, quick)
	masked := func(first byte, payload string) []byte { return frame(first, []byte(payload)) }
	for what, c := range map[string]struct {
		bytes []byte
		want  int
	}{
		"close":                         {masked(0x88, "\x03\xe8"), 1000},
		"binary":                        {masked(0x82, "x"), 1003},
		"over a MiB":                    {text(strings.Repeat("x", 2<<20)), 1009},
		"over a MiB in pieces":          {append(masked(0x01, strings.Repeat("x", 700<<10)), masked(0x80, strings.Repeat("x", 700<<10))...), 1009},
		"a length over 2^62":            {[]byte{0x81, 0xff, 0x7f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0}, -1},
		"a negative length":             {[]byte{0x81, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0}, -1},
		"not UTF-8":                     {text("{\"type\":\"\xff\"}"), 1007},
		"reserved bits":                 {masked(0xc1, "x"), 1002},
		"an unknown opcode":             {masked(0x83, "x"), 1002},
		"an unknown control":            {masked(0x8b, "x"), 1002},
		"a long ping":                   {masked(0x89, strings.Repeat("x", 126)), 1002},
		"a ping in pieces":              {masked(0x09, "x"), 1002},
		"a continuation of no message":  {masked(0x80, "x"), 1002},
		"a message within another":      {append(masked(0x01, "{"), text("}")...), 1002},
		"a close code that is reserved": {masked(0x88, "\x03\xed"), 1002},
		"a close of one byte":           {masked(0x88, "\x03"), 1002},
		"unmasked":                      {[]byte{0x81, 0x02, '{', '}'}, -1},
		"sixty messages":                {bytes.Repeat(text(`{"type":"ping"}`), 60), 1008},
		"two MiB of waiting messages":   {bytes.Repeat(text(`{"type":"validate","data":{"policy_content":"wait`+strings.Repeat(" ", 900<<10)+`"}}`), 4), 1008},
	} {
		t.Run(what, func(t *testing.T) {
			b := w.open("a")
			b.t = t
			w.setCheck(func(ctx context.Context, _ string) (policy.Validation, error) {
				<-ctx.Done()
				return policy.Validation{}, ctx.Err()
			})
			if _, err := b.Write(c.bytes); err != nil && c.want != 1009 && c.want != 1008 {
				t.Errorf("%s: write: %v", what, err)
			}
			if c.want == -1 && len(c.bytes) == 14 { // the payload never comes: a ping would detect it; here the client disconnects
				_ = b.Close()
			} else if code := b.code(); code != c.want {
				t.Errorf("%s: closed with %d, want %d", what, code, c.want)
			}
			w.waitClosed(what)
		})
	}
}

// TestSocketPieces: a message may arrive in several frames, with pings between them.
func TestSocketPieces(t *testing.T) {
	b := newWire(t, quick).open("a")
	for _, piece := range [][]byte{frame(0x01, []byte(`{"type":"pi`)), frame(0x89, []byte("there?")), frame(0x00, nil), frame(0x80, []byte(`ng"}`))} {
		errtest.Must(t, errtest.Of(b.Write(piece)))
	}
	if op, payload, err := b.read(); op != 10 || string(payload) != "there?" || err != nil {
		t.Errorf("answer to the ping = %d %q, %v, want a pong", op, payload, err)
	}
	if op, payload, err := b.read(); op != 1 || !strings.Contains(string(payload), `"pong"`) || err != nil {
		t.Errorf("answer to the message = %d %q, %v, want pong", op, payload, err)
	}
}

// TestSocketRefused: as soon as the credential is refused, no message is answered any
// more, not even earlier ones.
func TestSocketRefused(t *testing.T) {
	for what, f := range map[string]*fault.Error{
		"401": fault.New(fault.Unauthenticated, "x", "x"), "403": fault.New(fault.Forbidden, "x", "x"), "404": fault.New(fault.NotFound, "x", "x"),
	} {
		times := quick
		times.check = time.Hour // so only answers check the credential
		w := newWire(t, times)
		began, release := make(chan struct{}), make(chan struct{})
		w.setCheck(func(context.Context, string) (policy.Validation, error) {
			close(began)
			<-release
			return policy.Validation{Valid: true}, nil
		})
		b := w.open("a")
		errtest.Must(t, errtest.Of(b.Write(append(text(`{"type":"validate","data":{"policy_content":"x"}}`), text(`{"type":"ping"}`)...))))
		<-began
		w.refused.Store(f)
		close(release)
		if op, payload, err := b.read(); op != 8 || err != nil || binary.BigEndian.Uint16(payload) != uint16(websocket.StatusPolicyViolation) {
			t.Errorf("%s: answer = %d %q, %v, want a close for a policy violation", what, op, payload, err)
		}
		b.wantClosed(what) // without a confirmation of the client
		w.waitClosed(what)
	}
	// If the store is down, no socket ends.
	w := newWire(t, quick)
	b := w.open("a")
	w.refused.Store(fault.New(fault.Unavailable, "unavailable", "x"))
	errtest.Must(t, errtest.Of(b.Write(text(`{"type":"ping"}`))))
	if op, payload, err := b.read(); op != 1 || err != nil {
		t.Errorf("answer while the store is down = %d %q, %v, want a message", op, payload, err)
	}
}

// TestSocketHalfOpen: the server disconnects a peer that is silent, stops in the middle
// of a message, or does not read.
func TestSocketHalfOpen(t *testing.T) {
	times := quick
	times.ping, times.answer = 50*time.Millisecond, 100*time.Millisecond
	w := newWire(t, times)
	silent := w.open("a")
	silent.wantClosed("no pong")
	w.waitClosed("no pong")

	half := w.open("a")
	errtest.Must(t, errtest.Of(half.Write(text(`{"type":"ping","data":{}}`)[:10])))
	half.wantClosed("half a message")
	w.waitClosed("half a message")

	times = quick
	times.message = 50 * time.Millisecond
	w = newWire(t, times)
	slow := w.open("a")
	errtest.Must(t, errtest.Of(slow.Write(frame(0x01, []byte(`{"type":`)))))
	slow.wantClosed("a message without an end")
	w.waitClosed("a message without an end")

	times = quick
	times.answer = 50 * time.Millisecond
	w = newWire(t, times)
	w.setCheck(func(context.Context, string) (policy.Validation, error) {
		return policy.Validation{}, fault.Newf(fault.Invalid, "x", "%s", strings.Repeat("x", 8<<20)) // more than the kernel buffers
	})
	deaf := w.open("a")
	_ = deaf.Conn.(*net.TCPConn).SetReadBuffer(1 << 10)
	errtest.Must(t, errtest.Of(deaf.Write(text(`{"type":"validate","data":{"policy_content":"x"}}`))))
	w.waitClosed("a peer that does not read")
}

// TestSocketRoom: the sockets of one person, of a tenant and of all are limited, and so is
// the memory of their messages. When sockets end, others can be opened.
func TestSocketRoom(t *testing.T) {
	w := newWire(t, quick)
	var open []*bare
	for range socketsEach {
		open = append(open, w.open("a"))
	}
	if _, status := w.try("a"); status != http.StatusTooManyRequests {
		t.Errorf("upgrade of socket %d of one person = %d, want %d", socketsEach+1, status, http.StatusTooManyRequests)
	}
	w.open("b")
	l := &w.h.sockets
	l.bytes.Add(socketBytes)
	errtest.Must(t, errtest.Of(open[0].Write(text(`{"type":"ping"}`))))
	if code := open[0].code(); code != int(websocket.StatusTryAgainLater) {
		t.Errorf("without room for messages: closed with %d, want %d", code, websocket.StatusTryAgainLater)
	}
	l.bytes.Add(-socketBytes)
	w.h.CloseSockets()
	w.waitClosed("closed")

	all := &sockets{}
	add := func(tenant scope.TenantID, kind scope.ActorKind, id string) error {
		return all.add(&socket{sc: scope.Scope{Tenant: tenant, Actor: scope.Actor{Kind: kind, ID: id}}})
	}
	count := func(tenant scope.TenantID) (n int) {
		for add(tenant, scope.Person, fmt.Sprint("p", n)) == nil {
			n++
		}
		return n
	}
	for range socketsEach {
		if add("mixed", scope.Person, "1") != nil || add("mixed", scope.Key, "1") != nil {
			t.Fatal("a key counts as the person of the same id")
		}
	}
	if err := add("mixed", scope.Person, "1"); !fault.Is(err, fault.RateLimited) {
		t.Errorf("add of one socket too many = %v, want rate limited", err)
	}
	if n := count("mixed"); n != socketsTenant-2*socketsEach {
		t.Errorf("%d more sockets of one tenant, want %d", n, socketsTenant-2*socketsEach)
	}
	if n := count("t2") + count("t3") + count("t4") + count("t5"); n != socketsAll-socketsTenant {
		t.Errorf("%d sockets of all other tenants, want %d", n, socketsAll-socketsTenant)
	}
}

// TestSocketClose: CloseSockets closes with 1001, does not wait for peers that do not
// answer, and accepts no new sockets.
func TestSocketClose(t *testing.T) {
	w := newWire(t, quick)
	listens, deaf := w.open("a"), w.open("b")
	began := make(chan struct{})
	w.setCheck(func(ctx context.Context, _ string) (policy.Validation, error) {
		close(began)
		<-ctx.Done()
		return policy.Validation{}, ctx.Err()
	})
	errtest.Must(t, errtest.Of(deaf.Write(text(`{"type":"validate","data":{"policy_content":"x"}}`))))
	<-began
	closed := make(chan struct{})
	go func() { w.h.CloseSockets(); close(closed) }()
	if code := listens.code(); code != int(websocket.StatusGoingAway) {
		t.Errorf("closed with %d, want %d", code, websocket.StatusGoingAway)
	}
	select {
	case <-closed:
	case <-time.After(2 * time.Second):
		t.Error("CloseSockets waits for a peer that does not answer, want it to return")
	}
	if _, status := w.try("c"); status != http.StatusTooManyRequests {
		t.Errorf("upgrade after CloseSockets = %d, want %d", status, http.StatusTooManyRequests)
	}
}

// TestSocketPanic: a panic ends only one socket.
func TestSocketPanic(t *testing.T) {
	w := newWire(t, quick)
	other := w.open("b")
	w.setCheck(func(context.Context, string) (policy.Validation, error) { panic("mistake") })
	b := w.open("a")
	errtest.Must(t, errtest.Of(b.Write(text(`{"type":"validate","data":{"policy_content":"x"}}`))))
	if code := b.code(); code != int(websocket.StatusInternalError) {
		t.Errorf("closed with %d, want %d", code, websocket.StatusInternalError)
	}
	if n := w.panics.Load(); n != 1 {
		t.Errorf("%d panics counted, want 1", n)
	}
	errtest.Must(t, errtest.Of(other.Write(text(`{"type":"ping"}`))))
	if op, _, err := other.read(); op != 1 || err != nil {
		t.Errorf("answer of the other socket = %d, %v, want a message", op, err)
	}
}

// TestOpenSocketIsNoUse: an open socket alone does not keep a session from expiring. The
// messages of its person do.
func TestOpenSocketIsNoUse(t *testing.T) {
	w := newWire(t, quick)
	w.setCheck(func(context.Context, string) (policy.Validation, error) { return policy.Validation{Valid: true}, nil })
	b := w.open("a")
	upgrade := w.uses.Load()
	send := func(message, want string) {
		t.Helper()
		errtest.Must(t, errtest.Of(b.Write(text(message))))
		if op, payload, err := b.read(); op != 1 || !strings.Contains(string(payload), want) || err != nil {
			t.Fatalf("answer to %s = %d %q, %v, want %s", message, op, payload, err, want)
		}
	}
	send(`{"type":"ping"}`, `"pong"`)
	deadline := time.After(30 * time.Second)
	for tick := time.NewTicker(5 * time.Millisecond); w.rechecks.Load() < 6; {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatal("the socket does not check its credential")
		}
	}
	if n := w.uses.Load(); n != upgrade {
		t.Errorf("an open socket uses its credential %d times, want 0", n-upgrade)
	}
	send(`{"type":"validate","data":{"policy_content":"x"}}`, `"validation_result"`)
	if n := w.uses.Load(); n != upgrade+1 {
		t.Errorf("one request uses the credential %d times, want 1", n-upgrade)
	}
}
