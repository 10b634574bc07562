package app

import (
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/gatehouse-dev/gatehouse/internal/policy"
	"github.com/gatehouse-dev/gatehouse/internal/rego"
)

// TestEvaluationsByDecision: /metrics has the decisions of each control that decided, and nothing
// about controls that bouncers report.
func TestEvaluationsByDecision(t *testing.T) {
	m, reg := policy.NewMetrics(nil, time.Hour), prometheus.NewPedanticRegistry()
	reg.MustRegister(evaluations{m})
	m.Tally("acme", 7).Decided[rego.Deny].Add(2)
	m.Tally("acme", 7).Decided[rego.Mask].Add(1)
	m.Tally("acme", 0).Decided[rego.NoMatch].Add(1)
	m.Tally("other", 7).Evaluated(time.Second, false) // it ran, and decided nothing
	m.Add("acme", 4711, time.Second, true)
	w := httptest.NewRecorder()
	promhttp.HandlerFor(reg, promhttp.HandlerOpts{}).ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	var got []string
	for line := range strings.Lines(w.Body.String()) {
		if !strings.HasPrefix(line, "#") {
			got = append(got, strings.TrimSpace(line))
		}
	}
	want := `gatehouse_policy_evaluations_total{decision="DENY",policy="7",tenant="acme"} 2
gatehouse_policy_evaluations_total{decision="MASK",policy="7",tenant="acme"} 1
gatehouse_policy_evaluations_total{decision="NO_MATCH",policy="0",tenant="acme"} 1`
	if strings.Join(got, "\n") != want {
		t.Errorf("/metrics has\n%s\nwant\n%s", strings.Join(got, "\n"), want)
	}
}
