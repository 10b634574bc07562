package api

import (
	"net/http"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/access"
	"github.com/gatehouse-dev/gatehouse/internal/agent"
	"github.com/gatehouse-dev/gatehouse/internal/alert"
	"github.com/gatehouse-dev/gatehouse/internal/anomaly"
	"github.com/gatehouse-dev/gatehouse/internal/api/bridge"
	"github.com/gatehouse-dev/gatehouse/internal/api/connect"
	"github.com/gatehouse-dev/gatehouse/internal/api/controls"
	"github.com/gatehouse-dev/gatehouse/internal/api/decisions"
	"github.com/gatehouse-dev/gatehouse/internal/api/editors"
	"github.com/gatehouse-dev/gatehouse/internal/api/estate"
	"github.com/gatehouse-dev/gatehouse/internal/api/events"
	"github.com/gatehouse-dev/gatehouse/internal/api/identity"
	"github.com/gatehouse-dev/gatehouse/internal/api/insight"
	"github.com/gatehouse-dev/gatehouse/internal/api/oem"
	"github.com/gatehouse-dev/gatehouse/internal/api/simulate"
	"github.com/gatehouse-dev/gatehouse/internal/api/system"
	"github.com/gatehouse-dev/gatehouse/internal/audit"
	"github.com/gatehouse-dev/gatehouse/internal/auth"
	"github.com/gatehouse-dev/gatehouse/internal/authzen"
	"github.com/gatehouse-dev/gatehouse/internal/bouncer"
	bridges "github.com/gatehouse-dev/gatehouse/internal/bridge"
	"github.com/gatehouse-dev/gatehouse/internal/dashboard"
	"github.com/gatehouse-dev/gatehouse/internal/decision"
	"github.com/gatehouse-dev/gatehouse/internal/devdocs"
	"github.com/gatehouse-dev/gatehouse/internal/domain"
	"github.com/gatehouse-dev/gatehouse/internal/ide"
	"github.com/gatehouse-dev/gatehouse/internal/integration"
	"github.com/gatehouse-dev/gatehouse/internal/live"
	"github.com/gatehouse-dev/gatehouse/internal/metering"
	"github.com/gatehouse-dev/gatehouse/internal/notify"
	"github.com/gatehouse-dev/gatehouse/internal/pip"
	"github.com/gatehouse-dev/gatehouse/internal/policy"
	"github.com/gatehouse-dev/gatehouse/internal/policycode"
	"github.com/gatehouse-dev/gatehouse/internal/region"
	"github.com/gatehouse-dev/gatehouse/internal/replay"
	"github.com/gatehouse-dev/gatehouse/internal/resource"
	"github.com/gatehouse-dev/gatehouse/internal/rest"
	"github.com/gatehouse-dev/gatehouse/internal/scim"
	"github.com/gatehouse-dev/gatehouse/internal/signon"
	"github.com/gatehouse-dev/gatehouse/internal/simulator"
	"github.com/gatehouse-dev/gatehouse/internal/telemetry"
	"github.com/gatehouse-dev/gatehouse/internal/tenant"
	"github.com/gatehouse-dev/gatehouse/internal/user"
	"github.com/gatehouse-dev/gatehouse/internal/vendor"
	"github.com/gatehouse-dev/gatehouse/internal/webhook"
)

// Config is the configuration and the dependencies of the API.
type Config struct {
	// Kit is shared by all operations. New sets Document, Areas, Canonical, IsAPI and PublicURL.
	Kit rest.Config
	// PublicURL is the address at which clients reach this service, without a path.
	PublicURL string
	// Started is when the process began to serve.
	Started time.Time
	// OpenMetrics lets /metrics be read without a credential.
	OpenMetrics bool
	// Probes report the state of the parts to /health.
	Probes system.Probes

	Access       *access.Service
	Agents       *agent.Service
	Anomalies    *anomaly.Service
	Audit        *audit.DecisionLog
	Auth         *auth.Service
	AuthZEN      *authzen.Service
	Bouncers     *bouncer.Service
	Bridge       *bridges.Service
	Dashboard    *dashboard.Service
	DataSources  *pip.Service
	Decisions    *decision.Service
	Domains      *domain.Service
	IDE          *ide.Service
	Live         *live.Service
	Metering     *metering.Service
	Policies     *policy.Service
	PolicyCode   *policycode.Service
	Replays      *replay.Service
	Resources    *resource.Service
	SCIM         *scim.Service
	SCIMTokens   *scim.Tokens
	SignOn       *signon.Service
	Simulator    *simulator.Service
	Telemetry    *telemetry.Service
	Integrations *integration.Service
	Tenants      *tenant.Service
	Users        *user.Service
	Alerts       *alert.Service
	Channels     *notify.Service
	Vendors      *vendor.Service
	Deployments  *region.Service
	Webhooks     *webhook.Service
}

// API serves all operations.
type API struct {
	*rest.Router
	editors *editors.Handler
}

// New builds the API. It panics on a bad operation and returns an error for a bad
// configuration.
func New(c Config) (*API, error) {
	c.Kit.Areas, c.Kit.Canonical, c.Kit.IsAPI, c.Kit.PublicURL = areas(), canonical, isAPI, c.PublicURL
	var err error
	if c.Kit.Document, err = document(); err != nil {
		return nil, err
	}
	r, err := rest.New(c.Kit)
	if err != nil {
		return nil, err
	}
	portal := devdocs.New(Languages, c.PublicURL, func(lang string) []byte { return r.Edition("", lang).Body })
	a := &API{Router: r, editors: &editors.Handler{IDE: c.IDE, Authenticate: c.Kit.Authenticate, Now: c.Kit.Now, Log: c.Kit.Log, Panics: c.Kit.Panics}}
	for _, room := range c.rooms(a.editors, portal) {
		room.Mount(r)
	}
	return a, r.Finish()
}

// CloseSockets ends the editors' sockets, which a shutdown of the server does not close.
func (a *API) CloseSockets() { a.editors.CloseSockets() }

// room is a package that serves an area of the API.
type room interface{ Mount(r *rest.Router) }

// rooms returns the rooms in the order of docs/permissions.md.
func (c Config) rooms(e *editors.Handler, portal http.Handler) []room {
	return []room{
		&identity.Handler{Auth: c.Auth, Users: c.Users, Tenants: c.Tenants, Metering: c.Metering, Domains: c.Domains, SignOn: c.SignOn, Vendors: c.Vendors, Deployments: c.Deployments, SCIM: c.SCIM, SCIMTokens: c.SCIMTokens},
		&oem.Handler{Vendors: c.Vendors, Languages: Languages},
		&controls.Handler{Policies: c.Policies, PolicyCode: c.PolicyCode, Resources: c.Resources, Replays: c.Replays},
		&estate.Handler{Resources: c.Resources, Bouncers: c.Bouncers, Tenants: c.Tenants, Bridge: c.Bridge},
		e,
		&decisions.Handler{Access: c.Access, Decisions: c.Decisions, AuthZEN: c.AuthZEN, PublicURL: c.PublicURL, Audit: c.Audit, Replays: c.Replays},
		&simulate.Handler{Simulator: c.Simulator},
		&insight.Handler{Audit: c.Audit, Replays: c.Replays, Dashboard: c.Dashboard, Anomalies: c.Anomalies, Now: c.Kit.Now},
		&events.Handler{Live: c.Live, Authenticate: c.Kit.Authenticate, Log: c.Kit.Log, Ticks: c.Kit.Ticks},
		&bridge.Handler{Bridge: c.Bridge},
		&connect.Handler{Sources: c.DataSources, Agents: c.Agents, Alerts: c.Alerts, Channels: c.Channels, Webhooks: c.Webhooks, Telemetry: c.Telemetry, Integrations: c.Integrations},
		&system.Handler{Version: c.Kit.Version, Now: c.Kit.Now, Started: c.Started, Probes: c.Probes, OpenMetrics: c.OpenMetrics, Languages: Languages, Portal: portal},
	}
}
