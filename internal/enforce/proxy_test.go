package enforce

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"
	"go.uber.org/goleak"

	"github.com/gatehouse-dev/gatehouse/internal/errtest"
)

// Enforce mode refuses what controls deny. Shadow mode lets it pass, and records that it would be denied.
func TestEnforceActsAndShadowRecords(t *testing.T) {
	t.Parallel()
	app := newApplication(t, nil)
	p, b := startPublished(t, app.URL, policySet{revision: 1, mode: "enforce", controls: []control{{id: 3, source: adminOnly}}}, nil)

	if got := fetch(t, "GET", b.url+"/open?x=1", nil); got.status != 200 || got.body != "GET /open?x=1" {
		t.Errorf("a permitted request: %s, want the answer of the application", got)
	}
	got := fetch(t, "GET", b.url+"/admin/users", nil)
	if got.status != 403 || !strings.Contains(got.body, `"error":"access_denied"`) || got.header.Get("X-Decision-Id") == "" || !strings.Contains(got.body, got.header.Get("X-Request-Id")) {
		t.Errorf("a denied request: %s %v, want 403 access_denied with the ids of decision and request", got, got.header)
	}
	if n := len(app.take()); n != 1 {
		t.Errorf("%d requests reached the application, want 1", n)
	}

	p.deploy(b, policySet{revision: 2, mode: "enforce", config: map[string]any{"enforcement_mode": "shadow"}, controls: []control{{id: 3, source: adminOnly}}})
	if got := fetch(t, "GET", b.url+"/admin/users", nil); got.status != 200 || got.body != "GET /admin/users" {
		t.Errorf("in shadow: %s, want the answer of the application", got)
	}
	events := p.logged(3)
	var outcomes []string
	for _, e := range events {
		outcomes = append(outcomes, field(e, "custom", "outcome").(string))
		if e["decision_id"] == "" || field(e, "bundles", "authz", "revision") == "" {
			t.Errorf("the event is %v, want an id and a revision", e)
		}
	}
	if fmt.Sprint(outcomes) != "[PERMIT DENY SHADOW_WOULD_DENY]" {
		t.Errorf("the outcomes are %v, want PERMIT, DENY and SHADOW_WOULD_DENY", outcomes)
	}
	if r := events[1]["result"].(map[string]any); r["decision"] != "DENY" || r["policy_name"] != "control-3" {
		t.Errorf("the result of the denial is %v, want DENY by control-3", r)
	}
}

// Every method passes with its body, its answer and the trailers.
func TestBodiesAndMethodsPass(t *testing.T) {
	t.Parallel()
	app := newApplication(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		w.Header().Set("Trailer", "X-Sum")
		w.Header().Set("X-Method", r.Method)
		w.WriteHeader(201)
		fmt.Fprintf(w, "%d bytes", len(body))
		w.Header().Set("X-Sum", "sum")
	})
	_, b := startPublished(t, app.URL, enforcing(allowAll), nil)
	for _, m := range []string{"GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"} {
		got := fetch(t, m, b.url+"/x", func(r *http.Request) {
			r.Body, r.ContentLength = io.NopCloser(strings.NewReader(strings.Repeat("a", 100_000))), -1 // chunked
		})
		if got.status != 201 || got.body != "100000 bytes" || got.header.Get("X-Method") != m || got.trailer.Get("X-Sum") != "sum" {
			t.Errorf("%s %v, trailers %v, want 201 with 100000 bytes and X-Sum", got, got.header, got.trailer)
		}
	}
	if got := fetch(t, "HEAD", b.url+"/x", nil); got.status != 201 || got.body != "" {
		t.Errorf("%s, want 201 without a body", got)
	}
}

// Each event reaches the client before the application sends the next.
func TestEventStreamIsFlushed(t *testing.T) {
	t.Parallel()
	next := make(chan struct{})
	app := newApplication(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		for i := range 3 {
			fmt.Fprintf(w, "data: %d\n\n", i)
			w.(http.Flusher).Flush()
			<-next // the next event is sent only once this one arrived
		}
	})
	_, b := startPublished(t, app.URL, enforcing(allowAll), nil)
	resp, err := http.Get(b.url + "/events")
	errtest.Must(t, err)
	defer resp.Body.Close()
	br := bufio.NewReader(resp.Body)
	for i := range 3 {
		line, err := br.ReadString('\n')
		if err != nil || line != fmt.Sprintf("data: %d\n", i) {
			t.Fatalf("event %d is %q %v, want data: %d", i, line, err, i)
		}
		_, _ = br.ReadString('\n')
		next <- struct{}{}
	}
	if _, err := br.ReadString('\n'); err != io.EOF {
		t.Errorf("the stream ends with %v, want EOF", err)
	}
}

// echo answers each message of a WebSocket.
func echo(w http.ResponseWriter, r *http.Request) {
	c, err := websocket.Accept(w, r, nil)
	if err != nil {
		return
	}
	defer c.CloseNow()
	for {
		kind, data, err := c.Read(r.Context())
		if err != nil {
			return
		}
		if c.Write(r.Context(), kind, append([]byte("echo "), data...)) != nil {
			return
		}
	}
}

// A WebSocket passes if its handshake is permitted, and closes if a new control denies it.
func TestWebSocketPassesAndIsDecided(t *testing.T) {
	t.Parallel()
	app := newApplication(t, echo)
	p, b := startPublished(t, app.URL, enforcing(adminOnly), nil)
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()

	if _, resp, err := websocket.Dial(ctx, b.url+"/admin/ws", nil); err == nil || resp == nil || resp.StatusCode != 403 {
		t.Errorf("a denied handshake: %v %v, want 403", resp, err)
	}
	c, _, err := websocket.Dial(ctx, b.url+"/ws", nil)
	errtest.Must(t, err)
	defer c.CloseNow()
	for i := range 3 {
		errtest.Must(t, c.Write(ctx, websocket.MessageText, fmt.Append(nil, i)))
		if _, data, err := c.Read(ctx); err != nil || string(data) != fmt.Sprint("echo ", i) {
			t.Fatalf("message %d came back as %q %v", i, data, err)
		}
	}
	// A new policy that denies closes the socket that is open.
	p.publish(policySet{revision: 2, mode: "enforce", controls: []control{{id: 1, source: denyAll}}})
	if _, _, err := c.Read(ctx); err == nil || ctx.Err() != nil {
		t.Errorf("after the denial, a read ends with %v, want a closed socket", err)
	}
}

// The bouncer forwards no upgrade to a protocol that it does not read.
func TestOtherUpgradesDoNotPass(t *testing.T) {
	t.Parallel()
	app := newApplication(t, nil)
	_, b := startPublished(t, app.URL, enforcing(allowAll), nil)
	out := sendRaw(t, b.url, "GET /x HTTP/1.1\r\nHost: a\r\nConnection: Upgrade, HTTP2-Settings, close\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQCAAAAAAIAAAAA\r\n\r\n")
	if rawStatus(out) != 200 {
		t.Errorf("GET /x with an upgrade to h2c = %.40q, want 200", out)
	}
	for _, r := range app.take() {
		if r.Header.Get("Upgrade") != "" || r.Header.Get("Http2-Settings") != "" {
			t.Errorf("the application gets %v, want no upgrade", r.Header)
		}
	}
}

// HTTP/2 without TLS on both sides, with trailers, as gRPC needs it.
func TestHTTP2OnBothSides(t *testing.T) {
	t.Parallel()
	both := new(http.Protocols)
	both.SetUnencryptedHTTP2(true)
	app := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Proto", r.Proto)
		_, _ = io.Copy(w, r.Body)
		w.Header().Set(http.TrailerPrefix+"Grpc-Status", "0")
	}))
	app.Config.Protocols = both
	app.Start()
	defer app.Close()
	_, b := startPublished(t, "h2c://"+strings.TrimPrefix(app.URL, "http://"), enforcing(adminOnly), nil)
	client := &http.Client{Transport: &http.Transport{Protocols: both}}
	defer client.CloseIdleConnections()
	for path, want := range map[string]int{"/svc/Method": 200, "/admin/Method": 403} {
		req, _ := http.NewRequest("POST", b.url+path, io.MultiReader(strings.NewReader("message")))
		req.Header.Set("Te", "trailers")
		resp, err := client.Do(req)
		errtest.Must(t, err)
		body, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if err != nil || resp.StatusCode != want || resp.ProtoMajor != 2 {
			t.Errorf("POST %s = %d %s %v, want %d over HTTP/2", path, resp.StatusCode, resp.Proto, err, want)
		}
		if want == 200 && (string(body) != "message" || resp.Header.Get("Proto") != "HTTP/2.0" || resp.Trailer.Get("Grpc-Status") != "0") {
			t.Errorf("POST %s = %q %v, trailers %v, want the message and Grpc-Status over HTTP/2", path, body, resp.Header, resp.Trailer)
		}
	}
}

// After Serve has returned, no goroutine is left.
func TestServeLeavesNothingRunning(t *testing.T) {
	before := goleak.IgnoreCurrent()
	app := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {}))
	p, b := startPublished(t, app.URL, enforcing(allowAll), nil)
	for _, m := range []string{"GET", "POST"} {
		fetch(t, m, b.url+"/x", nil)
	}
	b.stop()
	p.srv.Close()
	app.Close()
	goleak.VerifyNone(t, before)
}

// HTTP/2 frames can carry bytes that are not allowed in an HTTP/1.1 request line. No such target
// reaches an application.
func TestTargetsThatBreakARequestLine(t *testing.T) {
	t.Parallel()
	app := newApplication(t, nil)
	_, b := startPublished(t, app.URL, enforcing(allowAll), nil)
	h2c := new(http.Protocols)
	h2c.SetUnencryptedHTTP2(true)
	client := &http.Client{Transport: &http.Transport{Protocols: h2c}}
	defer client.CloseIdleConnections()
	host := strings.TrimPrefix(b.url, "http://")
	for target, want := range map[string]int{
		"/a?b=c": 200, "/a%20b?c=%20d": 200, "/a?b[]=1": 200,
		"/a b": 400, "/a b HTTP/1.1": 400, "/a?b c": 400, "/a? HTTP/1.1": 400, "/a?b=\u00e9": 400, "/\u00e9": 400,
		"/a?b=\xff": 400, "/a?b=\x80": 400, `/a?b="c"`: 400, "/a?b=<c>": 400, "/a?b={c}": 400, "/a?b=c|d": 400, `/a?b=c\d`: 400, "/a?b^`c": 400,
	} {
		for _, method := range []string{"GET", "POST"} { // the fast path and the transport
			req, err := http.NewRequest(method, b.url, strings.NewReader("x"))
			errtest.Must(t, err)
			if method == "GET" {
				req.Body, req.ContentLength = nil, 0
			}
			req.URL = &url.URL{Scheme: "http", Host: host, Opaque: target}
			app.take()
			resp, err := client.Do(req)
			if err != nil {
				t.Fatalf("%q: %v", target, err)
			}
			resp.Body.Close()
			if seen := app.take(); resp.StatusCode != want || (want == 200) != (len(seen) == 1) || want == 200 && seen[0].RequestURI != target {
				t.Errorf("%s %q = %d, want %d; the application got %v", method, target, resp.StatusCode, want, seen)
			}
		}
	}
}
