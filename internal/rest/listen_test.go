package rest

import (
	"bufio"
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"reflect"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/gatehouse-dev/gatehouse/internal/errtest"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

// served runs a rig behind a real server. change configures the server.
func served(t *testing.T, change func(*http.Server), register func(*rig)) (addr string, stop func() error) {
	t.Helper()
	g := newRig(t, nil, register)
	srv := NewHTTPServer(g, slog.New(slog.DiscardHandler))
	if change != nil {
		change(srv)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	errtest.Must(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- g.Serve(ctx, srv, l, 0, 5*time.Second, nil) }()
	return l.Addr().String(), func() error { cancel(); return <-done }
}

// wantStop stops a server.
func wantStop(t *testing.T, stop func() error) {
	t.Helper()
	if err := stop(); err != nil {
		t.Errorf("Serve: %v", err)
	}
}

// dial connects to a server until the test ends.
func dial(t *testing.T, addr string) net.Conn {
	t.Helper()
	conn, err := net.Dial("tcp", addr)
	errtest.Must(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	errtest.Must(t, conn.SetDeadline(time.Now().Add(30*time.Second)))
	return conn
}

// rawStatus sends text and returns the status line.
func rawStatus(t *testing.T, addr, text string) string {
	t.Helper()
	conn := dial(t, addr)
	go func() { _, _ = io.WriteString(conn, text) }() // the server may stop reading
	line, err := bufio.NewReader(conn).ReadString('\n')
	if err != nil {
		t.Fatalf("status line: %v", err)
	}
	return strings.TrimSpace(line)
}

// TestServer: the server answers requests that are well-formed, and refuses those that two programs could
// read differently.
func TestServer(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	addr, stop := served(t, nil, nil)
	head := "Host: x\r\nX-API-Key: full\r\n"
	for _, tc := range []struct{ name, text, want string }{
		{"good", "GET /v1/widgets HTTP/1.1\r\n" + head + "\r\n", "200"},
		{"HEAD", "HEAD /health HTTP/1.1\r\nHost: x\r\n\r\n", "200"},
		{"header of 60 KiB", "GET /v1/widgets HTTP/1.1\r\n" + head + "X-Filler: " + strings.Repeat("x", 60<<10) + "\r\n\r\n", "200"},
		{"header of 70 KiB", "GET /v1/widgets HTTP/1.1\r\n" + head + "X-Filler: " + strings.Repeat("x", 70<<10) + "\r\n\r\n", "431"},
		{"announced 100 MB", "PUT /v1/widgets/7 HTTP/1.1\r\n" + head + "Content-Type: application/json\r\nContent-Length: 104857600\r\n\r\n", "413"},
		{"announced 100 MB by nobody", "PUT /v1/widgets/7 HTTP/1.1\r\nHost: x\r\nContent-Length: 104857600\r\n\r\n", "401"},
		{"chunked 2 MiB", "PUT /v1/widgets/7 HTTP/1.1\r\n" + head + "Transfer-Encoding: chunked\r\n\r\n200000\r\n" + strings.Repeat(" ", 2<<20) + "\r\n0\r\n\r\n", "413"},
		{"CONNECT", "CONNECT x:80 HTTP/1.1\r\nHost: x:80\r\n\r\n", "404"},
		{"length twice", "PUT /v1/widgets/7 HTTP/1.1\r\n" + head + "Content-Length: 1\r\nContent-Length: 2\r\n\r\n{}", "400"},
		{"one length twice", "PUT /v1/widgets/7 HTTP/1.1\r\n" + head + "Content-Length: 2\r\nContent-Length: 2\r\n\r\n{}", "400"},
		{"both lengths", "PUT /v1/widgets/7 HTTP/1.1\r\n" + head + "Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n", "400"},
		{"bare LF", "GET /v1/widgets HTTP/1.1\n" + strings.ReplaceAll(head, "\r", "") + "\n", "400"},
		{"bare LF in a field", "GET /v1/widgets HTTP/1.1\r\n" + head + "X-A: 1\nX-B: 2\r\n\r\n", "400"},
		{"folded line", "GET /v1/widgets HTTP/1.1\r\n" + head + "X-A: 1\r\n 2\r\n\r\n", "400"},
		{"space before the colon", "GET /v1/widgets HTTP/1.1\r\n" + head + "X-A : 1\r\n\r\n", "400"},
		{"coding in HTTP/1.0", "PUT /v1/widgets/7 HTTP/1.0\r\n" + head + "Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n", "400"},
		{"chunk extension", "PUT /v1/widgets/7 HTTP/1.1\r\n" + head + "Content-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n2;x=y\r\n{}\r\n0\r\n\r\n", "400"},
		{"folded line after a short request", "POST /v1/decisions/evaluate HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\nX-A: 1\r\n 2\r\n\r\n", "400"},
		{"no host", "GET /v1/widgets HTTP/1.1\r\nX-API-Key: full\r\n\r\n", "400"},
		{"absolute form", "GET http://x/v1/widgets HTTP/1.1\r\n" + head + "\r\n", "200"},
	} {
		if got := rawStatus(t, addr, tc.text); !strings.Contains(got, " "+tc.want+" ") {
			t.Errorf("%s = %s, want %s", tc.name, got, tc.want)
		}
	}
	wantStop(t, stop)
}

// TestSlow: the server's deadlines end neither a long poll nor its context.
func TestSlow(t *testing.T) {
	const deadline = 50 * time.Millisecond
	wait := func(ctx context.Context) error {
		timer := time.NewTimer(4 * deadline)
		defer timer.Stop()
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-timer.C:
			return nil
		}
	}
	addr, stop := served(t, func(srv *http.Server) { srv.ReadTimeout, srv.WriteTimeout = deadline, deadline }, func(g *rig) {
		Raw(g.Router, Op{ID: "poll", Method: "GET", Path: "/poll", Tags: []string{"Widgets"}, Slow: true, Public: true}, RawDocs{Response: reflect.TypeFor[string]()},
			func(w http.ResponseWriter, req *http.Request, _ scope.Scope) {
				if err := wait(req.Context()); err != nil {
					Fail(w, err)
					return
				}
				WriteJSON(w, 200, "ok")
			})
	})
	if got := rawStatus(t, addr, "GET /v1/poll HTTP/1.1\r\nHost: x\r\n\r\n"); !strings.Contains(got, " 200 ") {
		t.Errorf("GET /v1/poll = %s, want 200", got)
	}
	wantStop(t, stop)
}

// TestGraceful: a stopping server finishes running requests and accepts no new ones.
func TestGraceful(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	entered, leave := make(chan bool, 2), make(chan struct{})
	addr, stop := served(t, nil, func(g *rig) {
		for _, method := range []string{"GET", "POST"} {
			op := Op{ID: "linger-" + strings.ToLower(method), Method: method, Path: "/linger", Tags: []string{"Widgets"}, Public: true, Brief: method == "POST"}
			Raw(g.Router, op, RawDocs{Response: reflect.TypeFor[string]()}, func(w http.ResponseWriter, req *http.Request, _ scope.Scope) {
				entered <- req.Context().Value(http.ServerContextKey) == nil
				<-leave
				WriteJSON(w, 200, "done")
			})
		}
	})
	status := make(chan string, 2)
	lanes := 0
	for _, method := range []string{"GET", "POST"} {
		go func() {
			status <- rawStatus(t, addr, method+" /v1/linger HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n")
		}()
		if <-entered {
			lanes++
		}
	}
	if lanes != 1 {
		t.Errorf("%d of two requests use the lane, want the brief one", lanes)
	}
	stopped := make(chan error, 1)
	go func() { stopped <- stop() }()
	for { // until the server accepts no connection
		conn, err := net.Dial("tcp", addr)
		if err != nil {
			break
		}
		_ = conn.Close()
	}
	if len(stopped) > 0 {
		t.Errorf("the server ends while requests run: %v", <-stopped)
	}
	close(leave)
	for range 2 {
		if got := <-status; !strings.Contains(got, " 200 ") {
			t.Errorf("request during the stop = %s, want 200", got)
		}
	}
	if err := <-stopped; err != nil {
		t.Errorf("Serve: %v", err)
	}
}

// TestRefusalDuringUpload: a client that writes its whole body before it reads still receives a
// refusal, even if the body exceeds all buffers.
func TestRefusalDuringUpload(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	addr, stop := served(t, nil, nil)
	const large = 24 << 20
	chunk := "100000\r\n" + strings.Repeat(" ", 1<<20) + "\r\n"
	for _, tc := range []struct{ name, head, body, want string }{
		{"too large", "X-API-Key: full\r\nContent-Length: " + strconv.Itoa(large), strings.Repeat(" ", large), "413"},
		{"too large, in chunks", "X-API-Key: full\r\nTransfer-Encoding: chunked", strings.Repeat(chunk, 24) + "0\r\n\r\n", "413"},
		{"from nobody", "Content-Length: " + strconv.Itoa(large), strings.Repeat(" ", large), "401"},
	} {
		conn := dial(t, addr)
		if _, err := io.WriteString(conn, "PUT /v1/widgets/7 HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"+tc.head+"\r\n\r\n"+tc.body); err != nil {
			t.Errorf("%s: %v", tc.name, err)
		}
		res, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil {
			t.Fatalf("%s: %v", tc.name, err)
		}
		if body, err := io.ReadAll(res.Body); err != nil || !strings.HasPrefix(res.Status, tc.want) || !res.Close || !strings.Contains(string(body), "request_id") {
			t.Errorf("%s: status %s, close %v, %s, %v, want %s with a close", tc.name, res.Status, res.Close, body, err, tc.want)
		}
		if err := errors.Join(res.Body.Close(), conn.Close()); err != nil {
			t.Error(err)
		}
	}
	wantStop(t, stop)
}

// failingListener closes failed when its Accept fails.
type failingListener struct {
	net.Listener
	failed chan struct{}
}

func (l failingListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		close(l.failed)
	}
	return c, err
}

// TestStopWithClosedListener: a stop is orderly even if another part has closed the listener
// before.
func TestStopWithClosedListener(t *testing.T) {
	inner, err := net.Listen("tcp", "127.0.0.1:0")
	errtest.Must(t, err)
	l := failingListener{inner, make(chan struct{})}
	ctx, stop := context.WithCancel(t.Context())
	stop()
	if err := Serve(ctx, &http.Server{}, l, time.Second, func() {
		_ = inner.Close()
		<-l.failed
		for range 1000 { // the server must find it closed before the stop goes on
			runtime.Gosched()
		}
	}); err != nil {
		t.Errorf("Serve with a closed listener: %v", err)
	}
}

// TestClockStepKeepsConnections: if the wall clock is set forward by an hour, no connection is cut.
// The wall clock of this test is an hour behind, so deadlines that were computed from it would have
// expired.
func TestClockStepKeepsConnections(t *testing.T) {
	addr, stop := served(t, nil, func(g *rig) {
		g.cfg.Now = func() time.Time { return time.Now().UTC().Add(-time.Hour) }
		g.cfg.Ticks = time.Now
	})
	conn := dial(t, addr)
	in := bufio.NewReader(conn)
	for i := range 3 { // on one connection
		errtest.Must(t, errtest.Of(io.WriteString(conn, "GET /health HTTP/1.1\r\nHost: x\r\n\r\n")))
		res, err := http.ReadResponse(in, nil)
		if err != nil {
			t.Fatalf("request %d: %v", i, err)
		}
		_, _ = io.Copy(io.Discard, res.Body)
		_ = res.Body.Close()
		if res.StatusCode != 200 {
			t.Errorf("request %d = %d, want 200", i, res.StatusCode)
		}
	}
	_ = conn.Close()
	wantStop(t, stop)
}
