// Package measure counts the requests that the API answers, by operation and by
// tenant. Label values are operations and tenants, never text of a request.
package measure

import (
	"cmp"
	"runtime"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

// Meter returns the function that counts the requests of a tenant to an operation, by the time at
// which each began. The function is kept for each pair. Simultaneous first requests of a pair may call
// Meter more than once.
type Meter func(tenant scope.TenantID, operation string) func(at time.Time)

// Metrics are the counters of requests.
type Metrics struct {
	requests, byTenant         *prometheus.CounterVec
	duration, durationByTenant *prometheus.HistogramVec
	meter                      Meter
	operations                 int      // that were prepared
	tenants                    sync.Map // scope.TenantID → *Tenant
}

// Stats are the counters of an operation or a tenant by class of status.
type Stats struct {
	classes [6]prometheus.Counter // 0: the client has disconnected
	seconds prometheus.Observer
}

// Operation are the counters of an operation.
type Operation struct {
	Stats
	id    string
	index int
}

// Tenant are the counters of a tenant.
type Tenant struct {
	Stats
	id scope.TenantID
	// meters count requests for the tenant's bill, by the index of the operation. Each is created
	// at its first use.
	meters []atomic.Pointer[func(at time.Time)]
}

// classes are the values of the label status.
var classes = [6]string{"aborted", "1xx", "2xx", "3xx", "4xx", "5xx"}

// New registers the collectors. A nil meter counts nothing.
func New(reg prometheus.Registerer, version string, meter Meter) (*Metrics, error) {
	fine := []float64{.00005, .0001, .00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 10, 30}
	m := &Metrics{
		meter: meter,
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
	info, _ := debug.ReadBuildInfo() // nil if there is none
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
	return m, nil
}

// commit is the commit of the program. "make build" sets it; it is empty in other builds.
var commit string

// revision returns the commit of a build: the one that the build set, otherwise the one that Go
// found, marked if files differ from it, otherwise "unknown".
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

// Prepare creates the counters of an operation, so that a request needs no lookup. All operations
// are prepared before the first request.
func (m *Metrics) Prepare(id, method string) Operation {
	o := Operation{Stats: Stats{seconds: m.duration.WithLabelValues(id)}, id: id, index: m.operations}
	for i, class := range classes {
		o.classes[i] = m.requests.WithLabelValues(id, method, class)
	}
	m.operations++
	return o
}

// Tenant finds the counters of a tenant.
func (m *Metrics) Tenant(id scope.TenantID) *Tenant {
	if found, ok := m.tenants.Load(id); ok {
		t, _ := found.(*Tenant)
		return t
	}
	t := &Tenant{Stats: Stats{seconds: m.durationByTenant.WithLabelValues(string(id))}, id: id, meters: make([]atomic.Pointer[func(time.Time)], m.operations)}
	for i, class := range classes {
		t.classes[i] = m.byTenant.WithLabelValues(string(id), class)
	}
	m.tenants.Store(id, t)
	return t
}

// Observe counts an answer of a class: the first digit of its status, or 0 if the client had
// disconnected.
func (s *Stats) Observe(class int, took time.Duration) {
	s.classes[class].Inc()
	s.seconds.Observe(took.Seconds())
}

// Bill counts a request to an operation, which began at a time, for a tenant's bill.
func (m *Metrics) Bill(t *Tenant, o *Operation, at time.Time) {
	if m.meter == nil {
		return
	}
	count := t.meters[o.index].Load()
	if count == nil {
		made := m.meter(t.id, o.id)
		count = &made
		t.meters[o.index].Store(count)
	}
	(*count)(at)
}
