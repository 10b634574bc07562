package system

import (
	"context"
	"net/http"
	"reflect"
	"slices"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/fault"
	"github.com/gatehouse-dev/gatehouse/internal/rest"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

// The states of the service and of its parts.
const (
	Healthy   = "healthy"
	Degraded  = "degraded"
	Unhealthy = "unhealthy"
)

// Probes return the state of the parts. All are required, and must be quick, because /health waits
// for them.
type Probes struct {
	Database func(ctx context.Context) DatabaseHealth
	// Regions returns the state of the regions' stores, sorted; empty if there are no regions.
	Regions func(ctx context.Context) []RegionHealth
	Redis   func(ctx context.Context) RedisHealth
	Bridge  func(ctx context.Context) BridgeHealth
	Audit   func() AuditHealth
	// Ready returns why the service accepts no requests; nil: it accepts them.
	Ready func(ctx context.Context) error
}

// DatabaseHealth is the state of the store. It names no host, user or database.
type DatabaseHealth struct {
	Status      string  `json:"status" enum:"up,down" doc:"Whether the store answers"`
	LatencyMS   float64 `json:"latency_ms" doc:"Time of one round trip, in milliseconds"`
	Connections int     `json:"connections" doc:"Open connections"`
}

// RegionHealth is the state of the store of a region.
type RegionHealth struct {
	Region string `json:"region" doc:"Name of the region"`
	DatabaseHealth
}

// RedisHealth is the state of the cache, which is in Redis or in the process.
type RedisHealth struct {
	Status        string  `json:"status" enum:"up,degraded,embedded" doc:"embedded: a cache inside the process; degraded: Redis does not answer, and each process counts alone"`
	LatencyMS     float64 `json:"latency_ms" doc:"Time of one round trip, in milliseconds"`
	MemoryUsageMB float64 `json:"memory_usage_mb" doc:"Memory in use, in MiB"`
}

// BridgeSummary is the policy bridge as /health shows it.
type BridgeSummary struct {
	Status           string     `json:"status" enum:"healthy,degraded,unhealthy" doc:"Get the state of the policy bridge"`
	LastSync         *time.Time `json:"last_sync" doc:"When a bouncer last fetched its policies; null if never"`
	ConnectedClients int        `json:"connected_clients" doc:"Bouncers in touch"`
}

// BridgeHealth is the policy bridge in full.
type BridgeHealth struct {
	Status           string     `json:"status" enum:"healthy,degraded,unhealthy" doc:"Get the state of the policy bridge"`
	LastSync         *time.Time `json:"last_sync" doc:"When a bouncer last fetched its policies; null if never"`
	ConnectedClients int        `json:"connected_clients" doc:"Bouncers in touch"`
	InProgress       int        `json:"in_progress" doc:"Deliveries in progress"`
	StuckInProgress  int        `json:"stuck_in_progress" doc:"Deliveries in progress for more than 60 seconds"`
	SyncCompleted    bool       `json:"sync_completed" doc:"True when every bouncer runs the revision that it should"`
}

// AuditHealth is the state of the decision log between a decision and the store.
type AuditHealth struct {
	Status       string  `json:"status" enum:"up,degraded,down" doc:"degraded: the log is filling up, lags, misses decisions, or its disk is nearly full; down: the log cannot be written"`
	Posture      string  `json:"posture" enum:"required,best_effort" doc:"What happens to decisions while the log is down: they are refused, or they go on and are counted as missing"`
	Refusing     bool    `json:"refusing" doc:"Whether decisions are refused now"`
	Waiting      int64   `json:"waiting" doc:"Records that are not yet in the store"`
	WaitingBytes int64   `json:"waiting_bytes" doc:"Size of these records"`
	LimitBytes   int64   `json:"limit_bytes" doc:"Largest allowed size"`
	LagSeconds   float64 `json:"lag_seconds" doc:"Age of the oldest of these records"`
	Refused      int64   `json:"refused" doc:"Records refused since the process started"`
	Missing      int64   `json:"missing" doc:"Decisions answered without a record since the process started; the log contains the number"`
	Healed       int64   `json:"healed" doc:"How often the log continued in a new file after a disk error"`
	ReserveBytes int64   `json:"reserve_bytes" doc:"Disk space that is still reserved"`
}

// Components are the parts of the service.
type Components struct {
	Database     DatabaseHealth `json:"database" doc:"The store"`
	Regions      []RegionHealth `json:"regions,omitempty" doc:"The stores of the regions, if the deployment has regions. One that is down makes the service degraded: only its tenants are affected."`
	Redis        RedisHealth    `json:"redis" doc:"The cache"`
	PolicyBridge BridgeSummary  `json:"policy-bridge" doc:"The delivery of policies to bouncers"`
	Audit        AuditHealth    `json:"audit" doc:"The decision log waiting to be stored"`
}

// Health is the answer of /health.
type Health struct {
	Status        string     `json:"status" enum:"healthy,degraded,unhealthy" doc:"The state of the whole service; unhealthy comes with a 503"`
	Version       string     `json:"version" doc:"The build's version"`
	UptimeSeconds int64      `json:"uptime_seconds" doc:"Seconds since the process began to serve"`
	Components    Components `json:"components" doc:"The parts"`
	Timestamp     time.Time  `json:"timestamp" doc:"Time of this check"`
}

// Liveness is the answer of /health/live and /health/ready.
type Liveness struct {
	Status  string         `json:"status" enum:"live,ready" doc:"The answer"`
	Audit   *AuditHealth   `json:"audit,omitempty" doc:"The decision log waiting to be stored; only in /health/ready"`
	Regions []RegionHealth `json:"regions,omitempty" doc:"The stores of the regions, if the deployment has regions; only in /health/ready. One that is down does not make the service unready: it would take the tenants of other regions down with it."`
}

// healthIn has the parameters that clients of OPA send to its /health.
type healthIn struct {
	Bundles       string   `query:"bundles" doc:"Accepted for clients of OPA. The answer covers the controls anyway."`
	Plugins       string   `query:"plugins" doc:"Accepted for clients of OPA. The answer covers every part anyway."`
	ExcludePlugin []string `query:"exclude-plugin,explode" minLength:"1" doc:"Accepted for clients of OPA. It excludes nothing."`
}

type healthOut struct {
	Status int
	Body   Health
}

// health registers /health and related paths. They need no credential: load balancers and
// orchestrators have none.
func (h *Handler) health(r *rest.Router) {
	tags := []string{"Health"}
	rest.Register(r, rest.Op{
		ID: "get-health", Method: http.MethodGet, Path: "/health", Public: true, Tags: tags,
		Summary: "Get the state of the service and its parts", OwnErrors: map[int]reflect.Type{http.StatusServiceUnavailable: reflect.TypeFor[Health]()},
	}, func(ctx context.Context, _ scope.Scope, _ *healthIn) (*healthOut, error) {
		health := h.Health(ctx)
		out := &healthOut{Status: http.StatusOK, Body: health}
		if health.Status == Unhealthy {
			out.Status = http.StatusServiceUnavailable
		}
		return out, nil
	})
	rest.Register(r, rest.Op{
		ID: "get-health-live", Method: http.MethodGet, Path: "/health/live", Public: true, Tags: tags,
		Summary: "Check that the process runs",
	}, func(context.Context, scope.Scope, *struct{}) (*rest.JSON[Liveness], error) {
		return rest.Answer(Liveness{Status: "live"}, nil)
	})
	rest.Register(r, rest.Op{
		ID: "get-health-ready", Method: http.MethodGet, Path: "/health/ready", Public: true, Tags: tags,
		Summary: "Check that the service accepts requests",
	}, func(ctx context.Context, _ scope.Scope, _ *struct{}) (*rest.JSON[Liveness], error) {
		if r.IsStopping() {
			return nil, fault.Stopping()
		}
		audit := h.Probes.Audit()
		if err := h.Probes.Ready(ctx); err != nil {
			return nil, fault.New(fault.Unavailable, "not_ready", "the service is not accepting requests now").With("audit", audit).Because(err).After(time.Second)
		}
		return rest.Answer(Liveness{Status: "ready", Audit: &audit, Regions: h.Probes.Regions(ctx)}, nil)
	})
	rest.Register(r, rest.Op{
		ID: "get-health-bridge", Method: http.MethodGet, Path: "/health/policy-bridge", Public: true, Tags: tags,
		Summary: "State of the delivery of policies to bouncers",
	}, func(ctx context.Context, _ scope.Scope, _ *struct{}) (*rest.JSON[BridgeHealth], error) {
		return rest.Answer(h.Probes.Bridge(ctx), nil)
	})
}

// Health collects the state of all parts.
func (h *Handler) Health(ctx context.Context) Health {
	out := Health{Status: Healthy, Version: h.Version, Timestamp: h.Now().UTC(), UptimeSeconds: int64(h.Now().Sub(h.Started).Seconds())}
	c := &out.Components
	c.Database = h.Probes.Database(ctx)
	c.Regions = h.Probes.Regions(ctx)
	c.Redis = h.Probes.Redis(ctx)
	b := h.Probes.Bridge(ctx)
	c.PolicyBridge = BridgeSummary{Status: b.Status, LastSync: b.LastSync, ConnectedClients: b.ConnectedClients}
	c.Audit = h.Probes.Audit()
	switch {
	case c.Database.Status != "up" || c.Audit.Refusing:
		out.Status = Unhealthy
	case slices.ContainsFunc(c.Regions, RegionHealth.down) || c.Redis.Status == "degraded" || b.Status != Healthy || c.Audit.Status != "up":
		out.Status = Degraded
	}
	return out
}

func (r RegionHealth) down() bool { return r.Status != "up" }
