package app

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"net/netip"
	"strconv"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/access"
	"github.com/gatehouse-dev/gatehouse/internal/agent"
	"github.com/gatehouse-dev/gatehouse/internal/alert"
	"github.com/gatehouse-dev/gatehouse/internal/api/system"
	"github.com/gatehouse-dev/gatehouse/internal/audit/stats"
	"github.com/gatehouse-dev/gatehouse/internal/auth"
	"github.com/gatehouse-dev/gatehouse/internal/bouncer"
	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/fault"
	"github.com/gatehouse-dev/gatehouse/internal/ide"
	"github.com/gatehouse-dev/gatehouse/internal/integration"
	"github.com/gatehouse-dev/gatehouse/internal/notify"
	"github.com/gatehouse-dev/gatehouse/internal/outbound"
	"github.com/gatehouse-dev/gatehouse/internal/pip"
	"github.com/gatehouse-dev/gatehouse/internal/pip/source"
	"github.com/gatehouse-dev/gatehouse/internal/policy"
	"github.com/gatehouse-dev/gatehouse/internal/rego/target"
	"github.com/gatehouse-dev/gatehouse/internal/resource"
	"github.com/gatehouse-dev/gatehouse/internal/scim"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
	"github.com/gatehouse-dev/gatehouse/internal/signon"
	"github.com/gatehouse-dev/gatehouse/internal/telemetry"
	"github.com/gatehouse-dev/gatehouse/internal/tenant"
	"github.com/gatehouse-dev/gatehouse/internal/user"
	"github.com/gatehouse-dev/gatehouse/internal/webhook"
)

// setUpIntegrations sets up the calls to tenants' own systems.
func setUpIntegrations(p *parts) error {
	allow, err := p.cfg.targets()
	if err != nil {
		return err
	}
	// All calls use one client: its limits apply to each call, and it keeps connections
	// by host.
	target := outbound.New(outbound.Config{AllowCIDRs: allow, PlainToAllowed: true})
	p.closers.add("receivers", time.Second, func(context.Context) error { target.Close(); return nil })
	box, err := p.box.For("webhooks")
	if err != nil {
		return err
	}
	p.webhooks = &webhook.Service{Stores: p.stores, Now: p.now, Random: rand.Reader, Box: box, Target: target}
	if box, err = p.box.For("sign-on"); err != nil {
		return err
	}
	p.signOn = &signon.Service{
		Stores: p.stores, Auth: p.auth, Users: p.users, Box: box, Target: target, Now: p.now, Random: rand.Reader, Count: p.cache.Count, URL: p.cfg.url(),
		Provisioned: scim.BySubject, Managed: scim.Manages,
	}
	p.scim = scim.New(scim.Service{Stores: p.stores, Users: p.users, Now: p.now, NewID: newID, URL: p.cfg.url()})
	active := func(ctx context.Context, t scope.TenantID) (bool, error) {
		facts, err := p.tenants.Facts(ctx, t)
		return err == nil && facts.Status == tenant.Active, err
	}
	p.agents = &agent.Service{Stores: p.stores, Now: p.now, PolicyExists: policy.Exists, Subjects: user.Revision, Auth: p.auth}
	p.sinks = append(p.sinks, webhook.Sink{})
	deliverer := &webhook.Deliverer{Service: p.webhooks, Holder: newID(), Active: active, Poll: time.Minute, Logger: p.log}
	p.task("webhooks", deliverer.Run)
	p.hourly("old deliveries of webhooks", p.webhooks.Forget)
	return errors.Join(startNotifications(p, target, active), startIntegrations(p, target, active), startTelemetry(p, target, active), startDataSources(p, allow, active))
}

// startNotifications sets up the channels through which people receive alerts.
func startNotifications(p *parts, target *outbound.Client, active func(context.Context, scope.TenantID) (bool, error)) error {
	box, err := p.box.For("notifications")
	if err != nil {
		return err
	}
	outbox := notify.Outbox{Root: p.cfg.url()}
	p.channels = &notify.Service{Stores: p.stores, Now: p.now, Random: rand.Reader, Box: box, Target: target, Outbox: outbox}
	p.sinks = append(p.sinks, notify.Sink{Outbox: outbox})
	startAccess(p, outbox)
	notifier := &notify.Deliverer{Service: p.channels, Holder: newID(), Active: active, Poll: time.Minute, Logger: p.log}
	p.task("notifications", notifier.Run)
	p.alerts = &alert.Service{Stores: p.stores, Now: p.now, Outbox: outbox, Exists: existsIn}
	evaluator := &alert.Evaluator{Service: p.alerts, Active: active, Poll: 10 * time.Minute, Logger: p.log}
	lead(p, "alert rules", 30*time.Second, newID(), evaluator.Run)
	p.hourly("old notifications", p.channels.Forget)
	return nil
}

// startDataSources sets up the syncs of data sources. Their answers may be larger and slower than
// those of other receivers.
func startDataSources(p *parts, allow []netip.Prefix, active func(context.Context, scope.TenantID) (bool, error)) error {
	box, err := p.box.For("data sources")
	if err != nil {
		return err
	}
	target := outbound.New(outbound.Config{AllowCIDRs: allow, PlainToAllowed: true, Timeout: source.CallTime, MaxReply: source.MaxBytes})
	p.closers.add("data sources", time.Second, func(context.Context) error { target.Close(); return nil })
	p.dataSources = &pip.Service{Stores: p.stores, Now: p.now, Box: box, Target: target, Logger: p.log, Panics: p.panics}
	p.dataSources.Repository = func(ctx context.Context, t scope.TenantID, f source.File) (source.Content, error) {
		text, commit, err := p.ide.ReadFile(ctx, t, ide.File(f))
		return source.Content{Commit: commit, Unchanged: f.Have != "" && commit == f.Have, Text: text}, err
	}
	ages := &pip.Ages{Now: p.now}
	p.registry.MustRegister(sourceAges{ages})
	syncer := &pip.Syncer{Service: p.dataSources, Holder: newID(), Active: active, Poll: time.Minute, Ages: ages}
	p.task("data sources", syncer.Run)
	return nil
}

// startIntegrations sets up tenants' systems that receive the audit or are called by actions.
func startIntegrations(p *parts, target *outbound.Client, active func(context.Context, scope.TenantID) (bool, error)) error {
	box, err := p.box.For("integrations")
	if err != nil {
		return err
	}
	p.integrations = &integration.Service{Stores: p.stores, Now: p.now, Random: rand.Reader, Box: box, Target: target, URL: p.cfg.url()}
	p.integrations.MayDecide = func(ctx context.Context, sc scope.Scope, request int64, by string) error {
		return p.access.MayDecide(ctx, sc.Tenant, request, by)
	}
	p.integrations.Decide = func(ctx context.Context, tx *db.Tx, sc scope.Scope, request int64, v integration.Verdict) error {
		return p.access.DecideBy(ctx, tx, sc, request, access.Verdict(v))
	}
	p.integrations.Grants, p.integrations.RequestLock = bridgeGrants{p.access}, access.Lock
	p.integrations.Bundles = bundles{p}
	p.access.Ended = supersede(p)
	forwarder := &integration.Forwarder{Service: p.integrations, Holder: newID(), Active: active, Poll: time.Minute, Logger: p.log}
	p.task("integrations", forwarder.Run)
	p.hourly("runs of integrations", p.integrations.TidyRuns)
	return nil
}

// bundles provides the bundles of bouncers to integrations.
type bundles struct{ p *parts }

// Bundle implements integration.Bundles. The bridge is set up after the integrations.
func (b bundles) Bundle(ctx context.Context, tenant scope.TenantID, id int64) (integration.Bundle, error) {
	c, err := b.p.bridge.Copy(ctx, tenant, id)
	return integration.Bundle(c), err
}

// Environment implements integration.Bundles.
func (b bundles) Environment(ctx context.Context, tx *db.Tx, id int64) (scope.Env, error) {
	return bouncer.EnvironmentOf(ctx, tx, id)
}

// existsIn reports whether a resource, control or bouncer with an id exists in an environment.
func existsIn(ctx context.Context, tx *db.Tx, env scope.Env, kind string, id int64) (bool, error) {
	of := map[string]func(context.Context, *db.Tx, int64) (scope.Env, error){
		"resource": resource.EnvironmentOf, "control": policy.EnvironmentOf, "bouncer": bouncer.EnvironmentOf,
	}[kind]
	in, err := of(ctx, tx, id)
	if fault.Is(err, fault.NotFound) {
		return false, nil
	}
	return err == nil && in == env, err
}

// startTelemetry sets up the reports to license servers, and the checks that use their answers.
func startTelemetry(p *parts, target *outbound.Client, active func(context.Context, scope.TenantID) (bool, error)) error {
	box, err := p.box.For("telemetry")
	if err != nil {
		return err
	}
	health := &system.Handler{Now: p.now, Started: p.now(), Probes: p.probes()}
	p.telemetry = &telemetry.Service{
		Stores: p.stores, Now: p.now, NewID: newID, Box: box, Target: target, Active: active,
		Health: func(ctx context.Context) string { return health.Health(ctx).Status },
		Totals: func(ctx context.Context, sc scope.Scope, from, to time.Time) (stats.Rollup, error) {
			p.audit.WaitShipped(ctx)
			return p.audit.Totals(ctx, sc, stats.Day, from, to)
		},
	}
	p.policies.MayPromote, p.policies.MayTest = p.telemetry.MayPromote, p.telemetry.MayTest
	p.tenants.MayEnforce = p.telemetry.MayPromote
	p.hourly("wake-ups of telemetry", p.telemetry.Wake)
	return nil
}

// startAccess sets up requests for access.
func startAccess(p *parts, outbox notify.Outbox) {
	p.access = &access.Service{Stores: p.stores, Now: p.now, NewID: newID, Outbox: outbox, Resource: askedResource(p), Person: personNamed(p), Agent: agentExists, Filed: queueRequest, Broken: queueGrant}
	p.users.Withdraw, p.resources.Withdraw, p.agents.Withdraw = p.access.Withdraw, p.access.WithdrawOf, p.access.WithdrawSubject
	p.hourly("ends of grants", func(ctx context.Context, t scope.TenantID) error {
		return p.access.Expire(ctx, auth.SystemScope(t, "access", ""))
	})
	p.hourly("old requests for access", p.access.Forget)
}

// requested is the message to an approval system about a request for access.
type requested struct {
	ID          int64     `json:"access_request_id"`
	Environment scope.Env `json:"environment"`
	Subject     string    `json:"subject_id"`
	Action      string    `json:"action"`
	Resource    struct {
		ID   int64  `json:"id"`
		Name string `json:"name"`
		Type string `json:"type"`
	} `json:"resource"`
	Reason      string `json:"reason"`
	Duration    *int64 `json:"duration_seconds"`
	RequestedBy string `json:"requested_by"`
	// The members of a grant.
	Status    string     `json:"status,omitempty"`
	ExpiresAt *time.Time `json:"expires_at,omitempty"`
	EndedBy   *string    `json:"ended_by,omitempty"`
}

// messageOf returns the message to a system about a request for access or a grant.
func messageOf(r access.Request) (integration.Message, error) {
	q := requested{ID: r.ID, Environment: r.Environment, Subject: r.SubjectID, Action: r.Action, Reason: r.Reason, Duration: r.Duration, RequestedBy: r.RequestedBy, ExpiresAt: r.ExpiresAt, EndedBy: r.EndedBy}
	if r.ExpiresAt != nil {
		q.Status = r.Status
	}
	q.Resource.ID, q.Resource.Name, q.Resource.Type = r.ResourceID, r.ResourceName, r.ResourceType
	data, err := json.Marshal(q)
	return integration.Message{
		EventID: "acc_" + newID(), At: r.CreatedAt, Data: data,
		Cause: integration.Cause{RequestID: r.ID, Summary: r.SubjectID + ": " + r.Action + " " + r.ResourceName},
	}, fault.Wrap(err, "write a request for access")
}

// queueRequest queues a request for access for the approval systems.
func queueRequest(ctx context.Context, tx *db.Tx, r access.Request) error {
	m, err := messageOf(r)
	if err != nil {
		return err
	}
	return integration.QueueRequest(ctx, tx, r.Environment, m)
}

// supersede returns a function that ends the runs of approval systems for requests that need no
// decision any more.
func supersede(p *parts) func(ctx context.Context, tx *db.Tx, t scope.TenantID, ended ...access.Request) error {
	return func(ctx context.Context, tx *db.Tx, t scope.TenantID, ended ...access.Request) error {
		why := map[int64]string{}
		for _, r := range ended {
			why[r.ID] = "the request for access is " + r.Status
		}
		return p.integrations.Supersede(ctx, tx, t, why)
	}
}

// queueGrant queues a message to the break-glass systems that a grant began or ended.
func queueGrant(ctx context.Context, tx *db.Tx, r access.Request, ended bool) error {
	m, err := messageOf(r)
	if err != nil {
		return err
	}
	if m.At = *r.StartsAt; ended {
		m.At = *r.EndedAt
	}
	return integration.QueueGrant(ctx, tx, r.Environment, ended, m)
}

// bridgeGrants opens and ends grants for break-glass systems.
type bridgeGrants struct{ *access.Service }

// OpenGrant implements integration.Grants.
func (g bridgeGrants) OpenGrant(ctx context.Context, sc scope.Scope, m integration.BridgeMessage, longest int64, once func(*db.Tx) error) (integration.BridgeResult, error) {
	o := access.Opening{By: m.By, Longest: longest}
	o.Subject.Type, o.Subject.ID, o.Action.Name, o.Resource.ID, o.Reason, o.Duration = m.Subject.Type, m.Subject.ID, m.Action.Name, m.Resource.ID, m.Reason, &m.Duration
	r, err := g.Open(ctx, sc, o, once)
	return integration.BridgeResult{RequestID: r.ID, Status: r.Status, ExpiresAt: r.ExpiresAt}, err
}

// EndGrant implements integration.Grants.
func (g bridgeGrants) EndGrant(ctx context.Context, sc scope.Scope, m integration.BridgeMessage, once func(*db.Tx) error) (integration.BridgeResult, error) {
	r, err := g.EndBy(ctx, sc, m.RequestID, m.By, m.Reason, once)
	return integration.BridgeResult{RequestID: r.ID, Status: r.Status, ExpiresAt: r.ExpiresAt}, err
}

// askedResource returns a function that finds the resource that a request for access names.
func askedResource(p *parts) func(ctx context.Context, t scope.TenantID, env scope.Env, name string) (access.RequestedResource, error) {
	return func(ctx context.Context, t scope.TenantID, env scope.Env, name string) (access.RequestedResource, error) {
		set, err := p.snapshots.Get(ctx, t, env)
		if err != nil {
			return access.RequestedResource{}, err
		}
		var found *target.Resource
		if id, err := strconv.ParseInt(name, 10, 64); err == nil {
			found = set.Resource(id)
		}
		if found == nil {
			for _, r := range set.Resources() {
				if r.Name != name {
					continue
				}
				if found != nil {
					return access.RequestedResource{}, fault.Invalidf("/resource/id", "several resources have this name: send the id")
				}
				found = &r
			}
		}
		if found == nil {
			return access.RequestedResource{}, fault.NotFoundf("no such resource")
		}
		return access.RequestedResource{ID: found.ID, Name: found.Name, Type: found.Type, Requestable: set.Requestable(found)}, nil
	}
}

// agentExists returns NotFound for an AI agent that was removed or is inactive.
func agentExists(ctx context.Context, tx *db.Tx, subject string) error {
	_, err := agent.Holder(ctx, tx, subject)
	return err
}

// personNamed returns a function that finds the person whom a subject of decisions names. It
// returns their id, and the spelling of the account; "" for nobody.
func personNamed(p *parts) func(ctx context.Context, t scope.TenantID, subject string) (id, spelling string, err error) {
	return func(ctx context.Context, t scope.TenantID, subject string) (id, spelling string, err error) {
		u, err := p.users.Lookup(ctx, auth.SystemScope(t, "access", ""), subject)
		if fault.Is(err, fault.NotFound) {
			return "", "", nil
		}
		for _, own := range []string{u.ID, u.Username, u.Email} {
			if user.Fold(own) == user.Fold(subject) {
				spelling = own
			}
		}
		return u.ID, spelling, err
	}
}
