package connections_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	authv3 "github.com/envoyproxy/go-control-plane/envoy/service/auth/v3"
	collectormetrics "go.opentelemetry.io/proto/otlp/collector/metrics/v1"
	collectortrace "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	common "go.opentelemetry.io/proto/otlp/common/v1"
	trace "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"

	"github.com/gatehouse-dev/gatehouse/internal/app/apptest"
	"github.com/gatehouse-dev/gatehouse/internal/db/dbtest"
	"github.com/gatehouse-dev/gatehouse/internal/errtest"
	"github.com/gatehouse-dev/gatehouse/internal/freeport"
)

// collector is an OpenTelemetry collector that keeps what it gets.
type collector struct {
	URL string

	mu      sync.Mutex
	spans   map[string][]*trace.Span // by service
	metrics map[string]bool          // service and name
	raw     bytes.Buffer
	headers http.Header
}

func newCollector(t *testing.T) *collector {
	t.Helper()
	c := &collector{spans: map[string][]*trace.Span{}, metrics: map[string]bool{}}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body := io.Reader(r.Body)
		if r.Header.Get("Content-Encoding") == "gzip" {
			unzipped, err := gzip.NewReader(r.Body)
			if err != nil {
				http.Error(w, err.Error(), http.StatusBadRequest)
				return
			}
			body = unzipped
		}
		data, err := io.ReadAll(body)
		if err == nil {
			err = c.take(r, data)
		}
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
		}
	}))
	t.Cleanup(s.Close)
	c.URL = s.URL
	return c
}

func (c *collector) take(r *http.Request, data []byte) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.raw.Write(data)
	c.headers = r.Header
	switch r.URL.Path {
	case "/otlp/v1/traces":
		var sent collectortrace.ExportTraceServiceRequest
		if err := proto.Unmarshal(data, &sent); err != nil {
			return err
		}
		for _, of := range sent.ResourceSpans {
			for _, scope := range of.ScopeSpans {
				service := attribute(of.Resource.Attributes, "service.name")
				c.spans[service] = append(c.spans[service], scope.Spans...)
			}
		}
	case "/otlp/v1/metrics":
		var sent collectormetrics.ExportMetricsServiceRequest
		if err := proto.Unmarshal(data, &sent); err != nil {
			return err
		}
		for _, of := range sent.ResourceMetrics {
			for _, scope := range of.ScopeMetrics {
				for _, m := range scope.Metrics {
					c.metrics[attribute(of.Resource.Attributes, "service.name")+" "+m.Name] = true
				}
			}
		}
	default:
		return errors.New("the collector has nothing at " + r.URL.Path)
	}
	return nil
}

func attribute(list []*common.KeyValue, name string) string {
	for _, a := range list {
		if a.Key != name {
			continue
		}
		if n := a.Value.GetIntValue(); n != 0 {
			return fmt.Sprint(n)
		}
		return a.Value.GetStringValue()
	}
	return ""
}

// span waits for a span of a service in a trace.
func (c *collector) span(t *testing.T, service, traceID string) *trace.Span {
	t.Helper()
	var found *trace.Span
	apptest.Eventually(t, 30*time.Second, func() error {
		c.mu.Lock()
		defer c.mu.Unlock()
		for _, s := range c.spans[service] {
			if fmt.Sprintf("%x", s.TraceId) == traceID {
				found = s
				return nil
			}
		}
		return fmt.Errorf("%s has sent no span of the trace %s, of %d spans", service, traceID, len(c.spans[service]))
	})
	return found
}

const (
	clientTrace = "0af7651916cd43dd8448eb211c80319c"
	clientSpan  = "b7ad6b7169203331"
)

// TestTracing follows a trace through a bouncer to the application, and through the server. The
// spans name the decisions, and the collector gets metrics.
func TestTracing(t *testing.T) {
	t.Parallel()
	c := newCollector(t)
	env := []string{
		"OTEL_EXPORTER_OTLP_ENDPOINT=" + c.URL + "/otlp", "OTEL_EXPORTER_OTLP_HEADERS=x-collector-key=open", "OTEL_BSP_SCHEDULE_DELAY=100",
		"OTEL_METRIC_EXPORT_INTERVAL=200",
	}
	s := apptest.StartServer(t, dbtest.SQLite, env...)
	seen := make(chan http.Header, 16)
	app := apptest.NewBackend(t, func(_ http.ResponseWriter, r *http.Request) { seen <- r.Header })
	resource := s.Admin.Do(t, "POST", "/resources", body{"name": "orders", "type": "api", "path": "/orders/**", "environment": "sandbox"}).Want(201).ID()
	apptest.Activate(t, s.Admin, "orders", "sandbox", "package orders\n\nallow if input.user.id == \"ada\"\n", body{"resource_id": resource})
	apptest.Enforce(t, s.Admin, "sandbox")
	b := s.Bouncer(t, s.Admin, body{"name": "edge", "environment": "sandbox", "resource_ids": []int64{resource}}, app.Addr, env...)
	apptest.Eventually(t, 30*time.Second, func() error {
		if b.As("eve", "").Do(t, "GET", "/orders/1", nil).Status != 403 {
			return errors.New("the bouncer does not enforce yet")
		}
		return nil
	})
	ask := func(parent, state string) http.Header {
		t.Helper()
		b.As("ada", "").With("Traceparent", parent).With("Tracestate", state).Do(t, "GET", "/orders/1?token=secret-of-the-query", nil).Want(200)
		return <-seen
	}

	got := ask("00-"+clientTrace+"-"+clientSpan+"-01", "vendor=1")
	passed := c.span(t, "gatehouse-bouncer", clientTrace)
	if want := fmt.Sprintf("00-%s-%x-01", clientTrace, passed.SpanId); got.Get("Traceparent") != want || got.Get("Tracestate") != "vendor=1" {
		t.Errorf("the application has traceparent %q and tracestate %q, want %q", got.Get("Traceparent"), got.Get("Tracestate"), want)
	}
	if p := fmt.Sprintf("%x", passed.ParentSpanId); p != clientSpan || passed.Name != "GET" || attribute(passed.Attributes, "http.response.status_code") != "200" {
		t.Errorf("the bouncer's span %s has the parent %s and the attributes %v, want GET below the client's span with the status 200", passed.Name, p, passed.Attributes)
	}
	id := attribute(passed.Attributes, "gatehouse.decision_id")
	apptest.Eventually(t, 30*time.Second, func() error {
		if res := s.Admin.Do(t, "GET", "/decisions/audit/"+id+"?environment=sandbox", nil); res.Status != 200 {
			return fmt.Errorf("the decision %q of the span: GET = %d %s, want 200", id, res.Status, res.Body)
		}
		return nil
	})
	for _, malformed := range []string{"00-" + clientTrace + "-0000000000000000-01", "ff-x", "00-" + strings.Repeat("0", 32) + "-" + clientSpan + "-01"} {
		if got := ask(malformed, "vendor=2"); strings.Contains(got.Get("Traceparent"), clientTrace) || len(got.Get("Traceparent")) != 55 || got.Get("Tracestate") != "" {
			t.Errorf("with the traceparent %q the application gets %q and %q, want a new trace", malformed, got.Get("Traceparent"), got.Get("Tracestate"))
		}
	}

	other := "1" + clientTrace[1:]
	decided := s.Admin.With("Traceparent", "00-"+other+"-"+clientSpan+"-01").Do(t, "POST", "/decisions/evaluate", body{"user": body{"id": "ada"}, "environment": "sandbox"}).Want(200)
	at := c.span(t, "gatehouse", other)
	if attribute(at.Attributes, "gatehouse.decision_id") != decided.Get("decision_id") || at.Name != "evaluate-decision" || fmt.Sprintf("%x", at.ParentSpanId) != clientSpan {
		t.Errorf("the server's span is %s with %v, want evaluate-decision below the client's span with the decision %v", at.Name, at.Attributes, decided.Get("decision_id"))
	}
	apptest.Eventually(t, 30*time.Second, func() error {
		c.mu.Lock()
		defer c.mu.Unlock()
		for _, name := range []string{"gatehouse-bouncer gatehouse_bouncer_verdicts_total", "gatehouse gatehouse_audit_spool_records"} {
			if !c.metrics[name] {
				return fmt.Errorf("the collector lacks the metric %s among %d", name, len(c.metrics))
			}
		}
		return nil
	})
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.headers.Get("X-Collector-Key") != "open" {
		t.Errorf("the collector's requests lack the headers of the environment: %v", c.headers)
	}
	for _, secret := range []string{"secret-of-the-query", b.Token, apptest.Password} {
		if bytes.Contains(c.raw.Bytes(), []byte(secret)) {
			t.Errorf("the collector got the secret %q", secret)
		}
	}
}

// TestTracingEnvoy checks that a check over gRPC is a span with the decision, in the trace of its
// metadata or else of the checked request.
func TestTracingEnvoy(t *testing.T) {
	t.Parallel()
	c, addr := newCollector(t), freeport.Addr(t)
	s := apptest.StartServer(t, dbtest.SQLite)
	resource := s.Admin.Do(t, "POST", "/resources", body{"name": "orders", "type": "api", "path": "/orders/**", "environment": "sandbox"}).Want(201).ID()
	apptest.Activate(t, s.Admin, "orders", "sandbox", "package orders\n\nallow if input.resource.path == \"/orders/1\"\n", body{"resource_id": resource})
	apptest.Enforce(t, s.Admin, "sandbox")
	s.Bouncer(t, s.Admin, body{"name": "envoy", "environment": "sandbox", "resource_ids": []int64{resource}}, "127.0.0.1:9", "GATEHOUSE_BOUNCER_GRPC_LISTEN="+addr,
		"OTEL_EXPORTER_OTLP_ENDPOINT="+c.URL+"/otlp", "OTEL_BSP_SCHEDULE_DELAY=100")
	conn, err := grpc.NewClient(addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
	errtest.Must(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	check := func(path string, call []string, headers map[string]string) (code int32) {
		t.Helper()
		ctx, cancel := context.WithTimeout(metadata.AppendToOutgoingContext(t.Context(), call...), 5*time.Second)
		defer cancel()
		sent := map[string]string{"x-auth-request-user": "ada"}
		maps.Copy(sent, headers)
		answer, err := authv3.NewAuthorizationClient(conn).Check(ctx, &authv3.CheckRequest{Attributes: &authv3.AttributeContext{
			Source:  &authv3.AttributeContext_Peer{},
			Request: &authv3.AttributeContext_Request{Http: &authv3.AttributeContext_HttpRequest{Method: "GET", Host: "app.test", Path: path, Scheme: "https", Headers: sent}},
		}})
		errtest.Must(t, err)
		if answer.GetStatus().GetCode() == 0 {
			return 200
		}
		return int32(answer.GetDeniedResponse().GetStatus().GetCode())
	}
	apptest.Eventually(t, 30*time.Second, func() error {
		if check("/orders/2", nil, nil) == 200 {
			return errors.New("the bouncer does not enforce yet")
		}
		return nil
	})
	traceOf := func(n int) string { return fmt.Sprint(n) + clientTrace[1:] }
	parent := func(n int) string { return "00-" + traceOf(n) + "-" + clientSpan + "-01" }
	for _, tc := range []struct {
		what    string
		call    []string
		headers map[string]string
		trace   string // empty: a new one
		path    string
	}{
		{"by metadata", []string{"traceparent", parent(2)}, map[string]string{"traceparent": parent(3)}, traceOf(2), "/orders/1?token=secret-of-the-query"},
		{"by the request", nil, map[string]string{"traceparent": parent(4)}, traceOf(4), "/orders/1"},
		{"by the request, with malformed metadata", []string{"traceparent", "00-x"}, map[string]string{"traceparent": parent(5)}, traceOf(5), "/orders/2"},
		{"by the request, with two in the metadata", []string{"traceparent", parent(6), "traceparent", parent(7)}, map[string]string{"traceparent": parent(8)}, traceOf(8), "/orders/1"},
	} {
		status := check(tc.path, tc.call, tc.headers)
		span := c.span(t, "gatehouse-bouncer", tc.trace)
		if p := fmt.Sprintf("%x", span.ParentSpanId); p != clientSpan || span.Name != "envoy.service.auth.v3.Authorization/Check" ||
			attribute(span.Attributes, "http.response.status_code") != fmt.Sprint(status) || attribute(span.Attributes, "url.path") != strings.TrimSuffix(tc.path, "?token=secret-of-the-query") {
			t.Errorf("%s: the span %s has the parent %s and the attributes %v at the status %d, want a check below the client's span with its status and path", tc.what, span.Name, p, span.Attributes, status)
		}
		id := attribute(span.Attributes, "gatehouse.decision_id")
		apptest.Eventually(t, 30*time.Second, func() error {
			if res := s.Admin.Do(t, "GET", "/decisions/audit/"+id+"?environment=sandbox", nil); res.Status != 200 {
				return fmt.Errorf("%s: the decision %q of the span: GET = %d %s, want 200", tc.what, id, res.Status, res.Body)
			}
			return nil
		})
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if bytes.Contains(c.raw.Bytes(), []byte("secret-of-the-query")) {
		t.Error("the collector got the query of the request")
	}
}

// TestTracingOff checks that a bouncer without a collector leaves traces unchanged, and that
// everything works with a collector that is away.
func TestTracingOff(t *testing.T) {
	t.Parallel()
	s := apptest.StartServer(t, dbtest.SQLite, "OTEL_EXPORTER_OTLP_ENDPOINT=http://"+freeport.Addr(t), "OTEL_BSP_SCHEDULE_DELAY=50", "OTEL_EXPORTER_OTLP_TIMEOUT=200")
	seen := make(chan http.Header, 1)
	app := apptest.NewBackend(t, func(_ http.ResponseWriter, r *http.Request) { seen <- r.Header })
	b := s.Bouncer(t, s.Admin, body{"name": "edge"}, app.Addr)
	sent := "00-" + clientTrace + "-" + clientSpan + "-01"
	(&apptest.Client{Base: b.URL}).With("Traceparent", sent).With("Tracestate", "a=1").Do(t, "GET", "/", nil).Want(200)
	if got := <-seen; got.Get("Traceparent") != sent || got.Get("Tracestate") != "a=1" {
		t.Errorf("the application gets %q and %q, want the client's trace", got.Get("Traceparent"), got.Get("Tracestate"))
	}
	apptest.Eventually(t, 30*time.Second, func() error {
		s.Admin.Do(t, "POST", "/decisions/evaluate", body{"user": body{"id": "ada"}}).Want(200)
		if !strings.Contains(s.Log.String(), "the OpenTelemetry collector does not answer") {
			return errors.New("the log does not name the collector")
		}
		return nil
	})
	if n := strings.Count(s.Log.String(), "OpenTelemetry"); n != 1 {
		t.Errorf("the log names the collector %d times, want 1", n)
	}
	wrong := exec.Command(apptest.Binary(t), "server")
	wrong.Env = append(os.Environ(), "OTEL_EXPORTER_OTLP_ENDPOINT=collector:4318", "GATEHOUSE_DEMO=true", "GATEHOUSE_LISTEN="+freeport.Addr(t), "GATEHOUSE_DATA_DIR="+t.TempDir())
	if out, err := wrong.CombinedOutput(); err == nil || !strings.Contains(string(out), "OTEL_EXPORTER_OTLP_ENDPOINT") {
		t.Errorf("a server with a wrong endpoint = %v, want an error that names the setting\n%s", err, out)
	}
}
