package api

import (
	"runtime"
	"strings"
	"testing"

	"github.com/gatehouse-dev/gatehouse/internal/rest/resttest"
)

// TestOwnMetrics: a tenant sees only its own figures, without the tenant label.
func TestOwnMetrics(t *testing.T) {
	g := newRig(t, nil)
	g.Do(t, resttest.Call{Method: "GET", Path: "/v1/templates", Key: "full"}.Request())
	g.Do(t, resttest.Call{Method: "GET", Path: "/v1/templates", Key: "platform"}.Request())
	if w := g.Do(t, resttest.Call{Method: "GET", Path: "/metrics"}.Request()); w.Code != 401 || !strings.Contains(w.Body.String(), "authentication_required") {
		t.Errorf("GET /metrics without a credential = %d %s, want 401", w.Code, w.Body)
	}
	own := g.Do(t, resttest.Call{Method: "GET", Path: "/metrics", Key: "full"}.Request()).Body.String()
	if !strings.Contains(own, `gatehouse_tenant_requests_total{status="2xx"} 1`) || strings.Contains(own, "default") || strings.Contains(own, "go_") {
		t.Errorf("GET /metrics of a tenant, want only its own figures:\n%s", own)
	}
	all := g.Do(t, resttest.Call{Method: "GET", Path: "/metrics", Key: "platform"}.Request()).Body.String()
	for _, has := range []string{`gatehouse_tenant_requests_total{status="2xx",tenant="default"} 1`, `gatehouse_http_requests_total{method="GET",operation="list-templates",status="2xx"} 2`, "go_goroutines", "go_build_info", `gatehouse_build_info{goversion="` + runtime.Version() + `",revision="`, `,version="test"} 1`, "gatehouse_http_request_duration_seconds_bucket"} {
		if !strings.Contains(all, has) {
			t.Errorf("GET /metrics of a platform administrator lacks %s", has)
		}
	}
}
