package app

import (
	"log/slog"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/gatehouse-dev/gatehouse/internal/fault"
)

// newPanics counts recovered panics for /metrics.
func newPanics(reg *prometheus.Registry, log *slog.Logger) *fault.Panics {
	vec := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "gatehouse_panics_total", Help: "Panics that were recovered, by the place; the log has the stack of each.",
	}, []string{"where"})
	reg.MustRegister(vec)
	for _, where := range []string{"request", "socket", "connection", "decision", "replay", "worker", "job", "git"} {
		vec.WithLabelValues(where) // shown from the start
	}
	return &fault.Panics{Log: log, Add: func(where string) { vec.WithLabelValues(where).Inc() }}
}
