package rest

import (
	"cmp"
	"runtime"
	"runtime/debug"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

// metrics are the counters of requests. Label values are operations and tenants,
// never text of a request.
type metrics struct {
	requests, byTenant         *prometheus.CounterVec
	duration, durationByTenant *prometheus.HistogramVec
	unmatched                  routeStats // requests that no operation takes
	tenants                    sync.Map   // scope.TenantID → *routeStats
}

// routeStats are the counters of an operation or a tenant by status class.
type routeStats struct {
	classes [6]prometheus.Counter // 0: the caller has gone
	seconds prometheus.Observer
}

// classes are the values of the label status.
var classes = [6]string{"aborted", "1xx", "2xx", "3xx", "4xx", "5xx"}

func newMetrics(reg prometheus.Registerer, version string) (*metrics, error) {
	fine := []float64{.00005, .0001, .00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 10, 30}
	m := &metrics{
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "gatehouse_http_requests_total", Help: "Requests answered, by operation, method and class of status.",
		}, []string{"operation", "method", "status"}),
		byTenant: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "gatehouse_tenant_requests_total", Help: "Requests answered to a tenant's callers, by class of status.",
		}, []string{"tenant", "status"}),
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "gatehouse_http_request_duration_seconds", Help: "Time to answer, by operation.", Buckets: fine,
		}, []string{"operation"}),
		durationByTenant: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "gatehouse_tenant_request_duration_seconds", Help: "Time to answer a tenant's callers.", Buckets: fine,
		}, []string{"tenant"}),
	}
	build := prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "gatehouse_build_info", Help: "Always 1; the labels say which build this is.",
	}, []string{"version", "revision", "goversion"})
	info, _ := debug.ReadBuildInfo() // nil where there is none
	build.WithLabelValues(version, revision(commit, info), runtime.Version()).Set(1)
	own := []prometheus.Collector{
		build,
		m.requests, m.byTenant, m.duration, m.durationByTenant,
		collectors.NewGoCollector(), collectors.NewBuildInfoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
	}
	for _, c := range own {
		if err := reg.Register(c); err != nil {
			return nil, err
		}
	}
	m.unmatched = m.prepare(Op{ID: "none", Method: "any"})
	return m, nil
}

// Registry is where the Router's collectors are.
func (r *Router) Registry() *prometheus.Registry { return r.cfg.Registry }

// commit is the commit that the program was built from. "make build" sets it; it is
// empty in other builds.
var commit string

// revision is the commit of a build: the one that the build set, else the one that
// Go found, marked where files differ from it, else "unknown".
func revision(set string, info *debug.BuildInfo) string {
	if set != "" || info == nil {
		return cmp.Or(set, "unknown")
	}
	found := map[string]string{}
	for _, s := range info.Settings {
		found[s.Key] = s.Value
	}
	switch {
	case found["vcs.revision"] == "":
		return "unknown"
	case found["vcs.modified"] == "true":
		return found["vcs.revision"] + "-dirty"
	}
	return found["vcs.revision"]
}

// prepare makes the counters of an operation, so that a request needs no look-up.
func (m *metrics) prepare(op Op) routeStats {
	s := routeStats{seconds: m.duration.WithLabelValues(op.ID)}
	for i, class := range classes {
		s.classes[i] = m.requests.WithLabelValues(op.ID, op.Method, class)
	}
	return s
}

// tenant finds the counters of a tenant.
func (m *metrics) tenant(id scope.TenantID) *routeStats {
	if s, ok := m.tenants.Load(id); ok {
		stats, _ := s.(*routeStats)
		return stats
	}
	s := &routeStats{seconds: m.durationByTenant.WithLabelValues(string(id))}
	for i, class := range classes {
		s.classes[i] = m.byTenant.WithLabelValues(string(id), class)
	}
	m.tenants.Store(id, s)
	return s
}

// observe counts a finished exchange.
func (m *metrics) observe(x *exchange) {
	s := &m.unmatched
	if x.route != nil {
		s = &x.route.stats
	}
	class := x.status / 100
	switch {
	case x.status == statusGone:
		class = 0
	case x.status == 0:
		class = 2 // a handler that wrote nothing answered 200
	case class > 5:
		class = 5
	}
	took := x.r.cfg.Now().Sub(x.start).Seconds()
	s.classes[class].Inc()
	s.seconds.Observe(took)
	if x.authenticated {
		s = m.tenant(x.scope.Tenant)
		s.classes[class].Inc()
		s.seconds.Observe(took)
	}
}
