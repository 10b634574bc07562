package api

import (
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/anomaly"
	"github.com/gatehouse-dev/gatehouse/internal/audit"
	"github.com/gatehouse-dev/gatehouse/internal/auth"
	"github.com/gatehouse-dev/gatehouse/internal/authzen"
	"github.com/gatehouse-dev/gatehouse/internal/bouncer"
	"github.com/gatehouse-dev/gatehouse/internal/bridge"
	"github.com/gatehouse-dev/gatehouse/internal/dashboard"
	"github.com/gatehouse-dev/gatehouse/internal/decision"
	"github.com/gatehouse-dev/gatehouse/internal/ide"
	"github.com/gatehouse-dev/gatehouse/internal/policy"
	"github.com/gatehouse-dev/gatehouse/internal/policycode"
	"github.com/gatehouse-dev/gatehouse/internal/replay"
	"github.com/gatehouse-dev/gatehouse/internal/resource"
	"github.com/gatehouse-dev/gatehouse/internal/rest"
	"github.com/gatehouse-dev/gatehouse/internal/simulator"
	"github.com/gatehouse-dev/gatehouse/internal/tenant"
	"github.com/gatehouse-dev/gatehouse/internal/user"
)

// Server is the API. Package app fills its exported fields before Handler is
// called. Handler itself sets what the kit must know of this API: Document, Areas,
// Canonical and IsAPI.
type Server struct {
	rest.Config

	// Started is when the process began to serve.
	Started time.Time
	// OpenMetrics lets /metrics be read without a credential.
	OpenMetrics bool
	// Probes tell /health about the parts; see health.go.
	Probes Probes

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
}

// Handler builds the API. It panics on a bad operation and returns an error for a
// bad configuration.
func (s *Server) Handler() (*rest.Router, error) {
	c := s.Config
	c.Areas, c.Canonical, c.IsAPI = areas(), canonical, isAPI
	var err error
	if c.Document, err = document(); err != nil {
		return nil, err
	}
	r, err := rest.New(c)
	if err != nil {
		return nil, err
	}
	for _, segment := range s.segments() {
		segment(r)
	}
	if err := r.Finish(); err != nil {
		return nil, err
	}
	return r, nil
}
