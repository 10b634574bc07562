package app

import (
	"context"
	"net/http"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/api"
	"github.com/gatehouse-dev/gatehouse/internal/api/system"
	"github.com/gatehouse-dev/gatehouse/internal/audit"
	"github.com/gatehouse-dev/gatehouse/internal/auth"
	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/fault"
	"github.com/gatehouse-dev/gatehouse/internal/rest"
	"github.com/gatehouse-dev/gatehouse/internal/scim"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
	"github.com/gatehouse-dev/gatehouse/internal/user"
)

// apiConfig returns the configuration of the API.
func (p *parts) apiConfig(version string, console http.Handler) api.Config {
	p.ide.Version, p.telemetry.Version = version, version
	proxies, _ := p.cfg.proxies() // checked by check
	return api.Config{
		Kit: rest.Config{
			Version: version, Now: p.now, Ticks: ticks, NewID: newID, Log: p.log, Hosts: hosts(p.cfg, p.routes),
			Authenticate: authenticateWith(p.auth), Count: p.cache.Count, Limits: p.limits(), TrustedProxies: proxies,
			Registry: p.registry, Panics: p.panics, Console: console,
			Idempotency: rest.Idempotency{Cluster: p.stores, Seal: p.box.Seal, Open: p.box.Open, Admit: user.RequireActor, Outcome: p.outcome},
			Trace:       p.tracing.Hook(),
			DiskFull:    p.keeper.reserve.InUse, Meter: p.metering.Calls.Meter,
		},
		Started: p.now(), Probes: p.probes(), OpenMetrics: p.cfg.OpenMetrics || p.cfg.Demo,
		Decisions: p.decisions, Auth: p.auth, Users: p.users, Tenants: p.tenants, Metering: p.metering, Domains: p.domains, SignOn: p.signOn, Vendors: p.vendors, Deployments: p.deployments,
		SCIM: p.scim, SCIMTokens: &scim.Tokens{Stores: p.stores, Auth: p.auth, Now: p.now, NewID: newID},
		Agents: p.agents, Alerts: p.alerts, Webhooks: p.webhooks, Channels: p.channels, Telemetry: p.telemetry, DataSources: p.dataSources, Integrations: p.integrations, Access: p.access,
		Policies: p.policies, Resources: p.resources, Bouncers: p.bouncers, PolicyCode: p.policyCode, Bridge: p.bridge, Audit: p.audit,
		Replays: p.replays, Simulator: p.simulator, IDE: p.ide, Live: p.live, AuthZEN: p.authzen, PublicURL: p.cfg.url(), Dashboard: p.dashboard, Anomalies: p.anomalies,
	}
}

// authenticateWith adapts the auth service to the API.
func authenticateWith(s *auth.Service) func(context.Context, rest.Credential) (scope.Scope, rest.Principal, error) {
	return func(ctx context.Context, c rest.Credential) (scope.Scope, rest.Principal, error) {
		sc, who, err := s.Authenticate(ctx, auth.Credential(c))
		return sc, rest.Principal(who), err
	}
}

func (p *parts) limits() rest.Limits {
	all, _ := parseLimit("", p.cfg.RateLimit) // checked by check
	decisions, _ := parseLimit("", p.cfg.DecisionLimit)
	return rest.Limits{Off: all == 0, DecisionsOff: decisions == 0, All: max(all, 0), Decisions: max(decisions, 0)}
}

func (p *parts) probes() system.Probes {
	return system.Probes{
		Database: func(ctx context.Context) system.DatabaseHealth { return databaseHealth(p.stores.Health(ctx)) },
		Regions: func(ctx context.Context) (out []system.RegionHealth) {
			health := p.stores.RegionHealth(ctx)
			for _, region := range p.stores.Regions() {
				out = append(out, system.RegionHealth{Region: region, DatabaseHealth: databaseHealth(health[region])})
			}
			return out
		},
		Redis:  func(ctx context.Context) system.RedisHealth { return system.RedisHealth(p.cache.Health(ctx)) },
		Bridge: func(ctx context.Context) system.BridgeHealth { return system.BridgeHealth(p.bridge.Health(ctx)) },
		Audit:  p.keeper.health,
		Ready:  p.ready,
	}
}

func databaseHealth(h db.Health) system.DatabaseHealth {
	return system.DatabaseHealth{Status: h.Status, LatencyMS: h.LatencyMS, Connections: h.Connections}
}

// readyPatience is how long readiness waits for a store. A probe that hangs is useless.
const readyPatience = 500 * time.Millisecond

// ready returns why the service cannot serve requests at its usual speed: a store is down, the
// start is not complete, or the decision log is required and cannot be written.
func (p *parts) ready(ctx context.Context) error {
	if !p.warmed.Load() {
		return fault.ErrStarting
	}
	if p.keeper.health().Refusing {
		return errUnlogged
	}
	ctx, cancel := context.WithTimeout(ctx, readyPatience)
	defer cancel()
	_, err := p.stores.System().Revision(ctx, "tenants")
	return err
}

// outcome finds in the audit log what a request created before its process died.
func (p *parts) outcome(ctx context.Context, sc scope.Scope, requestID string, since time.Time) (string, bool, error) {
	f := audit.EventFilter{Start: since, Limit: 1000}
	for {
		page, err := p.audit.Events(ctx, sc, f)
		if err != nil {
			return "", false, err
		}
		for _, e := range page.Events {
			if e.RequestID == requestID {
				return e.ObjectID, true, nil
			}
		}
		if f.Cursor = page.NextCursor; f.Cursor == "" {
			return "", false, nil
		}
	}
}
