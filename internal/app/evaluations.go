package app

import (
	"strconv"
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/gatehouse-dev/gatehouse/internal/rego"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

// evaluations counts policy evaluations by policy and decision for /metrics. A decision
// costs two map lookups and one atomic addition.
type evaluations struct {
	vec *prometheus.CounterVec
	mu  sync.RWMutex
	by  map[scope.TenantID]*tenantEvaluations
}

// tenantEvaluations are those of one tenant. There may be thousands of policies, used in
// turn, so the map is flat and takes few cache misses.
type tenantEvaluations struct {
	mu sync.RWMutex
	by map[evaluationKey]prometheus.Counter
}

type evaluationKey struct {
	policy int64
	effect rego.Effect
}

func newEvaluations(reg *prometheus.Registry) *evaluations {
	e := &evaluations{by: map[scope.TenantID]*tenantEvaluations{}, vec: prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "gatehouse_policy_evaluations_total",
		Help: "Decisions by tenant, by the id of the control that decided (0: none matched) and by decision.",
	}, []string{"tenant", "policy", "decision"})}
	reg.MustRegister(e.vec)
	return e
}

func (e *evaluations) count(tenant scope.TenantID, policy int64, effect rego.Effect) {
	own := e.of(tenant)
	key := evaluationKey{policy, effect}
	own.mu.RLock()
	c := own.by[key]
	own.mu.RUnlock()
	if c == nil {
		c = e.vec.WithLabelValues(string(tenant), strconv.FormatInt(policy, 10), effect.String())
		own.mu.Lock()
		own.by[key] = c
		own.mu.Unlock()
	}
	c.Inc()
}

func (e *evaluations) of(tenant scope.TenantID) *tenantEvaluations {
	e.mu.RLock()
	own := e.by[tenant]
	e.mu.RUnlock()
	if own != nil {
		return own
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if own = e.by[tenant]; own == nil {
		own = &tenantEvaluations{by: map[evaluationKey]prometheus.Counter{}}
		e.by[tenant] = own
	}
	return own
}

// weight is a tenant's share of the processors.
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
