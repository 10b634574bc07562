package rest

import (
	"encoding/json"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/cache"
	"github.com/gatehouse-dev/gatehouse/internal/errtest"
)

// FuzzBody: no body makes the checks panic, and a body that they accept is valid JSON.
func FuzzBody(f *testing.F) {
	g := newRig(f, nil, nil)
	var rt *route
	for _, known := range g.routes {
		if known.op.ID == "update-widget" {
			rt = known
		}
	}
	for _, seed := range []string{`{"name":"x"}`, `{"id":1,"name":"x","parts":[{"size":1}]}`, `[]`, `{"a":{"b":[1,2,{"c":null}]}}`, `{"name":"\ud800"}`, `{"id":`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		out, err := g.checkBody(rt, data)
		if err == nil && !json.Valid(out.AppendJSON(nil)) {
			t.Errorf("checkBody(%q) = %q, want valid JSON", data, out.AppendJSON(nil))
		}
	})
}

// BenchmarkRateLimit measures the count of one request in the process.
func BenchmarkRateLimit(b *testing.B) {
	c, err := cache.Open(b.Context(), cache.Config{Now: time.Now})
	errtest.Must(b, err)
	l := &limiter{limits: Limits{All: 1 << 60}, counts: c.Count, now: time.Now}
	x := &exchange{ResponseWriter: httptest.NewRecorder()}
	rt := &route{}
	who := Principal{KeyID: "12", Tenant: "t1", Plan: "enterprise", RateLimited: true}
	b.ReportAllocs()
	for b.Loop() {
		errtest.Must(b, l.count(b.Context(), x, rt, who))
	}
}
