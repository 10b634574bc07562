package fastpath

import (
	"bufio"
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/gatehouse-dev/gatehouse/internal/errtest"
	"github.com/gatehouse-dev/gatehouse/internal/fault"
)

// patience ends a test that hangs.
const patience = 30 * time.Second

// by returns whether the fast path or net/http serves a request.
func by(req *http.Request) string {
	if req.Context().Value(http.ServerContextKey) != nil {
		return "net/http"
	}
	return "fast path"
}

// echo answers with the server and the content of the request.
func echo(w http.ResponseWriter, req *http.Request) {
	body, err := io.ReadAll(req.Body)
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	w.Header().Set("Content-Type", "text/plain")
	_, _ = io.WriteString(w, by(req)+" "+req.Method+" "+req.RequestURI+" "+string(body))
}

// begin serves h with a fast path and an http.Server behind it.
func begin(t *testing.T, l net.Listener, h http.HandlerFunc, change func(*Config)) *Listener {
	t.Helper()
	c := Config{
		Handler: h, Brief: anyPath, First: patience, Body: patience, Idle: patience, Now: time.Now,
		Log: slog.New(slog.DiscardHandler),
	}
	if change != nil {
		change(&c)
	}
	short := Listen(l, c)
	srv := &http.Server{Handler: h, ErrorLog: slog.NewLogLogger(slog.DiscardHandler, 0)}
	served := make(chan error, 1)
	go func() { served <- srv.Serve(short) }()
	t.Cleanup(func() {
		if err := srv.Close(); err != nil {
			t.Errorf("Close of the server: %v", err)
		}
		if err := short.Wait(patience); err != nil {
			t.Errorf("Wait of the fast path: %v", err)
		}
		if err := <-served; !errors.Is(err, http.ErrServerClosed) {
			t.Errorf("Serve = %v, want http.ErrServerClosed", err)
		}
	})
	return short
}

// tcp returns a listener on a free port.
func tcp(t *testing.T) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	errtest.Must(t, err)
	return l
}

// peer is the client side of a connection.
type peer struct {
	net.Conn
	t *testing.T
	r *bufio.Reader
}

// dial connects to a listener until the test ends.
func dial(t *testing.T, l net.Listener) *peer {
	t.Helper()
	c, err := net.Dial("tcp", l.Addr().String())
	errtest.Must(t, err)
	t.Cleanup(func() { _ = c.Close() })
	errtest.Must(t, c.SetDeadline(time.Now().Add(patience)))
	return &peer{c, t, bufio.NewReader(c)}
}

// send writes a text.
func (p *peer) send(text string) {
	p.t.Helper()
	errtest.Must(p.t, errtest.Of(io.WriteString(p, text)))
}

// take reads an answer and its body.
func (p *peer) take() (*http.Response, string) {
	p.t.Helper()
	res, err := http.ReadResponse(p.r, nil)
	errtest.Must(p.t, err)
	defer func() { _ = res.Body.Close() }()
	body, err := io.ReadAll(res.Body)
	errtest.Must(p.t, err)
	return res, string(body)
}

// want fails unless the next answer is 200 with a body.
func (p *peer) want(body string) {
	p.t.Helper()
	if res, got := p.take(); res.StatusCode != http.StatusOK || got != body {
		p.t.Errorf("answer = %s %q, want 200 %q", res.Status, got, body)
	}
}

// wantEnd waits for the end of the connection, and expects no data before it.
func (p *peer) wantEnd() {
	p.t.Helper()
	if b, err := p.r.ReadByte(); err == nil {
		p.t.Errorf("read %q, want the end of the connection", b)
	} else if te, ok := errors.AsType[net.Error](err); ok && te.Timeout() {
		p.t.Error("the connection stays open, want its end")
	}
}

// post returns a POST request.
func post(path, body string) string {
	return lines("POST "+path+" HTTP/1.1", "Host: x", "Content-Length: "+strconv.Itoa(len(body))) + body
}

// TestOneAfterTheOther sends requests on one connection until one goes to net/http. It and all
// later ones are served too.
func TestOneAfterTheOther(t *testing.T) {
	l := begin(t, tcp(t), echo, nil)
	p := dial(t, l)
	p.send(post("/a", "one"))
	p.want("fast path POST /a one")
	p.send(post("/b?c", ""))
	p.want("fast path POST /b?c ")
	p.send(lines("POST /d HTTP/1.1", "Host: x", "Transfer-Encoding: chunked") + "3\r\ntwo\r\n0\r\n\r\n")
	p.want("net/http POST /d two")
	p.send(post("/e", "three"))
	p.want("net/http POST /e three")
}

// TestAtOnce: requests that arrive together are answered in order, by the fast path or by
// net/http.
func TestAtOnce(t *testing.T) {
	p := dial(t, begin(t, tcp(t), echo, nil))
	p.send(post("/a", "one") + post("/b", "two") + lines("GET /c HTTP/1.1", "Host: x") + post("/d", "four"))
	p.want("fast path POST /a one")
	p.want("fast path POST /b two")
	p.want("net/http GET /c ")
	p.want("net/http POST /d four")
}

// TestInPieces: the fast path accepts a body that arrives after its header, and that a
// request whose header arrives in pieces is served too.
func TestInPieces(t *testing.T) {
	l := begin(t, tcp(t), echo, nil)
	p := dial(t, l)
	whole := post("/a", "one")
	p.send(strings.TrimSuffix(whole, "ne"))
	p.send("n")
	p.send("e" + whole)
	p.want("fast path POST /a one")
	p.want("fast path POST /a one")
	p.send(whole[:20])
	p.send(whole[20:])
	if _, body := p.take(); !strings.HasSuffix(body, " POST /a one") { // by either, if the pieces arrive together
		t.Errorf("answer = %q, want POST /a one", body)
	}
}

// TestNotHere: requests that are too large, not brief or not simple go to net/http, with
// its answers.
func TestNotHere(t *testing.T) {
	l := begin(t, tcp(t), echo, func(c *Config) { c.Brief = func(path string) bool { return path == "/a" } })
	for _, tc := range []struct{ name, text, want string }{
		{"not brief", post("/b", "x"), "net/http POST /b x"},
		{"long body", post("/a", strings.Repeat("x", room)), "net/http POST /a " + strings.Repeat("x", room)},
		{"long header", lines("POST /a HTTP/1.1", "Host: x", "X: "+strings.Repeat("x", room), length2) + "{}", "net/http POST /a {}"},
		{"expectation", lines("POST /a HTTP/1.1", "Host: x", length2, "Expect: 100-continue") + "{}", "net/http POST /a {}"},
		{"last", lines("POST /a HTTP/1.1", "Host: x", length2, "Connection: close") + "{}", "net/http POST /a {}"},
		{"escaped", lines("POST /%61 HTTP/1.1", "Host: x", length2) + "{}", "net/http POST /%61 {}"},
		{"two lengths", lines("POST /a HTTP/1.1", "Host: x", length2, "Content-Length: 3") + "{}", "400"},
		{"no host", lines("POST /a HTTP/1.1", length2) + "{}", "400"},
		{"nonsense", "\x16\x03\x01\r\n\r\n", "400"},
	} {
		p := dial(t, l)
		p.send(tc.text)
		res, body := p.take()
		if tc.name == "expectation" { // the first answer is 100 Continue
			if res.StatusCode != http.StatusContinue {
				t.Errorf("%s: answer = %s, want 100", tc.name, res.Status)
			}
			res, body = p.take()
		}
		if body != tc.want && res.Status[:3] != tc.want {
			t.Errorf("%s: answer = %s %q, want %s", tc.name, res.Status, body, tc.want)
		}
	}
}

// TestAnswers: the fast path sends the answers that net/http would send.
func TestAnswers(t *testing.T) {
	answers := []func(w http.ResponseWriter){
		func(http.ResponseWriter) {},
		func(w http.ResponseWriter) { w.WriteHeader(http.StatusNoContent) },
		func(w http.ResponseWriter) { w.WriteHeader(http.StatusNotModified) },
		func(w http.ResponseWriter) { w.WriteHeader(599) },
		func(w http.ResponseWriter) {
			w.Header()["A"] = []string{"b", "c\r\nd: e"}
			w.Header().Set("Content-Length", "3")
			w.WriteHeader(http.StatusForbidden)
			w.WriteHeader(http.StatusOK)
			w.Header().Set("F", "too late")
			_, _ = io.WriteString(w, "abc")
		},
		func(w http.ResponseWriter) { _, _ = io.WriteString(w, strings.Repeat("x", 2*most)) },
		func(w http.ResponseWriter) { w.Header().Set("Connection", "close") },
	}
	h := func(w http.ResponseWriter, req *http.Request) {
		w.Header().Set("Content-Type", "text/plain")
		if req.RequestURI == "/net" {
			if by(req) != "net/http" {
				t.Error("the fast path serves a request that is not brief")
			}
		} else if by(req) != "fast path" {
			t.Error("the fast path does not serve a brief request")
		}
		answers[req.ContentLength](w)
	}
	l := begin(t, tcp(t), h, func(c *Config) { c.Brief = func(path string) bool { return path != "/net" } })
	ask := func(path string, i int) (*http.Response, string) {
		p := dial(t, l)
		p.send(post(path, strings.Repeat("x", i)))
		res, body := p.take()
		if date, err := http.ParseTime(res.Header.Get("Date")); err != nil || time.Since(date) > time.Minute {
			t.Errorf("POST %s of answer %d: Date = %q, want now", path, i, res.Header.Get("Date"))
		}
		res.Header.Del("Date")
		if res.Close {
			p.wantEnd()
		}
		return res, body
	}
	for i := range answers {
		ours, body := ask("/fast", i)
		theirs, want := ask("/net", i)
		if theirs.ContentLength < 0 { // net/http sends long answers in chunks
			ours.Header.Del("Content-Length")
		}
		if d := cmp.Diff(theirs.Header, ours.Header); d != "" || body != want || ours.Status != theirs.Status || ours.Close != theirs.Close {
			t.Errorf("answer %d of the fast path = %s, %d bytes, close %v; of net/http %s, %d bytes, close %v\n%s", i, ours.Status, len(body), ours.Close, theirs.Status, len(want), theirs.Close, d)
		}
	}
}

// logLines collects log output.
type logLines chan string

func (s logLines) Write(p []byte) (int, error) {
	s <- string(p)
	return len(p), nil
}

// TestPanic: a handler that panics ends its connection, and no other.
func TestPanic(t *testing.T) {
	log := make(logLines, 2)
	var counted atomic.Int32
	l := begin(t, tcp(t), func(w http.ResponseWriter, req *http.Request) {
		_, _ = io.WriteString(w, "half")
		switch req.URL.Path {
		case "/bug":
			panic("a bug")
		case "/abort":
			panic(http.ErrAbortHandler)
		}
	}, func(c *Config) {
		c.Log = slog.New(slog.NewTextHandler(log, nil))
		c.Panics = &fault.Panics{Add: func(string) { counted.Add(1) }}
	})
	other := dial(t, l)
	for _, path := range []string{"/bug", "/abort"} {
		p := dial(t, l)
		p.send(post(path, ""))
		p.wantEnd()
	}
	other.send(post("/", ""))
	other.want("half")
	if text := <-log; !strings.Contains(text, "fastpath_test.go") || strings.Contains(text, "a bug") || counted.Load() != 1 || !strings.Contains(text, "path=/bug") {
		t.Errorf("log = %s after %d panics, want the place and path of one, without its text", text, counted.Load())
	}
	if len(log) > 0 {
		t.Errorf("second log line = %s, want none", <-log)
	}
}

// TestDeadlines: a connection ends if its client sends nothing, or stops in the middle.
func TestDeadlines(t *testing.T) {
	const short = 50 * time.Millisecond
	for _, tc := range []struct {
		name   string
		change func(*Config)
		text   string
		answer bool
	}{
		{"nothing", func(c *Config) { c.First = short }, "", false},
		{"half a body", func(c *Config) { c.Body = short }, strings.TrimSuffix(post("/", "one"), "e"), false},
		{"no second request", func(c *Config) { c.Idle = short }, post("/", "one"), true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			p := dial(t, begin(t, tcp(t), echo, tc.change))
			p.send(tc.text)
			if tc.answer {
				p.want("fast path POST / one")
			}
			p.wantEnd()
		})
	}
}

// armed is a listener that keeps the deadline of the connection that it accepted last.
type armed struct {
	net.Listener
	until atomic.Pointer[time.Time]
}

func (a *armed) Accept() (net.Conn, error) {
	c, err := a.Listener.Accept()
	return armedConn{c, a}, err
}

type armedConn struct {
	net.Conn
	of *armed
}

func (c armedConn) SetDeadline(t time.Time) error {
	c.of.until.Store(&t)
	return c.Conn.SetDeadline(t)
}

// TestDeadlineAfterALateBody: the answer to a request whose body came after its header has the time
// of any other answer, and so has the rest before the next request.
func TestDeadlineAfterALateBody(t *testing.T) {
	l := &armed{Listener: tcp(t)}
	left := make(chan time.Duration, 1)
	p := dial(t, begin(t, l, func(w http.ResponseWriter, req *http.Request) {
		left <- time.Until(*l.until.Load())
		echo(w, req)
	}, func(c *Config) { c.First, c.Body, c.Idle = time.Hour, time.Hour, 10*time.Hour }))
	for _, late := range []bool{false, true, false} {
		whole := post("/", "one")
		if late {
			p.send(strings.TrimSuffix(whole, "e"))
			whole = "e"
		}
		p.send(whole)
		if got := <-left; got < 5*time.Hour {
			t.Errorf("with a late body: %v: %v are left for the answer", late, got)
		}
		p.want("fast path POST / one")
	}
}

// TestEnd checks that Close ends resting connections, that running requests are finished, and that
// nothing remains.
func TestEnd(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	entered, leave := make(chan struct{}), make(chan struct{})
	short := Listen(tcp(t), Config{Brief: anyPath, First: patience, Body: patience, Idle: patience, Now: time.Now, Log: slog.New(slog.DiscardHandler), Handler: http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if req.RequestURI == "/slow" {
			close(entered)
			<-leave
		}
		echo(w, req)
	})})
	fresh, rests, runs := dial(t, short), dial(t, short), dial(t, short)
	rests.send(post("/", ""))
	rests.want("fast path POST / ")
	runs.send(post("/slow", "") + post("/more", ""))
	<-entered
	errtest.Must(t, short.Close())
	fresh.wantEnd()
	rests.wantEnd()
	if _, err := net.Dial("tcp", short.Addr().String()); err == nil {
		t.Error("a closed listener accepts a connection")
	}
	if _, err := short.Accept(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("Accept of a closed listener = %v, want net.ErrClosed", err)
	}
	close(leave)
	if res, body := runs.take(); body != "fast path POST /slow " || !res.Close {
		t.Errorf("answer during the end = %q, close %v, want POST /slow with a close", body, res.Close)
	}
	runs.wantEnd()
	if err := short.Wait(patience); err != nil {
		t.Errorf("Wait: %v", err)
	}
	if err := short.Close(); err != nil {
		t.Errorf("second Close: %v", err)
	}
}

// TestCut: connections that do not end in time are closed.
func TestCut(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	var ended atomic.Bool
	entered := make(chan struct{})
	short := Listen(tcp(t), Config{Brief: anyPath, First: patience, Body: patience, Idle: patience, Now: time.Now, Log: slog.New(slog.DiscardHandler), Handler: http.HandlerFunc(func(_ http.ResponseWriter, req *http.Request) {
		close(entered)
		<-req.Context().Done()
		ended.Store(errors.Is(req.Context().Err(), context.Canceled))
	})})
	asks, sends := dial(t, short), dial(t, short)
	sends.send(strings.TrimSuffix(post("/", "one"), "e"))
	asks.send(post("/", ""))
	<-entered
	if err := short.Wait(time.Millisecond); err != nil {
		t.Errorf("Wait: %v", err)
	}
	if !ended.Load() {
		t.Error("the context of the running request is not cancelled")
	}
	sends.wantEnd()
}

// flaky is a listener whose Accept sometimes fails.
type flaky struct {
	net.Listener
	failures atomic.Int32
}

func (f *flaky) Accept() (net.Conn, error) {
	if f.failures.Add(-1) >= 0 {
		return nil, tooMany{}
	}
	return f.Listener.Accept()
}

// tooMany is the error of a process that has no file descriptors left.
type tooMany struct{}

func (tooMany) Error() string   { return "too many open files" }
func (tooMany) Timeout() bool   { return false }
func (tooMany) Temporary() bool { return true }

// TestAcceptFails: a temporary error does not end the fast path.
func TestAcceptFails(t *testing.T) {
	f := &flaky{Listener: tcp(t)}
	f.failures.Store(2)
	p := dial(t, begin(t, f, echo, nil))
	p.send(post("/", ""))
	p.want("fast path POST / ")
}
