package system

import (
	"bytes"
	"net/http"
	"reflect"
	"slices"
	"strconv"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"

	"github.com/gatehouse-dev/gatehouse/internal/fault"
	"github.com/gatehouse-dev/gatehouse/internal/rest"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

// metrics registers the metrics of the process.
func (h *Handler) metrics(r *rest.Router) {
	rest.Raw(r, rest.Op{
		ID: "get-metrics", Method: http.MethodGet, Path: "/metrics", Optional: true, Tags: []string{"Health"},
		Summary:     "Counters and histograms in Prometheus' text format",
		Description: "Platform administrators see all metrics. A tenant's credential sees those of the tenant, without the label tenant. The operator decides whether the endpoint needs a credential.",
	}, rest.RawDocs{Response: reflect.TypeFor[string](), ResponseType: "text/plain"}, func(w http.ResponseWriter, _ *http.Request, sc scope.Scope) {
		everything := sc.Platform || h.OpenMetrics && sc.Actor.Kind == ""
		if sc.Actor.Kind == "" && !everything {
			rest.Fail(w, fault.New(fault.Unauthenticated, "authentication_required", "send an API key or an access token"))
			return
		}
		families, err := r.Registry().Gather()
		if err != nil {
			rest.Fail(w, err)
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
				rest.Fail(w, err)
				return
			}
		}
		w.Header().Set("Content-Length", strconv.Itoa(out.Len()))
		w.Header().Set("Content-Type", string(format))
		_, _ = w.Write(out.Bytes()) // the peer may have gone
	})
}

// ownMetrics keeps the metrics with the tenant's label and removes the label. It returns nil if
// none is left.
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
