// Package scope says who asks, in which tenant and environment, and what that
// actor may do. A Scope is a value: it is made once per request by package
// auth and handed down as the second argument of every service method, never
// through a context, so a forgotten tenant does not compile.
package scope

import (
	"slices"
	"strings"

	"github.com/gatehouse-dev/gatehouse/internal/fault"
)

// TenantID is a tenant's identifier: a DNS label, unique on the deployment.
type TenantID string

// DefaultTenant exists from the first start and needs no tenant header.
const DefaultTenant TenantID = "default"

// AgentPrefix is what the id of an AI agent as a subject of decisions begins with: agent:7.
const AgentPrefix = "agent:"

// NamesAgent reports whether a subject's id is one of an AI agent, in upper or lower case.
// No person has such an id, so that nobody takes the place of an agent.
func NamesAgent(id string) bool {
	return len(id) >= len(AgentPrefix) && strings.EqualFold(id[:len(AgentPrefix)], AgentPrefix)
}

// Env is an environment. Ids are unique over both environments of a tenant;
// an object of one does not resolve when the other is asked for.
type Env string

// The two environments of the specification. AnyEnv is the absence of a choice.
const (
	AnyEnv     Env = ""
	Sandbox    Env = "sandbox"
	Production Env = "production"
)

// Valid reports whether e names one of the two environments.
func (e Env) Valid() bool { return e == Sandbox || e == Production }

// ActorKind tells people, keys, bouncers and the service itself apart.
type ActorKind string

// The kinds of actor that act on the service.
const (
	Person  ActorKind = "user"
	Key     ActorKind = "api_key"
	Bouncer ActorKind = "bouncer"
	System  ActorKind = "system"
	// Directory is a directory that provisions people by SCIM.
	Directory ActorKind = "directory"
	// Vendor is an embedding vendor, who provisions tenants.
	Vendor ActorKind = "vendor"
	// Agent is an AI agent, which asks for decisions about itself. Its actor id is its id
	// as a subject.
	Agent ActorKind = "agent"
)

// Dedicated reports whether credentials of this kind are good for the operations of their
// kind alone.
func (k ActorKind) Dedicated() bool { return k == Vendor || k == Directory || k == Agent }

// Actor is who acts. It goes into every audit row.
type Actor struct {
	Kind ActorKind `json:"kind"`
	// ID is the user id, the key id or the bouncer id, as text.
	ID string `json:"id"`
	// Name is what a person reads: a username, a key's or a bouncer's name.
	Name string `json:"name"`
	// Roles are the actor's role names; empty for keys and bouncers.
	Roles []string `json:"roles,omitempty"`
	// IP is the caller's address as we saw it.
	IP string `json:"ip,omitempty"`
}

// Permission is `<area>:<read|write>`, or `resources:edit`.
type Permission string

// Permissions is what an actor may do; the zero value allows nothing.
type Permissions struct {
	// All is set for platform administrators and the service itself.
	All bool
	// List is sorted and holds each permission once, implied ones included.
	List []Permission
}

// Has reports whether p is held.
func (ps Permissions) Has(p Permission) bool {
	if ps.All {
		return true
	}
	_, ok := slices.BinarySearch(ps.List, p)
	return ok
}

// Scope is one request's context of authority.
type Scope struct {
	// Tenant is the tenant that the request works in.
	Tenant TenantID
	// Env is the environment asked for, or that the credential is bound to;
	// AnyEnv where the request named none.
	Env Env
	// EnvBound is set when the credential is good for Env alone.
	EnvBound bool
	Actor    Actor
	// Permissions are those of the credential, in Tenant.
	Permissions Permissions
	// Platform is set for platform administrators, who work across tenants.
	Platform bool
	// Session is the id of the session that the credential stands for; empty for
	// API keys, bouncers and the service itself.
	Session string
	// EnrolOnly is set for a person who must enrol a second factor before anything else.
	EnrolOnly bool
	// RequestID ties logs, audit rows and answers together.
	RequestID string
}

// Require answers a forbidden fault unless the actor holds p. The table of
// operations in package api is the only caller in the request path.
func (s Scope) Require(p Permission) error {
	if s.Permissions.Has(p) {
		return nil
	}
	return fault.Newf(fault.Forbidden, "permission_denied", "this needs the permission %q", p)
}

// EnvOr is the environment of the scope, or def where none was named.
func (s Scope) EnvOr(def Env) Env {
	if s.Env == AnyEnv {
		return def
	}
	return s.Env
}

// Sees reports whether an object of environment e resolves in this scope.
func (s Scope) Sees(e Env) bool { return s.Env == AnyEnv || s.Env == e }

// May refuses (403) an environment that the credential is not good for: one that
// is bound to the other. Whatever names an environment is asked here.
func (s Scope) May(e Env) error {
	if s.EnvBound && e != s.Env {
		return fault.Newf(fault.Forbidden, "environment_denied", "this credential is valid for %s only", s.Env)
	}
	return nil
}

// CreateIn is the environment that a create lands in: asked (the body's), else
// the scope's, else sandbox. A credential bound to one environment creates
// nothing in the other (403); a body that contradicts the request is a 422.
func (s Scope) CreateIn(asked Env) (Env, error) {
	switch {
	case asked == AnyEnv:
		return s.EnvOr(Sandbox), nil
	case !asked.Valid():
		return AnyEnv, fault.Invalidf("/environment", "the environment must be sandbox or production")
	case s.Sees(asked):
		return asked, nil
	case s.EnvBound:
		return AnyEnv, s.May(asked)
	default:
		return AnyEnv, fault.Invalidf("/environment", "the request is for %s, its body for %s", s.Env, asked)
	}
}
