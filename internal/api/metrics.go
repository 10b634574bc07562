package api

import (
	"bytes"
	"cmp"
	"net/http"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"

	"github.com/gatehouse-dev/gatehouse/internal/fault"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

// metrics are the counters of requests. Label values come from the table of
// operations and of tenants, never from a request.
type metrics struct {
	requests, byTenant         *prometheus.CounterVec
	duration, durationByTenant *prometheus.HistogramVec
	lost                       routeStats // requests that no operation took
	tenants                    sync.Map   // scope.TenantID → *routeStats
}

// routeStats are the counters of an operation or a tenant by status class.
type routeStats struct {
	classes [6]prometheus.Counter // 0: the caller went away
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
	m.lost = m.route(Op{ID: "none", Method: "any"})
	return m, nil
}

// commit is what the program was built from, as `make build` says; empty where
// something else built it.
var commit string

// revision is the commit of a build: the one that it was told, else the one that
// Go found, with a mark where files were changed after it; else unknown.
func revision(told string, info *debug.BuildInfo) string {
	if told != "" || info == nil {
		return cmp.Or(told, "unknown")
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

// route prepares the counters of an operation, so that a request finds them
// without a look-up.
func (m *metrics) route(op Op) routeStats {
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
	s := &m.lost
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
	took := x.r.s.Now().Sub(x.start).Seconds()
	s.classes[class].Inc()
	s.seconds.Observe(took)
	if x.known {
		s = m.tenant(x.scope.Tenant)
		s.classes[class].Inc()
		s.seconds.Observe(took)
	}
}

// exposition serves /metrics.
func (s *Server) exposition(r *Router) {
	Raw(r, Op{
		ID: "get-metrics", Method: http.MethodGet, Path: "/metrics", Optional: true, Tags: []string{"Health"},
		Summary:     "Counters and histograms in Prometheus' text format",
		Description: "A platform administrator sees all; a tenant's credential sees what is its tenant's own, without the label tenant. Whether it may be read without a credential is the operator's choice.",
	}, RawDocs{Response: stringType, ResponseType: "text/plain"}, func(w http.ResponseWriter, _ *http.Request, sc scope.Scope) {
		everything := sc.Platform || s.OpenMetrics && sc.Actor.Kind == ""
		if sc.Actor.Kind == "" && !everything {
			Fail(w, fault.New(fault.Unauthenticated, "authentication_required", "send an API key or an access token"))
			return
		}
		families, err := s.Registry.Gather()
		if err != nil {
			Fail(w, err)
			return
		}
		var out bytes.Buffer
		format := expfmt.NewFormat(expfmt.TypeTextPlain)
		enc := expfmt.NewEncoder(&out, format)
		for _, family := range families {
			if !everything {
				family = ownMetrics(family, string(sc.Tenant))
			}
			if family == nil {
				continue
			}
			if err := enc.Encode(family); err != nil {
				Fail(w, err)
				return
			}
		}
		w.Header().Set("Content-Length", strconv.Itoa(out.Len()))
		w.Header().Set("Content-Type", string(format))
		_, _ = w.Write(out.Bytes()) // the peer may have gone
	})
}

// ownMetrics keeps what carries the tenant's label, and takes the label off; nil
// where nothing is left.
func ownMetrics(family *dto.MetricFamily, tenant string) *dto.MetricFamily {
	var own []*dto.Metric
	for _, m := range family.GetMetric() {
		i := slices.IndexFunc(m.GetLabel(), func(l *dto.LabelPair) bool { return l.GetName() == "tenant" })
		if i < 0 || m.GetLabel()[i].GetValue() != tenant {
			continue
		}
		labels := slices.Delete(slices.Clone(m.GetLabel()), i, i+1)
		own = append(own, &dto.Metric{
			Label: labels, Gauge: m.Gauge, Counter: m.Counter, Summary: m.Summary,
			Untyped: m.Untyped, Histogram: m.Histogram, TimestampMs: m.TimestampMs,
		})
	}
	if len(own) == 0 {
		return nil
	}
	return &dto.MetricFamily{Name: family.Name, Help: family.Help, Type: family.Type, Unit: family.Unit, Metric: own}
}
