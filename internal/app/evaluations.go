package app

import (
	"strconv"
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/gatehouse-dev/gatehouse/internal/rego"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

// evaluations counts policy evaluations by policy and decision for /metrics. A
// decision costs one look-up in a map and one atomic addition.
type evaluations struct {
	vec *prometheus.CounterVec
	by  sync.Map // evaluationKey → prometheus.Counter
}

type evaluationKey struct {
	tenant scope.TenantID
	policy int64
	effect rego.Effect
}

func newEvaluations(reg *prometheus.Registry) *evaluations {
	e := &evaluations{vec: prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "gatehouse_policy_evaluations_total",
		Help: "Decisions by tenant, by the id of the control that decided (0: none matched) and by decision.",
	}, []string{"tenant", "policy", "decision"})}
	reg.MustRegister(e.vec)
	return e
}

func (e *evaluations) count(tenant scope.TenantID, policy int64, effect rego.Effect) {
	key := evaluationKey{tenant, policy, effect}
	c, ok := e.by.Load(key)
	if !ok {
		c, _ = e.by.LoadOrStore(key, e.vec.WithLabelValues(string(tenant), strconv.FormatInt(policy, 10), effect.String()))
	}
	c.(prometheus.Counter).Inc()
}

// weight is a tenant's weight in the share of the processors.
func (p *parts) weight(id scope.TenantID) int {
	switch p.auth.Plan(id) {
	case "enterprise":
		return 4
	case "pro":
		return 2
	default:
		return 1
	}
}
