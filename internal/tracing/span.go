package tracing

import (
	"context"
	"log/slog"
	"net/http"
	"slices"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
)

// form reads and writes the HTTP headers of a trace: traceparent and tracestate (W3C Trace Context).
var form propagation.TraceContext

// Begin starts the span of a request, as a child of the one that traceparent names. The returned
// request has the span in its context and its headers, so that the spans of a server to which it is
// forwarded become children of it. The caller calls end once, with the operation and the HTTP
// status. If the operation is empty, the method alone names the span.
func (e *Exporter) Begin(r *http.Request) (_ *http.Request, end func(operation string, status int)) {
	ctx := form.Extract(r.Context(), propagation.HeaderCarrier(r.Header))
	ctx, span := e.tracer.Start(ctx, verb(r.Method), trace.WithSpanKind(trace.SpanKindServer), trace.WithAttributes(
		attribute.String("http.request.method", verb(r.Method)), attribute.String("url.path", r.URL.Path), attribute.String("server.address", r.Host),
	))
	r.Header.Del("Tracestate") // the traceparent that it belongs to may be malformed
	form.Inject(ctx, propagation.HeaderCarrier(r.Header))
	return r.WithContext(ctx), func(operation string, status int) {
		if operation != "" {
			span.SetName(operation)
			span.SetAttributes(attribute.String("http.route", operation))
		}
		span.SetAttributes(attribute.Int("http.response.status_code", status))
		if status >= http.StatusInternalServerError {
			span.SetStatus(codes.Error, "")
		}
		span.End()
	}
}

// Hook returns Begin, or nil if tracing is off.
func (e *Exporter) Hook() func(*http.Request) (*http.Request, func(operation string, status int)) {
	if e == nil {
		return nil
	}
	return e.Begin
}

// Decided returns a function that adds a decision to the span of its context, or nil if tracing is
// off.
func (e *Exporter) Decided() func(ctx context.Context, id, effect string) {
	if e == nil {
		return nil
	}
	return func(ctx context.Context, id, effect string) {
		trace.SpanFromContext(ctx).SetAttributes(attribute.String("gatehouse.decision_id", id), attribute.String("gatehouse.effect", effect))
	}
}

// Wrap returns a handler that makes a span for each request of next. For a nil Exporter it returns
// next.
func (e *Exporter) Wrap(next http.Handler) http.Handler {
	if e == nil {
		return next
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r, end := e.Begin(r)
		seen := &statusWriter{ResponseWriter: w, status: http.StatusOK}
		defer func() { end("", seen.status) }()
		next.ServeHTTP(seen, r)
	})
}

// statusWriter records the status of an answer.
type statusWriter struct {
	http.ResponseWriter
	status int
}

func (w *statusWriter) WriteHeader(status int) {
	if status >= http.StatusOK || status == http.StatusSwitchingProtocols {
		w.status = status
	}
	w.ResponseWriter.WriteHeader(status)
}

// Unwrap returns the wrapped writer, for http.ResponseController.
func (w *statusWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// verbs are the methods that may name a span. Callers must not be able to choose other names.
var verbs = []string{http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete, http.MethodOptions}

func verb(method string) string {
	if slices.Contains(verbs, method) {
		return method
	}
	return "_OTHER"
}

// Logs returns a handler that adds the ids of the trace and the span to each line that is logged
// within a span.
func Logs(next slog.Handler) slog.Handler { return logHandler{next} }

type logHandler struct{ slog.Handler }

func (h logHandler) Handle(ctx context.Context, r slog.Record) error {
	if at := trace.SpanContextFromContext(ctx); at.IsValid() {
		r.AddAttrs(slog.String("trace_id", at.TraceID().String()), slog.String("span_id", at.SpanID().String()))
	}
	return h.Handler.Handle(ctx, r)
}

func (h logHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return logHandler{h.Handler.WithAttrs(attrs)}
}

func (h logHandler) WithGroup(name string) slog.Handler { return logHandler{h.Handler.WithGroup(name)} }
