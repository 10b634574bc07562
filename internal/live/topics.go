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

// reach says which credentials that are bound to one environment may see a topic.
type reach int

const (
	ofEnvironment reach = iota // credentials for the environment of the change
	ofTenant                   // no bound credential
	ofSandbox                  // credentials for sandbox
)

// topic says who may see its changes: credentials with one of the permissions in needs, as for the
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

// ignoredEvents are the types of entries that change nothing that a topic shows.
var ignoredEvents = []string{"LOGIN", "LOGIN_FAILED", "LOGOUT", "SESSION_ENDED", "POLICY_SIMULATION_RUN"}

// Change identifies what changed. It is comparable, so that equal pending changes are sent once.
type Change struct {
	Topic string
	// Environment is the environment of the change; scope.AnyEnv: none, or both.
	Environment scope.Env
	// ID is the object that changed; empty: the list changed.
	ID string
}

// seenIn reports whether a scope may see the change and includes its environment.
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

// shownTo returns the change as a scope may see it. A change without an environment may concern the
// other one, so a credential that is bound to one does not see the object's id.
func (c Change) shownTo(sc scope.Scope) Change {
	if sc.EnvBound && (c.Environment == scope.AnyEnv || c.Topic == Replays) {
		c.ID = ""
	}
	return c
}

// seesAny reports whether a scope may see any topic.
func seesAny(sc scope.Scope) bool {
	for name := range topics {
		if (Change{Topic: name}).seenIn(sc) {
			return true
		}
	}
	return false
}

// changes returns the changes that an entry of the administrative log stands for. library is true
// if the entry is about a policy that is a library.
func (e entry) changes(library bool) []Change {
	name := objects[e.Object]
	if name == "" || slices.Contains(ignoredEvents, e.Type) {
		return nil
	}
	if library {
		name = Libraries
	}
	envs := []scope.Env{scope.Env(e.Environment)}
	switch {
	case topics[name].reach != ofEnvironment:
		envs[0] = scope.AnyEnv
	case e.Type == "POLICY_PROMOTED": // it was promoted from the other environment
		envs = []scope.Env{scope.Sandbox, scope.Production}
	}
	out := make([]Change, 0, len(envs))
	for _, env := range envs {
		out = append(out, Change{Topic: name, Environment: env, ID: e.ObjectID})
	}
	return out
}
