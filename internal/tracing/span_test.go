package tracing_test

import (
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/gatehouse-dev/gatehouse/internal/errtest"
	"github.com/gatehouse-dev/gatehouse/internal/tracing"
)

// TestLogs: lines that are logged within a span name it, and other lines do not.
func TestLogs(t *testing.T) {
	var out strings.Builder
	log := slog.New(tracing.Logs(slog.NewJSONHandler(&out, nil)))
	e, err := tracing.Open(t.Context(), tracing.Config{Endpoint: "http://127.0.0.1:1", Client: http.DefaultClient, Metrics: prometheus.NewRegistry(), Log: log})
	errtest.Must(t, err)
	r := httptest.NewRequestWithContext(t.Context(), "GET", "/", nil)
	r.Header.Set("Traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
	log.With("a", 1).InfoContext(t.Context(), "outside")
	r, end := e.Begin(r)
	log.With("a", 1).InfoContext(r.Context(), "inside")
	end("an-operation", 200)
	outside, inside, _ := strings.Cut(out.String(), "\n")
	if strings.Contains(outside, "trace_id") || !strings.Contains(inside, `"trace_id":"0af7651916cd43dd8448eb211c80319c","span_id":"`) {
		t.Errorf("log = %s, want the trace only inside the span", &out)
	}
}

// TestEndpoints: an endpoint that is not a base URL is refused, and without one tracing is off.
func TestEndpoints(t *testing.T) {
	for _, wrong := range []string{"collector:4318", "grpc://collector:4317", "http://", "http://user:secret@collector", "http://collector?key=secret", "\x00"} {
		e, err := tracing.Open(t.Context(), tracing.Config{Endpoint: wrong})
		if err == nil || e != nil || !strings.Contains(err.Error(), "OTEL_EXPORTER_OTLP_ENDPOINT") || strings.Contains(err.Error(), "secret") {
			t.Errorf("Open with %q = %v, want an error without the secret", wrong, err)
		}
	}
	off, err := tracing.Open(t.Context(), tracing.Config{})
	h := http.NewServeMux()
	if err != nil || off != nil || off.Hook() != nil || off.Decided() != nil || off.Wrap(h) != http.Handler(h) || off.Close(t.Context()) != nil {
		t.Errorf("Open without an endpoint = %v, %v, want nothing", off, err)
	}
}
