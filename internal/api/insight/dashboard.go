package insight

import (
	"context"
	"net/http"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/anomaly"
	"github.com/gatehouse-dev/gatehouse/internal/dashboard"
	"github.com/gatehouse-dev/gatehouse/internal/rest"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

// WindowParam is the period that an answer covers.
type WindowParam struct {
	Window string `query:"window" enum:"15m,1h,6h,24h,7d,30d,90d,365d" default:"24h" doc:"How far back"`
}

type seriesIn struct {
	rest.InEnvironment
	WindowParam
}

type topIn struct {
	rest.InEnvironment
	WindowParam
	By    string `query:"by" enum:"policy,resource" default:"policy" doc:"What to rank"`
	Limit int    `query:"limit" default:"10" minimum:"1" maximum:"100" doc:"Largest number of entries in the answer"`
}

type anomaliesIn struct {
	rest.InEnvironment
	rest.Page
	Kind  string `query:"kind" enum:"denial_spike,error_spike,latency_anomaly,resource_access_spike,user_activity,suspicious_source_ip" doc:"Only this kind; absent: all"`
	Hours int    `query:"hours" default:"24" minimum:"1" maximum:"2160" doc:"Only those that were still active this many hours ago or later"`
}

// dashboard registers the key figures of the service.
func (h *Handler) dashboard(r *rest.Router) {
	tags := []string{"Dashboard"}
	rest.Register(r, rest.Op{
		ID: "dashboard-stats", Method: http.MethodGet, Path: "/dashboard/stats", Reach: rest.ReachEnvironment, Permission: "dashboard:read", Tags: tags,
		Summary:     "Get the key figures",
		Description: "Figures of controls, resources, bouncers and decisions, in one environment or in both. Decisions are counted as they are stored, also at audit level none. The answer waits up to half a second for decisions that were made just before.",
	}, func(ctx context.Context, sc scope.Scope, _ *rest.InEnvironment) (*rest.JSON[dashboard.Stats], error) {
		return rest.Answer(h.Dashboard.Stats(ctx, sc))
	})
	rest.Register(r, rest.Op{
		ID: "dashboard-series", Method: http.MethodGet, Path: "/dashboard/series", Reach: rest.ReachEnvironment, Permission: "dashboard:read", Tags: tags,
		Summary:     "Decisions over time",
		Description: "Decisions, denials, errors and latency percentiles of a window, in 60 to 180 points. Points of 10 seconds are kept for 3 hours, of a minute for 2 days, of an hour for 35 days, of a day for 800 days.",
	}, func(ctx context.Context, sc scope.Scope, in *seriesIn) (*rest.JSON[dashboard.Series], error) {
		return rest.Answer(h.Dashboard.Series(ctx, sc, in.Window))
	})
	rest.Register(r, rest.Op{
		ID: "dashboard-top", Method: http.MethodGet, Path: "/dashboard/top", Reach: rest.ReachEnvironment, Permission: "dashboard:read", Tags: tags,
		Summary:     "List what is denied most",
		Description: "The controls or resources with most denials in a window, counted from the start of its first hour.",
	}, func(ctx context.Context, sc scope.Scope, in *topIn) (*rest.JSON[dashboard.Top], error) {
		return rest.Answer(h.Dashboard.Top(ctx, sc, in.By, in.Window, in.Limit))
	})
	rest.Register(r, rest.Op{
		ID: "dashboard-anomalies", Method: http.MethodGet, Path: "/dashboard/anomalies", Reach: rest.ReachEnvironment, Permission: "audit:read", Tags: tags,
		Summary:     "List anomalies",
		Description: "Lists deviations from the tenant's own baseline: spikes of denials, of errors, of decisions of one user or resource, slow evaluations, probing addresses. Each comes with its evidence. The list names users and addresses, so it needs audit:read. The tenant's setting `anomalies` sets how large a deviation must be, or is `off`.",
	}, func(ctx context.Context, sc scope.Scope, in *anomaliesIn) (*rest.JSON[anomaly.Page], error) {
		since := h.Now().Add(-time.Duration(in.Hours) * time.Hour)
		return rest.Answer(h.Anomalies.List(ctx, sc, anomaly.Kind(in.Kind), since, int64(in.Skip), int64(in.Limit)))
	})
}
