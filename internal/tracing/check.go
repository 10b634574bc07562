package tracing

import (
	"context"
	"net/http"
	"strings"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
)

// checkName is the name of the span of a check over gRPC. OpenTelemetry names calls by service and
// method.
const checkName = "envoy.service.auth.v3.Authorization/Check"

// beginCheck starts the span of a call in which Envoy asks about a request. Its parent is the span
// that the call's metadata name, which is Envoy's, or else the one that the checked request names.
// The caller calls end once, with the HTTP status that Envoy's client gets.
func (e *Exporter) beginCheck(ctx context.Context, call map[string][]string, checked *http.Request) (_ context.Context, end func(status int)) {
	parent := form.Extract(ctx, carrierOf(call))
	if !trace.SpanContextFromContext(parent).IsValid() {
		parent = form.Extract(ctx, propagation.HeaderCarrier(checked.Header))
	}
	ctx, span := e.tracer.Start(parent, checkName, trace.WithSpanKind(trace.SpanKindServer), trace.WithAttributes(
		attribute.String("rpc.system", "grpc"), attribute.String("http.request.method", verb(checked.Method)),
		attribute.String("url.path", checked.URL.Path), attribute.String("server.address", checked.Host),
	))
	return ctx, func(status int) {
		span.SetAttributes(attribute.Int("http.response.status_code", status))
		if status >= http.StatusInternalServerError {
			span.SetStatus(codes.Error, "")
		}
		span.End()
	}
}

// carrierOf returns the fields of the trace in a call's metadata. A duplicate field counts as
// missing.
func carrierOf(call map[string][]string) propagation.MapCarrier {
	out := propagation.MapCarrier{}
	for name, lines := range call {
		if low := strings.ToLower(name); len(lines) == 1 && (low == "traceparent" || low == "tracestate") {
			out[low] = lines[0]
		}
	}
	return out
}

// CheckHook returns the function that starts the span of a check; nil if tracing is off.
func (e *Exporter) CheckHook() func(context.Context, map[string][]string, *http.Request) (context.Context, func(status int)) {
	if e == nil {
		return nil
	}
	return e.beginCheck
}
