package rest

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/cache"
	"github.com/gatehouse-dev/gatehouse/internal/errtest"
	"github.com/gatehouse-dev/gatehouse/internal/rest/resttest"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

// counter counts in a window that ends at reset.
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

// TestRateLimits: a key may send what its plan or the operator allows. Each request counts, also one that
// is refused, and each answer says how many remain.
func TestRateLimits(t *testing.T) {
	now := time.Date(2026, 5, 1, 10, 30, 0, 0, time.UTC)
	decide := func(g *rig) {
		Raw(g.Router, Op{ID: "decide", Method: "POST", Path: "/decisions/evaluate"}, RawDocs{Request: reflect.TypeFor[widgetDraft](), Response: reflect.TypeFor[string]()},
			func(w http.ResponseWriter, _ *http.Request, _ scope.Scope) { WriteJSON(w, 200, "ok") })
	}
	rig := func(l Limits) *rig {
		c := &counter{counts: map[string]int64{}, reset: now.Add(30 * time.Minute)}
		return newRig(t, func(s *Config) { s.Count, s.Limits, s.Now = c.count, l, func() time.Time { return now } }, decide)
	}
	list := resttest.Call{Method: "GET", Path: "/v1/widgets", Key: "full"}
	evaluate := resttest.Call{Method: "POST", Path: "/v1/decisions/evaluate", Body: "{}", Key: "full"}

	t.Run("by plan", func(t *testing.T) {
		g := rig(Limits{})
		var w *httptest.ResponseRecorder
		for range 1000 {
			w = httptest.NewRecorder()
			g.ServeHTTP(w, list.Request())
		}
		h := w.Header()
		if w.Code != 200 || h.Get("X-RateLimit-Limit") != "1000" || h.Get("X-RateLimit-Remaining") != "0" || h.Get("X-RateLimit-Reset") != "1777633200" {
			t.Fatalf("request 1,000 = %d %v, want 200 with none remaining", w.Code, h)
		}
		for _, over := range []resttest.Call{list, evaluate, {Method: "PUT", Path: "/v1/pis/widgets/1", Key: "full"}, {Method: "PUT", Path: "/v1/ide-integration/widgets/1", Key: "full"}} {
			w = g.Do(t, over.Request())
			var body RateLimitError
			if err := json.Unmarshal(w.Body.Bytes(), &body); err != nil || w.Code != 429 || body.Error != "rate_limit_exceeded" || body.RetryAfter != 1800 || body.Limit != 1000 {
				t.Errorf("%s over the limit = %d %s, %v, want 429", over.Path, w.Code, w.Body, err)
			}
			if w.Header().Get("Retry-After") != "1800" || w.Header().Get("X-RateLimit-Remaining") != "0" {
				t.Errorf("header over the limit = %v, want Retry-After 1800 and none remaining", w.Header())
			}
		}
		other := list
		other.Key = "reader"
		if w := g.Do(t, other.Request()); w.Code != 200 || w.Header().Get("X-RateLimit-Remaining") != "999" {
			t.Errorf("request of another key = %d %v, want 200 with 999 remaining", w.Code, w.Header())
		}
		other.Key = "person"
		if w := g.Do(t, other.Request()); w.Code != 200 || w.Header().Get("X-RateLimit-Limit") != "" {
			t.Errorf("request of a person = %d %v, want 200 without a limit", w.Code, w.Header())
		}
	})
	t.Run("headers on refusals", func(t *testing.T) {
		g := rig(Limits{})
		for _, c := range []resttest.Call{
			{Method: "PUT", Path: "/v1/widgets/7", Key: "reader"},
			{Method: "PUT", Path: "/v1/widgets/7", Key: "full", Body: "{"},
			{Method: "GET", Path: "/v1/failing/panic", Key: "full"},
			{Method: "GET", Path: "/v1/widgets", Key: "full", Headers: []string{"X-Tenant-ID", "t2"}},
			{Method: "PUT", Path: "/v1/tenants/t2/widgets/7", Key: "full", Body: "{}"},
			{Method: "GET", Path: "/v1/widgets", Key: "full", Headers: []string{"X-Environment", "mars"}},
			{Method: "GET", Path: "/v1/widgets?tenant_id=t1", Key: "full", Headers: []string{"X-Tenant-ID", "t2"}},
			{Method: "GET", Path: "/v1/widgets?limit=%zz", Key: "full"},
			{Method: "DELETE", Path: "/v1/widgets", Key: "full"},
			{Method: "GET", Path: "/v1/nothing", Key: "full"},
		} {
			before := remaining(t, g, c.Key)
			w := g.Do(t, c.Request())
			if got := w.Header().Get("X-RateLimit-Remaining"); got != strconv.Itoa(before-1) || w.Code < 400 {
				t.Errorf("%s %v = %d with %q remaining, want an error with %d", c.Path, c.Headers, w.Code, got, before-1)
			}
		}
		w := g.Do(t, resttest.Call{Method: "GET", Path: "/v1/nothing", Key: "wrong"}.Request())
		if w.Code != 404 || w.Header().Get("X-RateLimit-Limit") != "" {
			t.Errorf("request of an unknown key = %d %v, want 404 without a limit", w.Code, w.Header())
		}
	})
	t.Run("probing is not free", func(t *testing.T) {
		g := rig(Limits{All: 3})
		for i, want := range []int{403, 400, 404, 429, 429} {
			c := list
			switch i {
			case 0, 3:
				c.Headers = []string{"X-Tenant-ID", "t2"}
			case 1:
				c.Headers = []string{"X-Environment", "mars"}
			default:
				c.Path = "/v1/nothing"
			}
			if w := g.Do(t, c.Request()); w.Code != want {
				t.Errorf("request %d = %d, want %d: %s", i, w.Code, want, w.Body)
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
			if got := g.Do(t, list.Request()).Header().Get("X-RateLimit-Limit"); got != tc.list {
				t.Errorf("%+v: limit of a list = %q, want %q", tc.Limits, got, tc.list)
			}
			if got := g.Do(t, evaluate.Request()).Header().Get("X-RateLimit-Limit"); got != tc.evaluate {
				t.Errorf("%+v: limit of a decision = %q, want %q", tc.Limits, got, tc.evaluate)
			}
		}
	})
}

// remaining returns how many requests a key may still send.
func remaining(t *testing.T, g *rig, key string) int {
	t.Helper()
	w := g.Do(t, resttest.Call{Method: "GET", Path: "/v1/widgets", Key: key}.Request())
	n, err := strconv.Atoi(w.Header().Get("X-RateLimit-Remaining"))
	errtest.Must(t, err)
	return n
}
