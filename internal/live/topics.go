package live

import (
	"slices"

	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

// The topics that a stream tells of.
const (
	Decisions    = "decisions"
	Policies     = "policies"
	Libraries    = "libraries"
	Resources    = "resources"
	Bouncers     = "bouncers"
	Revisions    = "revisions"
	Replays      = "replays"
	Deployments  = "deployments"
	Users        = "users"
	APIKeys      = "api_keys"
	Tenant       = "tenant"
	Anomalies    = "anomalies"
	Repositories = "repositories"
	Scenarios    = "scenarios"
	Webhooks     = "webhooks"
	Agents       = "agents"
	// DataSources are the connections and their syncs.
	DataSources = "data_sources"
	// Notifications are the channels and what is delivered to them.
	Notifications = "notifications"
	// Integrations are the systems that are called.
	Integrations = "integrations"
	// Telemetry is its configuration, what was sent, and the license.
	Telemetry = "telemetry"
)

// reach is to which credentials that are bound to one environment a topic is shown.
type reach int

const (
	ofEnvironment reach = iota // those of the change's environment
	ofTenant                   // to none
	ofSandbox                  // those of sandbox
)

// topic says who may know of its changes: whoever holds one of needs, as for the
// operations that read what changed.
type topic struct {
	needs []scope.Permission
	reach reach
}

var topics = map[string]topic{
	Decisions:     {[]scope.Permission{"dashboard:read", "audit:read"}, ofEnvironment},
	Policies:      {[]scope.Permission{"policies:read"}, ofEnvironment},
	Libraries:     {[]scope.Permission{"policies:read"}, ofEnvironment},
	Resources:     {[]scope.Permission{"resources:read"}, ofEnvironment},
	Bouncers:      {[]scope.Permission{"bouncers:read"}, ofEnvironment},
	Revisions:     {[]scope.Permission{"bouncers:read"}, ofEnvironment},
	Replays:       {[]scope.Permission{"policies:write"}, ofEnvironment},
	Deployments:   {[]scope.Permission{"editor:read", "policies:read"}, ofSandbox},
	Users:         {[]scope.Permission{"users:read"}, ofTenant},
	APIKeys:       {[]scope.Permission{"tenants:read"}, ofTenant},
	Tenant:        {[]scope.Permission{"tenants:read"}, ofTenant},
	Anomalies:     {[]scope.Permission{"audit:read"}, ofEnvironment},
	Repositories:  {[]scope.Permission{"editor:read"}, ofSandbox},
	Scenarios:     {[]scope.Permission{"simulator:read"}, ofEnvironment},
	Webhooks:      {[]scope.Permission{"webhooks:read"}, ofTenant},
	Agents:        {[]scope.Permission{"agents:read"}, ofTenant},
	DataSources:   {[]scope.Permission{"pip:read"}, ofTenant},
	Notifications: {[]scope.Permission{"notifications:read"}, ofEnvironment},
	Integrations:  {[]scope.Permission{"integrations:read"}, ofTenant},
	Telemetry:     {[]scope.Permission{"telemetry:read"}, ofTenant},
}

// objects are the kinds of object in the administrative log, and the topic that
// their changes belong to. A policy that is a library is of Libraries.
var objects = map[string]string{
	"policy":               Policies,
	"resource":             Resources,
	"bouncer":              Bouncers,
	"environment":          Bouncers,
	"replay":               Replays,
	"deployment":           Deployments,
	"repository":           Repositories,
	"user":                 Users,
	"group":                Users,
	"key":                  APIKeys,
	"tenant":               Tenant,
	"domain":               Tenant,
	"billing":              Tenant,
	"sign_on":              Tenant,
	"directory":            Tenant,
	"vendor":               Tenant,
	"simulation_scenario":  Scenarios,
	"webhook":              Webhooks,
	"agent":                Agents,
	"pip_connection":       DataSources,
	"notification_channel": Notifications,
	"alert_rule":           Notifications,
	"integration":          Integrations,
	"telemetry":            Telemetry,
	"anomaly":              Anomalies,
	"access_request":       Resources,
}

// quiet are the types of entries that change nothing that a topic shows.
var quiet = []string{"LOGIN", "LOGIN_FAILED", "LOGOUT", "SESSION_ENDED", "POLICY_SIMULATION_RUN"}

// Change is what a client is told of. It is comparable: equal changes that wait for
// a client are one.
type Change struct {
	Topic string
	// Environment is where it happened; scope.AnyEnv: it is of none, or of both.
	Environment scope.Env
	// ID is the object that changed; empty: the list did.
	ID string
}

// seenIn reports whether a scope may know of the change and asked for its environment.
func (c Change) seenIn(sc scope.Scope) bool {
	t := topics[c.Topic]
	if !slices.ContainsFunc(t.needs, sc.Permissions.Has) {
		return false
	}
	if sc.EnvBound && (t.reach == ofTenant || t.reach == ofSandbox && sc.Env != scope.Sandbox) {
		return false
	}
	return t.reach != ofEnvironment || c.Environment == scope.AnyEnv || sc.Sees(c.Environment)
}

// shownTo is the change as a scope may know it. What is of no one environment may be
// of the other one, so a bound credential is not told which object it is.
func (c Change) shownTo(sc scope.Scope) Change {
	if sc.EnvBound && (c.Environment == scope.AnyEnv || c.Topic == Replays) {
		c.ID = ""
	}
	return c
}

// seesAny reports whether a scope may know of any topic.
func seesAny(sc scope.Scope) bool {
	for name := range topics {
		if (Change{Topic: name}).seenIn(sc) {
			return true
		}
	}
	return false
}

// changes are what an entry of the administrative log tells of. library says that
// the policy that it is about is one.
func (e entry) changes(library bool) []Change {
	name := objects[e.Object]
	if name == "" || slices.Contains(quiet, e.Type) {
		return nil
	}
	if library {
		name = Libraries
	}
	envs := []scope.Env{scope.Env(e.Environment)}
	switch {
	case topics[name].reach != ofEnvironment:
		envs[0] = scope.AnyEnv
	case e.Type == "POLICY_PROMOTED": // it came from the other one
		envs = []scope.Env{scope.Sandbox, scope.Production}
	}
	out := make([]Change, 0, len(envs))
	for _, env := range envs {
		out = append(out, Change{Topic: name, Environment: env, ID: e.ObjectID})
	}
	return out
}
