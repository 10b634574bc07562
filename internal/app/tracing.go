package app

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	model "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	names "github.com/prometheus/common/model"

	"github.com/gatehouse-dev/gatehouse/internal/outbound"
	"github.com/gatehouse-dev/gatehouse/internal/tracing"
)

// tracingGrace is how long a stop waits for the OpenTelemetry collector.
const tracingGrace = 3 * time.Second

// openTracing returns an exporter to a collector; nil if none is configured. The collector may have
// a private address, because the operator chose it.
func openTracing(ctx context.Context, cfg tracing.Config) (*tracing.Exporter, error) {
	cfg.Client = outbound.Trusted(outbound.Config{}).HTTP()
	return tracing.Open(ctx, cfg)
}

// parseMetrics parses metrics that are written as text.
func parseMetrics(write func(io.Writer)) prometheus.Gatherer {
	return prometheus.GathererFunc(func() ([]*model.MetricFamily, error) {
		var text bytes.Buffer
		write(&text)
		parser := expfmt.NewTextParser(names.LegacyValidation)
		families, err := parser.TextToMetricFamilies(&text)
		if err != nil {
			return nil, fmt.Errorf("metrics: %w", err)
		}
		out := make([]*model.MetricFamily, 0, len(families))
		for _, f := range families {
			out = append(out, f)
		}
		return out, nil
	})
}
