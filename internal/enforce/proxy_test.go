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
)

func TestEnforceActsAndShadowRecords(t *testing.T) {
	app := newApplication(t, nil)
	p := newPlane(t)
	p.publish(policySet{revision: 1, mode: "enforce", controls: []control{{id: 3, source: adminOnly}}})
	b := start(t, p, app.URL, nil).at(t, 1)

	if got := fetch(t, "GET", b.url+"/open?x=1", nil); got.status != 200 || got.body != "GET /open?x=1" {
		t.Errorf("a permitted request: %d %q", got.status, got.body)
	}
	got := fetch(t, "GET", b.url+"/admin/users", nil)
	if got.status != 403 || !strings.Contains(got.body, `"error":"access_denied"`) || got.header.Get("X-Decision-Id") == "" || !strings.Contains(got.body, got.header.Get("X-Request-Id")) {
		t.Errorf("a denied request: %d %s %v", got.status, got.body, got.header)
	}
	if n := len(app.take()); n != 1 {
		t.Errorf("the application saw %d requests, want 1", n)
	}

	p.publish(policySet{revision: 2, mode: "enforce", config: map[string]any{"enforcement_mode": "shadow"}, controls: []control{{id: 3, source: adminOnly}}})
	b.at(t, 2)
	if got := fetch(t, "GET", b.url+"/admin/users", nil); got.status != 200 || got.body != "GET /admin/users" {
		t.Errorf("in shadow: %d %q", got.status, got.body)
	}
	events := p.logged(3)
	var outcomes []string
	for _, e := range events {
		outcomes = append(outcomes, e["custom"].(map[string]any)["outcome"].(string))
		if e["decision_id"] == "" || e["bundles"].(map[string]any)["authz"].(map[string]any)["revision"] == "" {
			t.Errorf("an event lacks its id or revision: %v", e)
		}
	}
	if fmt.Sprint(outcomes) != "[PERMIT DENY SHADOW_WOULD_DENY]" {
		t.Errorf("the log says %v", outcomes)
	}
	if r := events[1]["result"].(map[string]any); r["decision"] != "DENY" || r["policy_name"] != "control-3" {
		t.Errorf("the denial's result is %v", r)
	}
}

func TestBodiesAndMethodsPass(t *testing.T) {
	app := newApplication(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		w.Header().Set("Trailer", "X-Sum")
		w.Header().Set("X-Method", r.Method)
		w.WriteHeader(201)
		fmt.Fprintf(w, "%d bytes", len(body))
		w.Header().Set("X-Sum", "sum")
	})
	p := newPlane(t)
	p.publish(policySet{revision: 1, mode: "enforce", controls: []control{{id: 1, source: allowAll}}})
	b := start(t, p, app.URL, nil).at(t, 1)
	for _, m := range []string{"GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"} {
		req, _ := http.NewRequest(m, b.url+"/x", io.MultiReader(bytesReader(strings.Repeat("a", 100_000)))) // no length: chunked
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		body, _ := io.ReadAll(resp.Body)
		resp.Body.Close()
		if resp.StatusCode != 201 || string(body) != "100000 bytes" || resp.Header.Get("X-Method") != m || resp.Trailer.Get("X-Sum") != "sum" {
			t.Errorf("%s: %d %q %v trailers %v", m, resp.StatusCode, body, resp.Header, resp.Trailer)
		}
	}
	if got := fetch(t, "HEAD", b.url+"/x", nil); got.status != 201 || got.body != "" {
		t.Errorf("HEAD: %d %q", got.status, got.body)
	}
}

func TestEventStreamIsFlushed(t *testing.T) {
	next := make(chan struct{})
	app := newApplication(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		for i := range 3 {
			fmt.Fprintf(w, "data: %d\n\n", i)
			w.(http.Flusher).Flush()
			<-next // the next event is sent only once this one arrived
		}
	})
	p := newPlane(t)
	p.publish(policySet{revision: 1, mode: "enforce", controls: []control{{id: 1, source: allowAll}}})
	b := start(t, p, app.URL, nil).at(t, 1)
	resp, err := http.Get(b.url + "/events")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	br := bufio.NewReader(resp.Body)
	for i := range 3 {
		line, err := br.ReadString('\n')
		if err != nil || line != fmt.Sprintf("data: %d\n", i) {
			t.Fatalf("event %d: %q %v", i, line, err)
		}
		_, _ = br.ReadString('\n')
		next <- struct{}{}
	}
	if _, err := br.ReadString('\n'); err != io.EOF {
		t.Errorf("the stream ends with %v", err)
	}
}

func TestWebSocketPassesAndIsDecided(t *testing.T) {
	app := newApplication(t, func(w http.ResponseWriter, r *http.Request) {
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
	})
	p := newPlane(t)
	p.publish(policySet{revision: 1, mode: "enforce", controls: []control{{id: 1, source: adminOnly}}})
	b := start(t, p, app.URL, nil).at(t, 1)
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()

	if _, resp, err := websocket.Dial(ctx, b.url+"/admin/ws", nil); err == nil || resp == nil || resp.StatusCode != 403 {
		t.Errorf("a denied handshake: %v %v", resp, err)
	}
	c, _, err := websocket.Dial(ctx, b.url+"/ws", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer c.CloseNow()
	for i := range 3 {
		if err := c.Write(ctx, websocket.MessageText, fmt.Append(nil, i)); err != nil {
			t.Fatal(err)
		}
		if _, data, err := c.Read(ctx); err != nil || string(data) != fmt.Sprint("echo ", i) {
			t.Fatalf("message %d came back as %q, %v", i, data, err)
		}
	}
	// A new policy that denies closes the socket that is open.
	p.publish(policySet{revision: 2, mode: "enforce", controls: []control{{id: 1, source: denyAll}}})
	if _, _, err := c.Read(ctx); err == nil || ctx.Err() != nil {
		t.Errorf("the socket is open after its denial: %v", err)
	}
}

func TestOtherUpgradesDoNotPass(t *testing.T) {
	app := newApplication(t, nil)
	p := newPlane(t)
	p.publish(policySet{revision: 1, mode: "enforce", controls: []control{{id: 1, source: allowAll}}})
	b := start(t, p, app.URL, nil).at(t, 1)
	out := raw(t, b.url, "GET /x HTTP/1.1\r\nHost: a\r\nConnection: Upgrade, HTTP2-Settings, close\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQCAAAAAAIAAAAA\r\n\r\n")
	if !strings.HasPrefix(out, "HTTP/1.1 200 ") {
		t.Errorf("the answer is %q", out)
	}
	for _, r := range app.take() {
		if r.Header.Get("Upgrade") != "" || r.Header.Get("Http2-Settings") != "" {
			t.Errorf("the application got %v", r.Header)
		}
	}
}

// HTTP/2 without TLS on both sides, with trailers, as gRPC needs it.
func TestHTTP2OnBothSides(t *testing.T) {
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
	p := newPlane(t)
	p.publish(policySet{revision: 1, mode: "enforce", controls: []control{{id: 1, source: adminOnly}}})
	b := start(t, p, "h2c://"+strings.TrimPrefix(app.URL, "http://"), nil).at(t, 1)
	client := &http.Client{Transport: &http.Transport{Protocols: both}}
	defer client.CloseIdleConnections()
	for path, want := range map[string]int{"/svc/Method": 200, "/admin/Method": 403} {
		req, _ := http.NewRequest("POST", b.url+path, io.MultiReader(bytesReader("message")))
		req.Header.Set("Te", "trailers")
		resp, err := client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if err != nil || resp.StatusCode != want || resp.ProtoMajor != 2 {
			t.Errorf("%s: %d %s %v", path, resp.StatusCode, resp.Proto, err)
		}
		if want == 200 && (string(body) != "message" || resp.Header.Get("Proto") != "HTTP/2.0" || resp.Trailer.Get("Grpc-Status") != "0") {
			t.Errorf("%q %v trailers %v", body, resp.Header, resp.Trailer)
		}
	}
}

// After Serve has returned, no goroutine is left.
func TestServeLeavesNothingRunning(t *testing.T) {
	before := goleak.IgnoreCurrent()
	app := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {}))
	p := newPlane(t)
	p.publish(policySet{revision: 1, mode: "enforce", controls: []control{{id: 1, source: allowAll}}})
	b := start(t, p, app.URL, nil).at(t, 1)
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
	app := newApplication(t, nil)
	p := newPlane(t)
	p.publish(policySet{revision: 1, mode: "enforce", controls: []control{{id: 1, source: allowAll}}})
	b := start(t, p, app.URL, nil).at(t, 1)
	two := new(http.Protocols)
	two.SetUnencryptedHTTP2(true)
	client := &http.Client{Transport: &http.Transport{Protocols: two}}
	defer client.CloseIdleConnections()
	host := strings.TrimPrefix(b.url, "http://")
	for target, want := range map[string]int{
		"/a?b=c": 200, "/a%20b?c=%20d": 200, "/a?b[]=1": 200,
		"/a b": 400, "/a b HTTP/1.1": 400, "/a?b c": 400, "/a? HTTP/1.1": 400, "/a?b=\u00e9": 400, "/\u00e9": 400,
		"/a?b=\xff": 400, "/a?b=\x80": 400, `/a?b="c"`: 400, "/a?b=<c>": 400, "/a?b={c}": 400, "/a?b=c|d": 400, `/a?b=c\d`: 400, "/a?b^`c": 400,
	} {
		for _, method := range []string{"GET", "POST"} { // the fast path and the transport
			req, err := http.NewRequest(method, b.url, strings.NewReader("x"))
			if err != nil {
				t.Fatal(err)
			}
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
				t.Errorf("%s %q: %d, want %d; the application saw %v", method, target, resp.StatusCode, want, seen)
			}
		}
	}
}
