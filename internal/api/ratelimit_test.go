package api

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"reflect"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/cache"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

// counter is a fixed window of the tests.
type counter struct {
	mu     sync.Mutex
	counts map[string]int64
	reset  time.Time
}

func (c *counter) count(_ context.Context, tenant, key string, n int64, _ time.Duration) (cache.Window, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.counts[tenant+"/"+key] += n
	return cache.Window{Count: c.counts[tenant+"/"+key], Reset: c.reset}, nil
}

func TestRateLimits(t *testing.T) {
	now := time.Date(2026, 5, 1, 10, 30, 0, 0, time.UTC)
	decide := func(g *rig) {
		Raw(g.Router, Op{ID: "decide", Method: "POST", Path: "/decisions/evaluate"}, RawDocs{Request: reflect.TypeFor[widgetDraft](), Response: stringType},
			func(w http.ResponseWriter, _ *http.Request, _ scope.Scope) { WriteJSON(w, 200, "ok") })
	}
	rig := func(l Limits) *rig {
		c := &counter{counts: map[string]int64{}, reset: now.Add(30 * time.Minute)}
		return newRig(t, func(s *Server) { s.Count, s.Limits, s.Now = c.count, l, func() time.Time { return now } }, decide)
	}
	list := call{method: "GET", path: "/v1/widgets", key: "full"}
	evaluate := call{method: "POST", path: "/v1/decisions/evaluate", body: "{}", key: "full"}

	t.Run("by plan", func(t *testing.T) {
		g := rig(Limits{})
		var w *httptest.ResponseRecorder
		for range 1000 {
			w = httptest.NewRecorder()
			g.ServeHTTP(w, list.request())
		}
		h := w.Header()
		if w.Code != 200 || h.Get("X-RateLimit-Limit") != "1000" || h.Get("X-RateLimit-Remaining") != "0" || h.Get("X-RateLimit-Reset") != "1777633200" {
			t.Fatalf("the thousandth: %d %v", w.Code, h)
		}
		for _, over := range []call{list, evaluate, {method: "PUT", path: "/v1/pis/widgets/1", key: "full"}, {method: "PUT", path: "/v1/ide-integration/widgets/1", key: "full"}} {
			w = g.do(t, over.request())
			var body RateLimitError
			if err := json.Unmarshal(w.Body.Bytes(), &body); err != nil || w.Code != 429 || body.Error != "rate_limit_exceeded" || body.RetryAfter != 1800 || body.Limit != 1000 {
				t.Errorf("%s: %d %s %v", over.path, w.Code, w.Body, err)
			}
			if w.Header().Get("Retry-After") != "1800" || w.Header().Get("X-RateLimit-Remaining") != "0" {
				t.Errorf("%v", w.Header())
			}
		}
		other := list
		other.key = "reader"
		if w := g.do(t, other.request()); w.Code != 200 || w.Header().Get("X-RateLimit-Remaining") != "999" {
			t.Errorf("another key: %d %v", w.Code, w.Header())
		}
		for _, key := range []string{"person"} {
			other.key = key
			if w := g.do(t, other.request()); w.Code != 200 || w.Header().Get("X-RateLimit-Limit") != "" {
				t.Errorf("a person: %d %v", w.Code, w.Header())
			}
		}
	})
	t.Run("headers on refusals", func(t *testing.T) {
		g := rig(Limits{})
		for _, c := range []call{
			{method: "PUT", path: "/v1/widgets/7", key: "reader"},
			{method: "PUT", path: "/v1/widgets/7", key: "full", body: "{"},
			{method: "GET", path: "/v1/failing/panic", key: "full"},
			{method: "GET", path: "/v1/widgets", key: "full", headers: []string{"X-Tenant-ID", "t2"}},
			{method: "PUT", path: "/v1/tenants/t2/widgets/7", key: "full", body: "{}"},
			{method: "GET", path: "/v1/widgets", key: "full", headers: []string{"X-Environment", "mars"}},
			{method: "GET", path: "/v1/widgets?tenant_id=t1", key: "full", headers: []string{"X-Tenant-ID", "t2"}},
			{method: "GET", path: "/v1/widgets?limit=%zz", key: "full"},
			{method: "DELETE", path: "/v1/widgets", key: "full"},
			{method: "GET", path: "/v1/nothing", key: "full"},
		} {
			before := left(t, g, c.key)
			w := g.do(t, c.request())
			if got := w.Header().Get("X-RateLimit-Remaining"); got != strconv.Itoa(before-1) || w.Code < 400 {
				t.Errorf("%s %v: %d, %d were left, now %v", c.path, c.headers, w.Code, before, w.Header())
			}
		}
		w := g.do(t, call{method: "GET", path: "/v1/nothing", key: "wrong"}.request())
		if w.Code != 404 || w.Header().Get("X-RateLimit-Limit") != "" {
			t.Errorf("a bad key: %d %v", w.Code, w.Header())
		}
	})
	t.Run("probing is not free", func(t *testing.T) {
		g := rig(Limits{All: 3})
		for i, want := range []int{403, 400, 404, 429, 429} {
			c := list
			switch i {
			case 0, 3:
				c.headers = []string{"X-Tenant-ID", "t2"}
			case 1:
				c.headers = []string{"X-Environment", "mars"}
			default:
				c.path = "/v1/nothing"
			}
			if w := g.do(t, c.request()); w.Code != want {
				t.Errorf("request %d: %d, want %d: %s", i, w.Code, want, w.Body)
			}
		}
	})
	t.Run("operator's figures", func(t *testing.T) {
		for _, tc := range []struct {
			Limits
			list, evaluate string
		}{
			{Limits{Off: true}, "", ""},
			{Limits{DecisionsOff: true}, "1000", ""},
			{Limits{All: 7}, "7", "7"},
			{Limits{Decisions: 9}, "1000", "9"},
			{Limits{All: 7, Decisions: 9}, "7", "9"},
		} {
			g := rig(tc.Limits)
			if got := g.do(t, list.request()).Header().Get("X-RateLimit-Limit"); got != tc.list {
				t.Errorf("%+v: list %q", tc, got)
			}
			if got := g.do(t, evaluate.request()).Header().Get("X-RateLimit-Limit"); got != tc.evaluate {
				t.Errorf("%+v: evaluate %q", tc, got)
			}
		}
	})
}

// left is what a key may still send.
func left(t *testing.T, g *rig, key string) int {
	t.Helper()
	w := g.do(t, call{method: "GET", path: "/v1/widgets", key: key}.request())
	n, err := strconv.Atoi(w.Header().Get("X-RateLimit-Remaining"))
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// TestOwnMetrics: a tenant sees its own figures without anybody's name.
func TestOwnMetrics(t *testing.T) {
	g := newRig(t, nil, nil)
	g.do(t, call{method: "GET", path: "/v1/widgets", key: "full"}.request())
	g.do(t, call{method: "GET", path: "/v1/widgets", key: "platform"}.request())
	own := g.do(t, call{method: "GET", path: "/metrics", key: "full"}.request()).Body.String()
	if !strings.Contains(own, `gatehouse_tenant_requests_total{status="2xx"} 1`) || strings.Contains(own, "default") || strings.Contains(own, "go_") {
		t.Errorf("a tenant sees:\n%s", own)
	}
	all := g.do(t, call{method: "GET", path: "/metrics", key: "platform"}.request()).Body.String()
	for _, has := range []string{`gatehouse_tenant_requests_total{status="2xx",tenant="default"} 1`, `gatehouse_http_requests_total{method="GET",operation="list-widgets",status="2xx"} 2`, "go_goroutines", "go_build_info", `gatehouse_build_info{goversion="` + runtime.Version() + `",revision="`, `,version="test"} 1`, "gatehouse_http_request_duration_seconds_bucket"} {
		if !strings.Contains(all, has) {
			t.Errorf("the platform's administrator does not see %s", has)
		}
	}
}

// TestRevision: a build says which commit it is of, as well as it knows.
func TestRevision(t *testing.T) {
	found := func(settings ...debug.BuildSetting) *debug.BuildInfo { return &debug.BuildInfo{Settings: settings} }
	at := debug.BuildSetting{Key: "vcs.revision", Value: "abc"}
	for _, tc := range []struct {
		told string
		info *debug.BuildInfo
		want string
	}{
		{"", nil, "unknown"},
		{"", found(), "unknown"},
		{"", found(at), "abc"},
		{"", found(at, debug.BuildSetting{Key: "vcs.modified", Value: "true"}), "abc-dirty"},
		{"def", found(at), "def"},
		{"def", nil, "def"},
	} {
		if got := revision(tc.told, tc.info); got != tc.want {
			t.Errorf("%+v: %s", tc, got)
		}
	}
}

// sink is a ResponseWriter that costs nothing.
type sink struct{ h http.Header }

func (s *sink) Header() http.Header         { return s.h }
func (s *sink) WriteHeader(int)             {}
func (s *sink) Write(p []byte) (int, error) { return len(p), nil }

// BenchmarkAdmission is all that the API adds to a Raw operation on the hot
// path: routing, credential, rate limit, permission, body, metrics, headers.
func BenchmarkAdmission(b *testing.B) {
	g := newRig(b, func(s *Server) {
		w := cache.Window{Count: 1, Reset: time.Now()}
		s.Count = func(context.Context, string, string, int64, time.Duration) (cache.Window, error) { return w, nil }
	}, nil)
	g.spec = nil
	const body = `{"user":{"id":"ada","roles":["hr"]},"action":{"name":"read"},"resource":{"path":"/employees/1"}}`
	req := call{method: "POST", path: "/api/v1/raw", key: "full", headers: []string{"Content-Type", "application/json"}}.request()
	req.ContentLength = int64(len(body))
	w := &sink{h: http.Header{}}
	reader := strings.NewReader("")
	req.Body = readCloser{reader}
	b.ReportAllocs()
	for b.Loop() {
		clear(w.h)
		reader.Reset(body)
		g.ServeHTTP(w, req)
	}
}

// BenchmarkTyped is a typed operation with a body.
func BenchmarkTyped(b *testing.B) {
	g := newRig(b, nil, nil)
	const body = `{"name":"x","kind":"a","parts":[{"size":2,"material":"oak"}],"settings":{"a":1}}`
	req := call{method: "PUT", path: "/api/v1/widgets/7", key: "full", headers: []string{"Content-Type", "application/json"}}.request()
	req.ContentLength = int64(len(body))
	w := &sink{h: http.Header{}}
	reader := strings.NewReader("")
	b.ReportAllocs()
	for b.Loop() {
		clear(w.h)
		reader.Reset(body)
		req.Body = readCloser{reader}
		g.ServeHTTP(w, req)
	}
}

type readCloser struct{ *strings.Reader }

func (readCloser) Close() error { return nil }
