// Package tracing sends spans and metrics to an OpenTelemetry collector, by OTLP over HTTP, and
// continues the traces of callers (W3C Trace Context). With a nil Exporter, tracing is off and costs
// nothing.
package tracing

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	bridge "go.opentelemetry.io/contrib/bridges/prometheus"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlpmetric/otlpmetrichttp"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/resource"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
)

// scopeName names this instrumentation to the collector.
const scopeName = "github.com/gatehouse-dev/gatehouse"

// Config says what to send, and where to. The SDK itself reads the other OTEL_ variables of the
// OpenTelemetry specification, such as OTEL_EXPORTER_OTLP_HEADERS, OTEL_TRACES_SAMPLER and
// OTEL_RESOURCE_ATTRIBUTES.
type Config struct {
	// Endpoint is the base URL of the collector, http:// or https://. Traces go to
	// /v1/traces below it, metrics to /v1/metrics. When it is empty, Open returns nil.
	Endpoint string
	// Service and Version name this process to the collector. OTEL_SERVICE_NAME overrides Service.
	Service, Version string
	// Client makes the calls.
	Client *http.Client
	// Metrics are sent every minute, or every OTEL_METRIC_EXPORT_INTERVAL milliseconds.
	Metrics prometheus.Gatherer
	Log     *slog.Logger
}

// Exporter sends spans and metrics to a collector.
type Exporter struct {
	tracer  trace.Tracer
	spans   *sdk.TracerProvider
	metrics *metric.MeterProvider
}

// Open returns an Exporter, or nil if cfg.Endpoint is empty. It makes no call. It fails if the
// endpoint or OTEL_RESOURCE_ATTRIBUTES cannot be used.
func Open(ctx context.Context, cfg Config) (*Exporter, error) {
	if cfg.Endpoint == "" {
		return nil, nil //nolint:nilnil // off
	}
	base, err := url.Parse(cfg.Endpoint)
	if err != nil || base.Scheme != "http" && base.Scheme != "https" || base.Host == "" || base.User != nil || base.RawQuery != "" {
		return nil, errors.New("OTEL_EXPORTER_OTLP_ENDPOINT: must be http:// or https://host:port, without a user or a query")
	}
	at := strings.TrimSuffix(base.String(), "/")
	as, err := resource.New(ctx, resource.WithAttributes(
		attribute.String("service.name", cfg.Service), attribute.String("service.version", cfg.Version),
	), resource.WithTelemetrySDK(), resource.WithHost(), resource.WithFromEnv())
	if err != nil {
		return nil, fmt.Errorf("OTEL_RESOURCE_ATTRIBUTES: %w", err)
	}
	spans, err := otlptracehttp.New(ctx, otlptracehttp.WithEndpointURL(at+"/v1/traces"), otlptracehttp.WithHTTPClient(cfg.Client))
	if err != nil {
		return nil, fmt.Errorf("send traces: %w", err)
	}
	metrics, err := otlpmetrichttp.New(ctx, otlpmetrichttp.WithEndpointURL(at+"/v1/metrics"), otlpmetrichttp.WithHTTPClient(cfg.Client))
	if err != nil {
		return nil, fmt.Errorf("send metrics: %w", err)
	}
	failures := &failures{log: cfg.Log}
	e := &Exporter{spans: sdk.NewTracerProvider(sdk.WithBatcher(spanSender{spans, failures}), sdk.WithResource(as))}
	e.metrics = metric.NewMeterProvider(metric.WithResource(as), metric.WithReader(metric.NewPeriodicReader(
		metricSender{metrics, failures}, metric.WithProducer(bridge.NewMetricProducer(bridge.WithGatherer(cfg.Metrics))),
	)))
	e.tracer = e.spans.Tracer(scopeName)
	return e, nil
}

// Close sends the remaining spans and metrics, and stops. It gives up when ctx ends.
func (e *Exporter) Close(ctx context.Context) error {
	if e == nil {
		return nil
	}
	return errors.Join(e.spans.Shutdown(ctx), e.metrics.Shutdown(ctx))
}
