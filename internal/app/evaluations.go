package app

import (
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/gatehouse-dev/gatehouse/internal/pip"
	"github.com/gatehouse-dev/gatehouse/internal/policy"
	"github.com/gatehouse-dev/gatehouse/internal/rego"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

// evaluations exports the decisions of controls to /metrics.
type evaluations struct{ of *policy.Metrics }

var evaluationsTotal = prometheus.NewDesc("gatehouse_policy_evaluations_total",
	"Decisions by tenant, by the id of the control that decided (0: none matched) and by decision.", []string{"tenant", "policy", "decision"}, nil)

// Describe implements prometheus.Collector.
func (evaluations) Describe(out chan<- *prometheus.Desc) { out <- evaluationsTotal }

// Collect implements prometheus.Collector.
func (e evaluations) Collect(out chan<- prometheus.Metric) {
	e.of.Each(func(tenant scope.TenantID, control int64, t *rego.Tally) {
		for effect := range t.Decided {
			if n := t.Decided[effect].Load(); n > 0 {
				out <- prometheus.MustNewConstMetric(evaluationsTotal, prometheus.CounterValue, float64(n),
					string(tenant), strconv.FormatInt(control, 10), rego.Effect(effect).String())
			}
		}
	})
}

// shareOf returns a tenant's share of the processors.
func (p *parts) shareOf(id scope.TenantID) int {
	switch p.auth.Plan(id) {
	case "enterprise":
		return 4
	case "pro":
		return 2
	default:
		return 1
	}
}

// sourceAges exports the age of the data of data sources to /metrics.
type sourceAges struct{ of *pip.Ages }

var sourceAgeSeconds = prometheus.NewDesc("gatehouse_data_source_age_seconds",
	"Time since the data of a data source was last read or confirmed, by tenant and id of the source.", []string{"tenant", "connection"}, nil)

// Describe implements prometheus.Collector.
func (sourceAges) Describe(out chan<- *prometheus.Desc) { out <- sourceAgeSeconds }

// Collect implements prometheus.Collector.
func (s sourceAges) Collect(out chan<- prometheus.Metric) {
	s.of.Each(func(tenant scope.TenantID, connection int64, age time.Duration) {
		out <- prometheus.MustNewConstMetric(sourceAgeSeconds, prometheus.GaugeValue, age.Seconds(), string(tenant), strconv.FormatInt(connection, 10))
	})
}
