package rest

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/gatehouse-dev/gatehouse/internal/rest/measure"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

// Registry returns the registry of the Router's collectors.
func (r *Router) Registry() *prometheus.Registry { return r.cfg.Registry }

// observe counts a finished exchange.
func (x *exchange) observe() {
	r := x.r
	op := &r.unmatchedStats
	if x.route != nil {
		op = &x.route.stats
	}
	class := x.status / 100
	switch {
	case x.status == statusClientClosed:
		class = 0
	case x.status == 0:
		class = 2 // a handler that wrote nothing answered 200
	case class > 5:
		class = 5
	}
	took := r.cfg.Now().Sub(x.start)
	op.Observe(class, took)
	if x.authenticated {
		x.ownStats().Observe(class, took)
		x.bill()
	}
}

// bill counts the exchange for its tenant's bill, once. It does so before the answer is sent, so
// that every answer is counted. Bouncers' own traffic and our own errors are not billed; a platform
// administrator's work in another tenant is not billed to that tenant.
func (x *exchange) bill() {
	if x.billed || !x.authenticated || x.route == nil || x.status >= 500 || x.scope.Actor.Kind == scope.Bouncer {
		return
	}
	x.billed = true
	tenant := x.ownStats()
	if x.scope.Platform && x.scope.Tenant != scope.DefaultTenant {
		tenant = x.r.metrics.Tenant(scope.DefaultTenant)
	}
	x.r.metrics.Bill(tenant, &x.route.stats, x.start)
}

// ownStats returns the counters of the scope's tenant.
func (x *exchange) ownStats() *measure.Tenant {
	if x.tenant == nil {
		x.tenant = x.r.metrics.Tenant(x.scope.Tenant)
	}
	return x.tenant
}
