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

type statsOut struct{ Body dashboard.Stats }

// WindowParam says how far back an answer goes.
type WindowParam struct {
	Window string `query:"window" enum:"15m,1h,6h,24h,7d,30d,90d,365d" default:"24h" doc:"How far back"`
}

type seriesIn struct {
	rest.InEnvironment
	WindowParam
}

type seriesOut struct{ Body dashboard.Series }

type topIn struct {
	rest.InEnvironment
	WindowParam
	By    string `query:"by" enum:"policy,resource" default:"policy" doc:"What to list"`
	Limit int    `query:"limit" default:"10" minimum:"1" maximum:"100" doc:"How many entries to answer at most"`
}

type topOut struct{ Body dashboard.Top }

type anomaliesIn struct {
	rest.InEnvironment
	rest.Page
	Kind  string `query:"kind" enum:"denial_spike,error_spike,latency_anomaly,resource_access_spike,user_activity,suspicious_source_ip" doc:"One kind only; absent: all"`
	Hours int    `query:"hours" default:"24" minimum:"1" maximum:"2160" doc:"Those that lasted until this many hours ago or longer"`
}

type anomaliesOut struct{ Body anomaly.Page }

// dashboard registers what says what is going on.
func (h *Handler) dashboard(r *rest.Router) {
	tags := []string{"Dashboard"}
	rest.Register(r, rest.Op{
		ID: "dashboard-stats", Method: http.MethodGet, Path: "/dashboard/stats", Reach: rest.ReachEnvironment, Permission: "dashboard:read", Tags: tags,
		Summary:     "What is going on",
		Description: "Figures of controls, resources, bouncers and decisions, in one environment or in both. Decisions are counted as they are stored, audit level none included; the answer waits, half a second at most, for those that were just made.",
	},
		func(ctx context.Context, sc scope.Scope, _ *rest.InEnvironment) (*statsOut, error) {
			out, err := h.Dashboard.Stats(ctx, sc)
			return &statsOut{out}, err
		})
	rest.Register(r, rest.Op{
		ID: "dashboard-series", Method: http.MethodGet, Path: "/dashboard/series", Reach: rest.ReachEnvironment, Permission: "dashboard:read", Tags: tags,
		Summary:     "Decisions over time",
		Description: "Decisions, denials, errors and latency percentiles of a window, cut into 60 to 180 points. Points of 10 seconds are kept for 3 hours, of a minute for 2 days, of an hour for 35 days, of a day for 800 days.",
	},
		func(ctx context.Context, sc scope.Scope, in *seriesIn) (*seriesOut, error) {
			out, err := h.Dashboard.Series(ctx, sc, in.Window)
			return &seriesOut{out}, err
		})
	rest.Register(r, rest.Op{
		ID: "dashboard-top", Method: http.MethodGet, Path: "/dashboard/top", Reach: rest.ReachEnvironment, Permission: "dashboard:read", Tags: tags,
		Summary:     "Where denials come from",
		Description: "The controls or resources with most denials in a window, counted from the start of its first hour.",
	},
		func(ctx context.Context, sc scope.Scope, in *topIn) (*topOut, error) {
			out, err := h.Dashboard.Top(ctx, sc, in.By, in.Window, in.Limit)
			return &topOut{out}, err
		})
	rest.Register(r, rest.Op{
		ID: "dashboard-anomalies", Method: http.MethodGet, Path: "/dashboard/anomalies", Reach: rest.ReachEnvironment, Permission: "audit:read", Tags: tags,
		Summary:     "List anomalies",
		Description: "What differed from the tenant's own baseline: spikes of denials, of errors, of one user's or resource's decisions, slow evaluations, addresses that probe. Each has its evidence. It names users and addresses, so it needs audit:read. The tenant's setting `anomalies` says how far from usual is flagged, or `off`.",
	},
		func(ctx context.Context, sc scope.Scope, in *anomaliesIn) (*anomaliesOut, error) {
			since := h.Now().Add(-time.Duration(in.Hours) * time.Hour)
			out, err := h.Anomalies.List(ctx, sc, anomaly.Kind(in.Kind), since, int64(in.Skip), int64(in.Limit))
			return &anomaliesOut{out}, err
		})
}
