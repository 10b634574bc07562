package api

import (
	"context"
	"log/slog"
	"net/http"
	"net/netip"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/gatehouse-dev/gatehouse/internal/anomaly"
	"github.com/gatehouse-dev/gatehouse/internal/audit"
	"github.com/gatehouse-dev/gatehouse/internal/auth"
	"github.com/gatehouse-dev/gatehouse/internal/authzen"
	"github.com/gatehouse-dev/gatehouse/internal/bouncer"
	"github.com/gatehouse-dev/gatehouse/internal/bridge"
	"github.com/gatehouse-dev/gatehouse/internal/cache"
	"github.com/gatehouse-dev/gatehouse/internal/dashboard"
	"github.com/gatehouse-dev/gatehouse/internal/decision"
	"github.com/gatehouse-dev/gatehouse/internal/fault"
	"github.com/gatehouse-dev/gatehouse/internal/ide"
	"github.com/gatehouse-dev/gatehouse/internal/policy"
	"github.com/gatehouse-dev/gatehouse/internal/policycode"
	"github.com/gatehouse-dev/gatehouse/internal/replay"
	"github.com/gatehouse-dev/gatehouse/internal/resource"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
	"github.com/gatehouse-dev/gatehouse/internal/simulator"
	"github.com/gatehouse-dev/gatehouse/internal/tenant"
	"github.com/gatehouse-dev/gatehouse/internal/user"
)

// Server is the API. Its exported fields are what it depends on; package app
// fills them before Handler is called.
type Server struct {
	// Version is the build's version, as /health reports it.
	Version string
	// Now is the clock; NewID makes request ids (unique, not secret).
	Now   func() time.Time
	NewID func() string
	Log   *slog.Logger
	// Ticks is the clock that deadlines of connections are set from. It keeps the
	// monotonic reading, which Now may lack, so that a step of the wall clock ends
	// no connection; nil: Now.
	Ticks func() time.Time
	// Started is when the process began to serve.
	Started time.Time

	// BaseDomain is the deployment's domain, under which tenants have
	// subdomains; empty: none have.
	BaseDomain string
	// TrustedProxies may say for whom they speak (X-Forwarded-For and -Host).
	TrustedProxies []netip.Prefix
	// TenantByHost finds the tenant of a verified custom domain; nil: none.
	TenantByHost func(ctx context.Context, host string) (scope.TenantID, bool)

	// Authenticate turns a credential into a scope: (*auth.Service).Authenticate.
	Authenticate func(ctx context.Context, c Credential) (scope.Scope, Principal, error)
	// Count counts n against a key in a fixed window: (*cache.Cache).Count.
	Count func(ctx context.Context, tenant, key string, n int64, window time.Duration) (cache.Window, error)
	// Limits are the operator's request limits.
	Limits Limits

	// Panics is told of panics that were recovered.
	Panics *fault.Panics
	// Registry is what /metrics answers; Handler adds its own collectors.
	Registry *prometheus.Registry
	// OpenMetrics lets /metrics be read without a credential.
	OpenMetrics bool
	// Probes tell /health about the parts; see health.go.
	Probes Probes

	// DiskFull reports that the disk is full but for room that is held back for
	// decisions and sign-in: what else writes is refused. nil: it never is.
	DiskFull func() bool

	// Idempotency keeps first answers; see idempotency.go. A nil Store turns
	// Idempotency-Key off.
	Idempotency Idempotency

	// Decisions answers /decisions and OPA's query.
	Decisions *decision.Service
	answers   answers

	// Auth signs in and keeps keys; Users and Tenants keep who there is.
	Auth    *auth.Service
	Users   *user.Service
	Tenants *tenant.Service

	// Policies, Resources and Bouncers keep what is decided by, on and at.
	Policies  *policy.Service
	Resources *resource.Service
	Bouncers  *bouncer.Service
	// AuthZEN answers the AuthZEN Authorization API; PublicURL is where clients reach
	// this service, without a path.
	AuthZEN   *authzen.Service
	PublicURL string
	// Dashboard and Anomalies say what is going on.
	Dashboard *dashboard.Service
	Anomalies *anomaly.Service
	// PolicyCode takes controls from authors' repositories.
	PolicyCode *policycode.Service

	// Replays decides recorded decisions again.
	Replays *replay.Service

	// Simulator tries policies out.
	Simulator *simulator.Service

	// Bridge brings controls to bouncers; Audit keeps what happened.
	Bridge *bridge.Service
	Audit  *audit.DecisionLog

	// IDE is what editors and repositories ask.
	IDE     *ide.Service
	sockets sockets

	// Console answers what no operation does: the console and its assets.
	// Nil: 404.
	Console http.Handler
}

// Handler builds the API. It panics on a bad operation and returns an error
// for a bad configuration.
func (s *Server) Handler() (*Router, error) {
	r, err := newRouter(s)
	if err != nil {
		return nil, err
	}
	for _, segment := range s.segments() {
		segment(r)
	}
	if err := r.finish(); err != nil {
		return nil, err
	}
	return r, nil
}
