package system

import (
	"context"
	"net/http"
	"reflect"
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

// Probes ask the parts how they are. A nil probe answers for a part that is not
// there; all must be quick, /health waits for them.
type Probes struct {
	Database func(ctx context.Context) DatabaseHealth
	Redis    func(ctx context.Context) RedisHealth
	Bridge   func(ctx context.Context) BridgeHealth
	Audit    func() AuditHealth
	// Ready says what keeps the service from taking requests; nil: nothing does.
	Ready func(ctx context.Context) error
}

// DatabaseHealth is the state of the store. It names no host, user or database.
type DatabaseHealth struct {
	Status      string  `json:"status" enum:"up,down" doc:"Whether the store answers"`
	LatencyMS   float64 `json:"latency_ms" doc:"Time of one round trip, in milliseconds"`
	Connections int     `json:"connections" doc:"Open connections"`
}

// RedisHealth is the state of the cache, be it Redis or the process's own.
type RedisHealth struct {
	Status        string  `json:"status" enum:"up,degraded,embedded" doc:"embedded: the cache of the process itself; degraded: Redis does not answer, the process counts alone"`
	LatencyMS     float64 `json:"latency_ms" doc:"Time of one round trip, in milliseconds"`
	MemoryUsageMB float64 `json:"memory_usage_mb" doc:"Memory in use, in MiB"`
}

// BridgeSummary is the policy bridge as /health shows it.
type BridgeSummary struct {
	Status           string     `json:"status" enum:"healthy,degraded,unhealthy" doc:"How the bridge is"`
	LastSync         *time.Time `json:"last_sync" doc:"When a bouncer last fetched its policies; null before the first"`
	ConnectedClients int        `json:"connected_clients" doc:"Bouncers that are connected"`
}

// BridgeHealth is the policy bridge in full.
type BridgeHealth struct {
	Status           string     `json:"status" enum:"healthy,degraded,unhealthy" doc:"How the bridge is"`
	LastSync         *time.Time `json:"last_sync" doc:"When a bouncer last fetched its policies; null before the first"`
	ConnectedClients int        `json:"connected_clients" doc:"Bouncers that are connected"`
	InProgress       int        `json:"in_progress" doc:"Deliveries under way"`
	StuckInProgress  int        `json:"stuck_in_progress" doc:"Deliveries under way for more than 60 seconds"`
	SyncCompleted    bool       `json:"sync_completed" doc:"True when every bouncer holds what it should"`
}

// AuditHealth is the state of the decision log between a decision and the store.
type AuditHealth struct {
	Status       string  `json:"status" enum:"up,degraded,down" doc:"degraded: it fills up, lags, misses decisions, or its disk is nearly full; down: it cannot be written"`
	Posture      string  `json:"posture" enum:"required,best_effort" doc:"What becomes of decisions while it is down: they are refused, or go on and are counted as missing"`
	Refusing     bool    `json:"refusing" doc:"Decisions are refused now"`
	Waiting      int64   `json:"waiting" doc:"Records that are not in the store yet"`
	WaitingBytes int64   `json:"waiting_bytes" doc:"Size of these"`
	LimitBytes   int64   `json:"limit_bytes" doc:"Ceiling of that size"`
	LagSeconds   float64 `json:"lag_seconds" doc:"Age of the oldest of these"`
	Refused      int64   `json:"refused" doc:"Records that were not taken in since the process started"`
	Missing      int64   `json:"missing" doc:"Decisions that were answered without a record since the process started; the log says how many"`
	Healed       int64   `json:"healed" doc:"How often the log went on in a new file after the disk had failed"`
	ReserveBytes int64   `json:"reserve_bytes" doc:"Room on the disk that is held back still"`
}

// Components are the parts of the service.
type Components struct {
	Database     DatabaseHealth `json:"database" doc:"The store"`
	Redis        RedisHealth    `json:"redis" doc:"The cache"`
	PolicyBridge BridgeSummary  `json:"policy-bridge" doc:"The delivery of policies to bouncers"`
	Audit        AuditHealth    `json:"audit" doc:"The decision log on its way to the store"`
}

// Health is the answer of /health.
type Health struct {
	Status        string     `json:"status" enum:"healthy,degraded,unhealthy" doc:"The service as a whole; unhealthy comes with a 503"`
	Version       string     `json:"version" doc:"The build's version"`
	UptimeSeconds int64      `json:"uptime_seconds" doc:"Seconds since the process began to serve"`
	Components    Components `json:"components" doc:"The parts"`
	Timestamp     time.Time  `json:"timestamp" doc:"When this was found out"`
}

// Liveness is the answer of /health/live and /health/ready.
type Liveness struct {
	Status string       `json:"status" enum:"live,ready" doc:"What the path asks for"`
	Audit  *AuditHealth `json:"audit,omitempty" doc:"The decision log on its way to the store; of /health/ready only"`
}

type healthOut struct {
	Status int
	Body   Health
}

type livenessOut struct{ Body Liveness }

type bridgeOut struct{ Body BridgeHealth }

// health registers /health and its kin. They take no credential: load balancers
// and orchestrators have none.
func (h *Handler) health(r *rest.Router) {
	tags := []string{"Health"}
	rest.Register(r, rest.Op{
		ID: "get-health", Method: http.MethodGet, Path: "/health", Public: true, Tags: tags,
		Summary: "How the service and its parts are", OwnErrors: map[int]reflect.Type{http.StatusServiceUnavailable: reflect.TypeFor[Health]()},
	},
		func(ctx context.Context, _ scope.Scope, _ *struct{}) (*healthOut, error) {
			health := h.Health(ctx)
			out := &healthOut{Status: http.StatusOK, Body: health}
			if health.Status == Unhealthy {
				out.Status = http.StatusServiceUnavailable
			}
			return out, nil
		})
	rest.Register(r, rest.Op{
		ID: "get-health-live", Method: http.MethodGet, Path: "/health/live", Public: true, Tags: tags,
		Summary: "Whether the process runs",
	},
		func(context.Context, scope.Scope, *struct{}) (*livenessOut, error) {
			return &livenessOut{Liveness{Status: "live"}}, nil
		})
	rest.Register(r, rest.Op{
		ID: "get-health-ready", Method: http.MethodGet, Path: "/health/ready", Public: true, Tags: tags,
		Summary: "Whether the service takes requests",
	},
		func(ctx context.Context, _ scope.Scope, _ *struct{}) (*livenessOut, error) {
			if r.Leaving() {
				return nil, fault.New(fault.Unavailable, "stopping", "this server is stopping").After(time.Second)
			}
			audit := h.auditHealth()
			if h.Probes.Ready != nil {
				if err := h.Probes.Ready(ctx); err != nil {
					return nil, fault.New(fault.Unavailable, "not_ready", "the service does not take requests now").With("audit", audit).Because(err).After(time.Second)
				}
			}
			return &livenessOut{Liveness{Status: "ready", Audit: &audit}}, nil
		})
	rest.Register(r, rest.Op{
		ID: "get-health-bridge", Method: http.MethodGet, Path: "/health/policy-bridge", Public: true, Tags: tags,
		Summary: "How the delivery of policies to bouncers goes",
	},
		func(ctx context.Context, _ scope.Scope, _ *struct{}) (*bridgeOut, error) {
			return &bridgeOut{h.bridgeHealth(ctx)}, nil
		})
}

// Health asks all parts how they are.
func (h *Handler) Health(ctx context.Context) Health {
	out := Health{Status: Healthy, Version: h.Version, Timestamp: h.Now().UTC(), UptimeSeconds: int64(h.Now().Sub(h.Started).Seconds())}
	c := &out.Components
	c.Database = DatabaseHealth{Status: "up"}
	if h.Probes.Database != nil {
		c.Database = h.Probes.Database(ctx)
	}
	c.Redis = RedisHealth{Status: "embedded"}
	if h.Probes.Redis != nil {
		c.Redis = h.Probes.Redis(ctx)
	}
	b := h.bridgeHealth(ctx)
	c.PolicyBridge = BridgeSummary{Status: b.Status, LastSync: b.LastSync, ConnectedClients: b.ConnectedClients}
	c.Audit = h.auditHealth()
	switch {
	case c.Database.Status != "up" || c.Audit.Refusing:
		out.Status = Unhealthy
	case c.Redis.Status == "degraded" || b.Status != Healthy || c.Audit.Status != "up":
		out.Status = Degraded
	}
	return out
}

func (h *Handler) auditHealth() AuditHealth {
	if h.Probes.Audit == nil {
		return AuditHealth{Status: "up", Posture: "required"}
	}
	return h.Probes.Audit()
}

func (h *Handler) bridgeHealth(ctx context.Context) BridgeHealth {
	if h.Probes.Bridge == nil {
		return BridgeHealth{Status: Healthy, SyncCompleted: true}
	}
	return h.Probes.Bridge(ctx)
}
