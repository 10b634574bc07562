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
	"github.com/gatehouse-dev/gatehouse/internal/freeport"
	"github.com/gatehouse-dev/gatehouse/internal/fulltest"
	"github.com/gatehouse-dev/gatehouse/internal/rego"
)

// wireApplication serves each connection with serve, without an HTTP server.
func wireApplication(t *testing.T, serve func(net.Conn, *bufio.Reader)) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	all.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			all.Go(func() { defer c.Close(); serve(c, bufio.NewReader(c)) })
		}
	})
	t.Cleanup(func() { l.Close(); all.Wait() })
	return "http://" + l.Addr().String()
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

// Whatever the application does, the client gets an answer in time.
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
			p := newPlane(t)
			p.publish(policySet{revision: 1, mode: "enforce", controls: []control{{id: 1, source: allowAll}}})
			b := start(t, p, url, func(c *Config) { c.UpstreamTimeout, c.BodyIdle = 300*time.Millisecond, 300*time.Millisecond }).at(t, 1)
			for _, method := range []string{"GET", "POST"} { // the fast path and the transport
				for range 2 {
					began := time.Now()
					req, _ := http.NewRequest(method, b.url+"/x", nil)
					resp, err := http.DefaultTransport.RoundTrip(req)
					var body []byte
					if err == nil {
						body, err = io.ReadAll(resp.Body)
						resp.Body.Close()
					}
					if took := time.Since(began); took > 5*time.Second {
						t.Errorf("%s took %v", method, took)
					}
					switch {
					case tc.want == 0 && err == nil:
						t.Errorf("%s: a broken answer looks whole: %d %q", method, resp.StatusCode, body)
					case tc.want != 0 && (err != nil || resp.StatusCode != tc.want):
						t.Errorf("%s: %v %v, want %d", method, resp, err, tc.want)
					case strings.Contains(string(body), "poison"):
						t.Errorf("%s: the answer is another request's: %q", method, body)
					}
				}
			}
		})
	}
	t.Run("nobody there", func(t *testing.T) {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		l.Close()
		p := newPlane(t)
		p.publish(policySet{revision: 1, mode: "enforce", controls: []control{{id: 1, source: allowAll}}})
		b := start(t, p, "http://"+l.Addr().String(), nil).at(t, 1)
		if got := fetch(t, "GET", b.url+"/x", nil); got.status != 502 || strings.Contains(got.body, l.Addr().String()) {
			t.Errorf("%d %s", got.status, got.body)
		}
	})
}

func once(answer string) func(net.Conn, *bufio.Reader) {
	return func(c net.Conn, br *bufio.Reader) {
		readHead(br)
		fmt.Fprint(c, answer)
	}
}

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
	var conns atomic.Int32
	url := wireApplication(t, func(c net.Conn, br *bufio.Reader) {
		if !readHead(br) {
			return
		}
		conns.Add(1) // it does not announce that it closes the connection
		fmt.Fprint(c, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
	})
	p := newPlane(t)
	p.publish(policySet{revision: 1, mode: "enforce", controls: []control{{id: 1, source: allowAll}}})
	b := start(t, p, url, nil).at(t, 1)
	for i := range 20 {
		if got := fetch(t, "GET", b.url+"/x", nil); got.status != 200 {
			t.Fatalf("request %d: %d %s", i, got.status, got.body)
		}
	}
	if n := conns.Load(); n != 20 {
		t.Errorf("%d connections for 20 requests", n)
	}
}

// A client that disconnects cancels its request at the application, on the fast path and on the
// transport.
func TestClientDisconnects(t *testing.T) {
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
	p := newPlane(t)
	p.publish(policySet{revision: 1, mode: "enforce", controls: []control{{id: 1, source: allowAll}}})
	b := start(t, p, app.URL, func(c *Config) { c.UpstreamConns = 1 }).at(t, 1)
	for _, method := range []string{"GET", "POST"} {
		ctx, cancel := context.WithCancel(t.Context())
		req, _ := http.NewRequestWithContext(ctx, method, b.url+"/x", nil)
		go func() { <-here; cancel() }()
		if _, err := http.DefaultTransport.RoundTrip(req); !errors.Is(err, context.Canceled) {
			t.Errorf("%s: %v", method, err)
		}
		select {
		case <-gone:
		case <-time.After(30 * time.Second):
			t.Errorf("%s: the application still works for a client that left", method)
		}
	}
	if got := fetch(t, "GET", b.url+"/free", nil); got.status != 200 {
		t.Errorf("the only connection is still in use: %d %s", got.status, got.body)
	}
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
			p := newPlane(t)
			p.publish(policySet{revision: 1, mode: "shadow", controls: []control{{id: 1, source: source}}})
			b := start(t, p, app.URL, nil).at(t, 1)
			var took []time.Duration
			for i := range 4 {
				for _, method := range []string{"GET", "POST"} {
					target := fmt.Sprintf("/a/%d?x=%d", i, i)
					send := func(base string) reply {
						return fetch(t, method, base+target, func(r *http.Request) { r.Body = io.NopCloser(strings.NewReader("hello")); r.ContentLength = 5 })
					}
					direct := send(app.URL)
					began := time.Now()
					through := send(b.url)
					took = append(took, time.Since(began))
					if fmt.Sprint(direct) != fmt.Sprint(through) {
						t.Errorf("direct: %v\nthrough: %v", direct, through)
					}
				}
			}
			if slices.Sort(took); took[len(took)/2] > rego.DefaultDeadline/2 {
				t.Errorf("the median request took %v: it waited for its decision", took[len(took)/2])
			}
			word := "SHADOW_WOULD_DENY"
			if name == "masking" {
				word = "SHADOW_WOULD_MASK"
			}
			events := p.logged(8)
			for _, e := range events {
				if e["custom"].(map[string]any)["outcome"] != word {
					t.Errorf("the log says %v", e["custom"])
				}
			}
			if len(events) != 8 {
				t.Errorf("%d events for 8 requests", len(events))
			}
		})
	}
}

// A client whose body stalls gets an answer, with a length as well as in chunks. Then the connection
// ends: the server does not wait for the rest.
func TestStalledBodyIsAnswered(t *testing.T) {
	t.Parallel()
	b := startWithTemplates(t, http.NotFoundHandler())
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/mcp" { // a body that controls read
			st, in := b.state.Load(), &request.Inbound{At: time.Now().Add(100*time.Millisecond - bodies.ClientReadTimeout), Method: r.Method, Path: r.URL.Path, Headers: r.Header}
			if refs, looks := in.Needs(st); !looks || b.inspectRequest(w, r, st, in, refs) {
				t.Error("the body was not inspected")
			}
			return
		}
		body := bodies.NewClientBody(w, r.Body, time.Now, time.Now().Add(100*time.Millisecond-bodies.ClientReadTimeout))
		r.Body = body
		if _, err := io.ReadAll(body); err == nil || !body.IsTooSlow() {
			t.Errorf("the body ended with %v", err)
		}
		w.WriteHeader(http.StatusRequestTimeout)
	}))
	defer server.Close()
	for name, head := range map[string]string{
		"with a length": "Content-Length: 1000\r\n\r\n{", "nothing of it": "Content-Length: 1000\r\n\r\n", "in chunks": "Transfer-Encoding: chunked\r\n\r\n1\r\n{\r\n",
	} {
		for _, path := range []string{"/", "/mcp"} {
			c, err := net.Dial("tcp", strings.TrimPrefix(server.URL, "http://"))
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			_ = c.SetDeadline(time.Now().Add(10 * time.Second))
			fmt.Fprintf(c, "POST %s HTTP/1.1\r\nHost: a.test\r\n%s", path, head)
			if all, err := io.ReadAll(c); err != nil || !strings.HasPrefix(string(all), "HTTP/1.1 408 ") {
				t.Errorf("%s of %s: %q, %v", name, path, all, err)
			}
		}
	}
}

// A panic affects only the request in which it occurs.
func TestPanicIsContained(t *testing.T) {
	app := newApplication(t, nil)
	p := newPlane(t)
	p.publish(policySet{revision: 1, mode: "enforce", controls: []control{{id: 1, source: allowAll}}})
	b := start(t, p, app.URL, nil).at(t, 1)
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
			t.Errorf("a panic answers %d %s", got.status, got.body)
		}
	}
	b.state.Store(st)
	if got := fetch(t, "GET", b.url+"/x", nil); got.status != 200 {
		t.Errorf("after panics: %d", got.status)
	}
	if n := b.count.Panics.Load(); n != 3 {
		t.Errorf("%d panics were counted", n)
	}
}

// TestEvaluatorPanics checks that a control in which the evaluator panics denies. The log has the
// stack, but nothing of the request.
func TestEvaluatorPanics(t *testing.T) {
	own := topdown.GetBuiltin(ast.CryptoMd5.Name)
	topdown.RegisterBuiltinFunc(ast.CryptoMd5.Name, func(_ topdown.BuiltinContext, args []*ast.Term, _ func(*ast.Term) error) error {
		panic("no digest of " + args[0].String())
	})
	t.Cleanup(func() { topdown.RegisterBuiltinFunc(ast.CryptoMd5.Name, own) })
	app := newApplication(t, nil)
	p := newPlane(t)
	p.publish(policySet{revision: 1, mode: "enforce", controls: []control{{id: 1, source: "package m\n\nallow if crypto.md5(input.resource.path) == \"x\"\n"}}})
	var log lockedBuffer
	b := startLogging(t, p, app.URL, nil, &log).at(t, 1)
	if got := fetch(t, "GET", b.url+"/hidden", nil); got.status == 200 {
		t.Errorf("the evaluator failed, and the answer is %d", got.status)
	}
	if n := b.count.Panics.Load(); n != 1 {
		t.Errorf("%d panics were counted", n)
	}
	if text := log.String(); !strings.Contains(text, "the evaluator panicked") || !strings.Contains(text, "goroutine") || strings.Contains(text, "no digest") {
		t.Errorf("the log: %s", text)
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
	release, here := make(chan struct{}), make(chan struct{})
	app := newApplication(t, func(w http.ResponseWriter, r *http.Request) {
		close(here)
		<-release
		fmt.Fprint(w, "done")
	})
	p := newPlane(t)
	p.publish(policySet{revision: 1, mode: "enforce", controls: []control{{id: 1, source: allowAll}}})
	b := start(t, p, app.URL, nil).at(t, 1)
	got := make(chan reply, 1)
	go func() { got <- fetch(t, "GET", b.url+"/slow", nil) }()
	<-here
	stopped := make(chan struct{})
	go func() { b.stop(); close(stopped) }()
	eventually(t, "no new connections to be taken", func() bool {
		c, err := net.Dial("tcp", strings.TrimPrefix(b.url, "http://"))
		if err == nil {
			c.Close()
		}
		return err != nil
	})
	close(release)
	if r := <-got; r.status != 200 || r.body != "done" {
		t.Errorf("the request that ran: %d %s", r.status, r.body)
	}
	select {
	case <-stopped:
	case <-time.After(10 * time.Second):
		t.Error("the stop takes more than ten seconds")
	}
	p.logged(1) // and its decision is not lost
}

func TestMetrics(t *testing.T) {
	app := newApplication(t, nil)
	p := newPlane(t)
	p.publish(policySet{revision: 1, mode: "enforce", controls: []control{{id: 1, source: adminOnly}}})
	own := freeport.Addr(t)
	b := start(t, p, app.URL, func(c *Config) { c.MetricsListen = own }).at(t, 1)
	fetch(t, "GET", b.url+"/open", nil)
	fetch(t, "GET", b.url+"/admin", nil)
	fetch(t, "GET", b.url+"/x%2f", nil)
	if got := fetch(t, "GET", b.url+"/_bouncer/metrics", nil); got.status != 404 || strings.Contains(got.body, "verdicts_total") {
		t.Errorf("the metrics are served with the traffic: %d", got.status)
	}
	got := fetch(t, "GET", "http://"+own+"/_bouncer/metrics", nil)
	if other := fetch(t, "GET", "http://"+own+"/open", nil); other.status != 404 {
		t.Errorf("the address of the metrics serves more: %d", other.status)
	}
	for _, want := range []string{`verdicts_total{verdict="PERMIT"} 1`, `verdicts_total{verdict="DENY"} 1`, "refused_total 1", "ready 1", "enforcing 1", "controls 1", "decision_seconds_count 2"} {
		if !strings.Contains(got.body, "gatehouse_bouncer_"+want+"\n") {
			t.Errorf("the metrics lack %q", want)
		}
	}
	for target, want := range map[string]int{"/_bouncer/": 404, "/_bouncer/x": 404, "//_bouncer/live": 200, "/x/../_bouncer/live": 200, "/%5fbouncer/live": 200} {
		out := raw(t, b.url, "GET "+target+" HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
		if !strings.HasPrefix(out, fmt.Sprintf("HTTP/1.1 %d ", want)) {
			t.Errorf("%s: %q, want %d", target, out[:20], want)
		}
	}
	if n := len(app.take()); n != 1 {
		t.Errorf("%d requests reached the application, want 1", n)
	}
}
