package enforce

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/topdown"

	"github.com/gatehouse-dev/gatehouse/internal/enforce/bodies"
	"github.com/gatehouse-dev/gatehouse/internal/enforce/identity"
	"github.com/gatehouse-dev/gatehouse/internal/enforce/request"
	"github.com/gatehouse-dev/gatehouse/internal/errtest"
	"github.com/gatehouse-dev/gatehouse/internal/freeport"
	"github.com/gatehouse-dev/gatehouse/internal/fulltest"
	"github.com/gatehouse-dev/gatehouse/internal/rego"
)

// wireApplication serves each connection with serve, without an HTTP server.
func wireApplication(t *testing.T, serve func(net.Conn, *bufio.Reader)) string {
	t.Helper()
	return "http://" + freeport.Accept(t, func(c net.Conn) { serve(c, bufio.NewReader(c)) })
}

// readHead reads the head of a request. It returns false at the end of the connection.
func readHead(br *bufio.Reader) bool {
	for {
		line, err := br.ReadString('\n')
		if err != nil {
			return false
		}
		if line == "\r\n" {
			return true
		}
	}
}

// Whatever the application does, the client gets an answer, and not one that only looks whole.
func TestApplicationFaults(t *testing.T) {
	fulltest.Only(t)
	t.Parallel()
	for name, tc := range map[string]struct {
		serve func(net.Conn, *bufio.Reader)
		want  int // 0: the connection must break rather than look whole
	}{
		"closes at once":    {func(c net.Conn, br *bufio.Reader) {}, 502},
		"closes after head": {func(c net.Conn, br *bufio.Reader) { readHead(br) }, 502},
		"never answers":     {func(c net.Conn, br *bufio.Reader) { readHead(br); _, _ = io.Copy(io.Discard, br) }, 504},
		"half a head": {func(c net.Conn, br *bufio.Reader) {
			readHead(br)
			fmt.Fprint(c, "HTTP/1.1 200 OK\r\nContent-")
			_, _ = io.Copy(io.Discard, br)
		}, 504},
		"not HTTP":           {func(c net.Conn, br *bufio.Reader) { readHead(br); fmt.Fprint(c, "SSH-2.0-OpenSSH\r\n") }, 502},
		"endless head":       {endless("HTTP/1.1 200 OK\r\n", "X-A: "+strings.Repeat("a", 1000)+"\r\n"), 502},
		"endless line":       {endless("HTTP/1.1 200 OK\r\nX-A: ", strings.Repeat("a", 1000)), 502},
		"endless 1xx":        {endless("", "HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n"), 502},
		"unasked upgrade":    {once("HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n"), 502},
		"two lengths":        {once("HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab"), 502},
		"breaks off":         {once("HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\nabc"), 0},
		"breaks off chunked": {once("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n"), 0},
		"stalls": {func(c net.Conn, br *bufio.Reader) {
			readHead(br)
			fmt.Fprint(c, "HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\nabc")
			_, _ = io.Copy(io.Discard, br)
		}, 0},
		"body without end":    {once("HTTP/1.1 200 OK\r\n\r\nhello"), 200},
		"more than announced": {once("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nokHTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\npoison"), 200},
	} {
		t.Run(name, func(t *testing.T) {
			url := wireApplication(t, tc.serve)
			_, b := startPublished(t, url, enforcing(allowAll), func(c *Config) { c.UpstreamTimeout, c.BodyIdle = 300*time.Millisecond, 300*time.Millisecond })
			for _, method := range []string{"GET", "POST"} { // the fast path and the transport
				for range 2 {
					ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second) // many times the limits of the bouncer
					req, _ := http.NewRequestWithContext(ctx, method, b.url+"/x", nil)
					resp, err := http.DefaultTransport.RoundTrip(req)
					var body []byte
					if err == nil {
						body, err = io.ReadAll(resp.Body)
						resp.Body.Close()
					}
					cancel()
					switch {
					case errors.Is(err, context.DeadlineExceeded):
						t.Errorf("%s: the client still waits after 5 seconds", method)
					case tc.want == 0 && err == nil:
						t.Errorf("%s: a broken answer looks whole: %d %q", method, resp.StatusCode, body)
					case tc.want != 0 && (err != nil || resp.StatusCode != tc.want):
						t.Errorf("%s: %v %v, want %d", method, resp, err, tc.want)
					case strings.Contains(string(body), "poison"):
						t.Errorf("%s: %q, want nothing of another answer", method, body)
					}
				}
			}
		})
	}
	t.Run("not there", func(t *testing.T) {
		addr := freeport.Addr(t)
		_, b := startPublished(t, "http://"+addr, enforcing(allowAll), nil)
		if got := fetch(t, "GET", b.url+"/x", nil); got.status != 502 || strings.Contains(got.body, addr) {
			t.Errorf("%s, want 502 without the address of the application", got)
		}
	})
}

// once answers one request of a connection.
func once(answer string) func(net.Conn, *bufio.Reader) {
	return func(c net.Conn, br *bufio.Reader) {
		readHead(br)
		fmt.Fprint(c, answer)
	}
}

// endless answers with first, and then again without an end.
func endless(first, again string) func(net.Conn, *bufio.Reader) {
	return func(c net.Conn, br *bufio.Reader) {
		readHead(br)
		fmt.Fprint(c, first)
		for {
			if _, err := io.WriteString(c, again); err != nil {
				return
			}
		}
	}
}

// No request fails because the application closed an idle connection.
func TestClosedIdleConnections(t *testing.T) {
	t.Parallel()
	var conns atomic.Int32
	url := wireApplication(t, func(c net.Conn, br *bufio.Reader) {
		if !readHead(br) {
			return
		}
		conns.Add(1) // it does not announce that it closes the connection
		fmt.Fprint(c, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
	})
	_, b := startPublished(t, url, enforcing(allowAll), nil)
	for i := range 20 {
		if got := fetch(t, "GET", b.url+"/x", nil); got.status != 200 {
			t.Fatalf("request %d: %s, want 200", i, got)
		}
	}
	if n := conns.Load(); n != 20 {
		t.Errorf("the application got %d connections, want one for each of 20 requests", n)
	}
}

// A client that disconnects cancels its request at the application, on the fast path and on the
// transport.
func TestClientDisconnects(t *testing.T) {
	t.Parallel()
	gone := make(chan struct{}, 2)
	here := make(chan struct{}, 2)
	app := newApplication(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/free" {
			return
		}
		_, _ = io.Copy(io.Discard, r.Body)
		here <- struct{}{}
		<-r.Context().Done()
		gone <- struct{}{}
	})
	_, b := startPublished(t, app.URL, enforcing(allowAll), func(c *Config) { c.UpstreamConns = 1 })
	for _, method := range []string{"GET", "POST"} {
		ctx, cancel := context.WithCancel(t.Context())
		req, _ := http.NewRequestWithContext(ctx, method, b.url+"/x", nil)
		go func() { <-here; cancel() }()
		if _, err := http.DefaultTransport.RoundTrip(req); !errors.Is(err, context.Canceled) {
			t.Errorf("%s: %v, want the end of the context", method, err)
		}
		receive(t, method+" to be cancelled at the application", gone)
	}
	wantAnswer(t, "on the only connection", fetch(t, "GET", b.url+"/free", nil), 200)
}

// In shadow mode, the client gets the application's answer, whatever the controls do.
func TestShadowChangesNothing(t *testing.T) {
	fulltest.Only(t)
	t.Parallel()
	app := newApplication(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		w.Header().Set("Etag", `"v1"`)
		w.Header().Set("Date", "Mon, 02 Jan 2006 15:04:05 GMT")
		w.Header().Add("Set-Cookie", "a=1")
		w.Header().Add("Set-Cookie", "b=2")
		w.WriteHeader(418)
		fmt.Fprintf(w, "%s %s %s", r.Method, r.URL, body)
	})
	hang := "package hang\n\nallow if {\n\tsome i in numbers.range(1, 2000)\n\tsome j in numbers.range(1, 2000)\n\tsome k in numbers.range(1, 2000)\n\t(i * j) * k == -1\n}\n"
	crash := "package crash\n\nallow := 1 if input.request.path\n\nallow := 2 if input.request.method\n"
	for name, source := range map[string]string{"denying": denyAll, "crashing": crash, "hanging": hang, "masking": maskSSN} {
		t.Run(name, func(t *testing.T) {
			p, b := startPublished(t, app.URL, policySet{revision: 1, mode: "shadow", controls: []control{{id: 1, source: source}}}, nil)
			var took []time.Duration
			for i := range 4 {
				for _, method := range []string{"GET", "POST"} {
					target := fmt.Sprintf("/a/%d?x=%d", i, i)
					send := func(base string) reply {
						return fetch(t, method, base+target, func(r *http.Request) { r.Body = io.NopCloser(strings.NewReader("hello")); r.ContentLength = 5 })
					}
					direct, began := send(app.URL), time.Now()
					through := send(b.url)
					took = append(took, time.Since(began))
					if !reflect.DeepEqual(direct, through) {
						t.Errorf("through the bouncer: %+v, want as without it: %+v", through, direct)
					}
				}
			}
			if slices.Sort(took); took[len(took)/2] > rego.DefaultDeadline/2 { // a hundred times what a request takes
				t.Errorf("the median request took %s, want at most %s: answers do not wait for decisions", took[len(took)/2], rego.DefaultDeadline/2)
			}
			if decided, _ := b.count.Decisions(); name == "hanging" && decided == 8 {
				t.Error("8 of 8 slow decisions are over after 8 answers, want answers that do not wait for them")
			}
			word := "SHADOW_WOULD_DENY"
			if name == "masking" {
				word = "SHADOW_WOULD_MASK"
			}
			events := p.logged(8)
			for _, e := range events {
				if field(e, "custom", "outcome") != word {
					t.Errorf("the event is %v, want the outcome %s", e["custom"], word)
				}
			}
			if len(events) != 8 {
				t.Errorf("%d events for 8 requests, want 8", len(events))
			}
		})
	}
}

// A client whose body stalls gets an answer, with a length as well as in chunks. Then the connection
// ends: the server does not wait for the rest.
func TestStalledBodyIsAnswered(t *testing.T) {
	fulltest.Only(t)
	t.Parallel()
	b := startWithTemplates(t, http.NotFoundHandler())
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/mcp" { // a body that controls read
			st, in := b.state.Load(), &request.Inbound{At: time.Now().Add(100*time.Millisecond - bodies.ClientReadTimeout), Method: r.Method, Path: r.URL.Path, Headers: r.Header}
			if refs, looks := in.Needs(st); !looks || b.inspectRequest(w, r, st, in, refs) {
				t.Error("the stalled body passes, or no control asks for it")
			}
			return
		}
		body := bodies.NewClientBody(w, r.Body, time.Now, time.Now().Add(100*time.Millisecond-bodies.ClientReadTimeout))
		r.Body = body
		if _, err := io.ReadAll(body); err == nil || !body.IsTooSlow() {
			t.Errorf("the body ends with %v, want that it is too slow", err)
		}
		w.WriteHeader(http.StatusRequestTimeout)
	}))
	defer server.Close()
	for name, head := range map[string]string{
		"with a length": "Content-Length: 1000\r\n\r\n{", "before its first byte": "Content-Length: 1000\r\n\r\n", "in chunks": "Transfer-Encoding: chunked\r\n\r\n1\r\n{\r\n",
	} {
		for _, path := range []string{"/", "/mcp"} {
			c, err := net.Dial("tcp", strings.TrimPrefix(server.URL, "http://"))
			errtest.Must(t, err)
			defer c.Close()
			_ = c.SetDeadline(time.Now().Add(10 * time.Second)) // less than ClientReadTimeout
			fmt.Fprintf(c, "POST %s HTTP/1.1\r\nHost: a.test\r\n%s", path, head)
			if all, err := io.ReadAll(c); err != nil || rawStatus(string(all)) != 408 {
				t.Errorf("POST %s, a body that stalls %s: %q %v, want 408 and the end of the connection", path, name, all, err)
			}
		}
	}
}

// A panic affects only the request in which it occurs.
func TestPanicIsContained(t *testing.T) {
	t.Parallel()
	app := newApplication(t, nil)
	_, b := startPublished(t, app.URL, enforcing(allowAll), nil)
	st := b.state.Load()
	broken := *st
	broken.Set = nil
	changed := *st.Settings
	changed.Tokens = &identity.Verifier{} // a verifier without a parser panics
	broken.Settings = &changed
	b.state.Store(&broken)
	for range 3 {
		got := fetch(t, "GET", b.url+"/x", func(r *http.Request) { r.Header.Set("Authorization", "Bearer a.b.c") })
		if got.status != 500 || !strings.Contains(got.body, "internal_error") || strings.Contains(got.body, "goroutine") {
			t.Errorf("a panic: %s, want 500 internal_error without a stack", got)
		}
	}
	b.state.Store(st)
	wantAnswer(t, "after panics", fetch(t, "GET", b.url+"/x", nil), 200)
	if n := b.count.Panics.Load(); n != 3 {
		t.Errorf("%d panics are counted, want 3", n)
	}
}

// TestEvaluatorPanics checks that a control in which the evaluator panics denies. The log has the
// stack, but nothing of the request.
func TestEvaluatorPanics(t *testing.T) {
	t.Parallel()
	own := topdown.GetBuiltin(ast.CryptoMd5.Name)
	topdown.RegisterBuiltinFunc(ast.CryptoMd5.Name, func(_ topdown.BuiltinContext, args []*ast.Term, _ func(*ast.Term) error) error {
		panic("no digest of " + args[0].String())
	})
	t.Cleanup(func() { topdown.RegisterBuiltinFunc(ast.CryptoMd5.Name, own) })
	app := newApplication(t, nil)
	p := newPlane(t)
	p.publish(enforcing("package m\n\nallow if crypto.md5(input.resource.path) == \"x\"\n"))
	var log lockedBuffer
	b := startLogging(t, p, app.URL, nil, &log).at(t, 1)
	if got := fetch(t, "GET", b.url+"/hidden", nil); got.status == 200 {
		t.Errorf("the evaluator panics: %s, want a refusal", got)
	}
	if n := b.count.Panics.Load(); n != 1 {
		t.Errorf("%d panics are counted, want 1", n)
	}
	if text := log.String(); !strings.Contains(text, "the evaluator panicked") || !strings.Contains(text, "goroutine") || strings.Contains(text, "no digest") {
		t.Errorf("the log is %q, want the stack without the input", text)
	}
}

// lockedBuffer is a log that can be read while it is being written.
type lockedBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

// A stop lets running requests finish.
func TestGracefulStop(t *testing.T) {
	t.Parallel()
	release, here := make(chan struct{}), make(chan struct{})
	app := newApplication(t, func(w http.ResponseWriter, r *http.Request) {
		close(here)
		<-release
		fmt.Fprint(w, "done")
	})
	p, b := startPublished(t, app.URL, enforcing(allowAll), nil)
	got := make(chan reply, 1)
	go func() { got <- fetch(t, "GET", b.url+"/slow", nil) }()
	<-here
	stopped := make(chan struct{})
	go func() { b.stop(); close(stopped) }()
	eventually(t, "new connections to be refused", func() bool {
		c, err := net.Dial("tcp", strings.TrimPrefix(b.url, "http://"))
		if err == nil {
			c.Close()
		}
		return err != nil
	})
	close(release)
	wantAnswer(t, "the request that ran", <-got, 200, "done")
	receiveWithin(t, 10*time.Second, "the stop", stopped)
	p.logged(1) // its decision is not lost
}

// The metrics have an address of their own, which serves nothing else. No spelling of a path below
// /_bouncer/ reaches the application.
func TestMetrics(t *testing.T) {
	t.Parallel()
	app := newApplication(t, nil)
	p := newPlane(t)
	p.publish(enforcing(adminOnly))
	own := freeport.Addr(t)
	b := start(t, p, app.URL, func(c *Config) { c.MetricsListen = own }).at(t, 1)
	fetch(t, "GET", b.url+"/open", nil)
	fetch(t, "GET", b.url+"/admin", nil)
	fetch(t, "GET", b.url+"/x%2f", nil)
	if got := fetch(t, "GET", b.url+"/_bouncer/metrics", nil); got.status != 404 || strings.Contains(got.body, "verdicts_total") {
		t.Errorf("the metrics at the address of the traffic: %s, want 404", got)
	}
	got := fetch(t, "GET", "http://"+own+"/_bouncer/metrics", nil)
	wantAnswer(t, "a path of the application at the address of the metrics", fetch(t, "GET", "http://"+own+"/open", nil), 404)
	for _, want := range []string{`verdicts_total{verdict="PERMIT"} 1`, `verdicts_total{verdict="DENY"} 1`, "refused_total 1", "ready 1", "enforcing 1", "controls 1", "decision_seconds_count 2"} {
		if !strings.Contains(got.body, "gatehouse_bouncer_"+want+"\n") {
			t.Errorf("the metrics are %s, want %q in them", got.body, want)
		}
	}
	for target, want := range map[string]int{"/_bouncer/": 404, "/_bouncer/x": 404, "//_bouncer/live": 200, "/x/../_bouncer/live": 200, "/%5fbouncer/live": 200} {
		out := sendRaw(t, b.url, "GET "+target+" HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
		if rawStatus(out) != want {
			t.Errorf("GET %s = %.40q, want %d", target, out, want)
		}
	}
	if n := len(app.take()); n != 1 {
		t.Errorf("%d requests reached the application, want 1", n)
	}
}
