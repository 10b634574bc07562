package tracing

import (
	"context"
	"log/slog"
	"sync/atomic"

	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	sdk "go.opentelemetry.io/otel/sdk/trace"
)

// failures logs when calls to the collector start to fail, and when they succeed again. The SDK
// would print each failure to standard error.
type failures struct {
	log     *slog.Logger
	failing atomic.Bool
}

func (f *failures) note(ctx context.Context, what string, err error) {
	if ctx.Err() != nil { // the process ends
		return
	}
	switch {
	case err != nil && !f.failing.Swap(true):
		f.log.Warn("the OpenTelemetry collector does not answer; spans and metrics are lost", "what", what, "error", err)
	case err == nil && f.failing.Swap(false):
		f.log.Info("the OpenTelemetry collector answers again")
	}
}

type spanSender struct {
	sdk.SpanExporter
	failures *failures
}

func (s spanSender) ExportSpans(ctx context.Context, spans []sdk.ReadOnlySpan) error {
	s.failures.note(ctx, "traces", s.SpanExporter.ExportSpans(ctx, spans))
	return nil
}

type metricSender struct {
	metric.Exporter
	failures *failures
}

func (s metricSender) Export(ctx context.Context, m *metricdata.ResourceMetrics) error {
	s.failures.note(ctx, "metrics", s.Exporter.Export(ctx, m))
	return nil
}
