// Package scope says who calls, in which tenant and environment, and with which permissions.
// Package auth creates one Scope for each request. It is a value and the second argument of every
// service method, never a member of a context: so code that forgets the tenant does not compile.
package scope

import (
	"slices"
	"strconv"
	"strings"

	"github.com/gatehouse-dev/gatehouse/internal/fault"
)

// TenantID identifies a tenant: a DNS label (RFC 1035), unique in the deployment.
type TenantID string

// DefaultTenant exists from the first start and needs no tenant header.
const DefaultTenant TenantID = "default"

// AgentPrefix is what the id of an AI agent as a subject of decisions begins with: agent:7.
const AgentPrefix = "agent:"

// AgentSubject returns the id of an agent as a subject of decisions, such as agent:7.
func AgentSubject(id int64) string { return AgentPrefix + strconv.FormatInt(id, 10) }

// NamesAgent reports whether the id of a subject is that of an AI agent, in upper or lower case. No
// person can have such an id, so nobody can impersonate an agent.
func NamesAgent(id string) bool {
	return len(id) >= len(AgentPrefix) && strings.EqualFold(id[:len(AgentPrefix)], AgentPrefix)
}

// Env is an environment. Ids are unique over both environments of a tenant. An object of one
// environment is not found in a request for the other.
type Env string

// The two environments of the specification. AnyEnv is the absence of a choice.
const (
	AnyEnv     Env = ""
	Sandbox    Env = "sandbox"
	Production Env = "production"
)

// Valid reports whether e names one of the two environments.
func (e Env) Valid() bool { return e == Sandbox || e == Production }

// ActorKind is the kind of an actor, such as a person or an API key.
type ActorKind string

// The kinds of actor that act on the service.
const (
	Person  ActorKind = "user"
	Key     ActorKind = "api_key"
	Bouncer ActorKind = "bouncer"
	System  ActorKind = "system"
	// Directory is a directory that provisions people by SCIM (RFC 7644).
	Directory ActorKind = "directory"
	// Vendor is an embedding vendor, which provisions tenants.
	Vendor ActorKind = "vendor"
	// Agent is an AI agent, which asks for decisions about itself. Its actor id is its id
	// as a subject.
	Agent ActorKind = "agent"
)

// Dedicated reports whether credentials of this kind are valid only for operations that are made
// for the kind.
func (k ActorKind) Dedicated() bool { return k == Vendor || k == Directory || k == Agent }

// Actor is who acts. Each entry of the administrative log names one.
type Actor struct {
	Kind ActorKind `json:"kind"`
	// ID is the user id, the key id or the bouncer id, as text.
	ID string `json:"id"`
	// Name is for people to read: a username, or the name of a key or bouncer.
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
	// All is true for platform administrators and the service itself.
	All bool
	// List is sorted and has each permission once, including implied ones.
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

// Scope is the authority of one request.
type Scope struct {
	// Tenant is the tenant that the request works in.
	Tenant TenantID
	// Env is the environment asked for, or that the credential is bound to;
	// AnyEnv where the request named none.
	Env Env
	// EnvBound is true if the credential is valid for Env only.
	EnvBound bool
	Actor    Actor
	// Permissions are those of the credential, in Tenant.
	Permissions Permissions
	// Platform is true for platform administrators, who work in all tenants.
	Platform bool
	// Session is the id of the session that the credential stands for; empty for
	// API keys, bouncers and the service itself.
	Session string
	// EnrolOnly is true for a person who must enrol a second factor before anything else.
	EnrolOnly bool
	// RequestID ties logs, audit rows and answers together.
	RequestID string
}

// Require returns Forbidden unless the actor has p. For requests, package rest calls it with the
// permission of the operation.
func (s Scope) Require(p Permission) error {
	if s.Permissions.Has(p) {
		return nil
	}
	return fault.Newf(fault.Forbidden, "permission_denied", "this needs the permission %q", p)
}

// EnvOr returns the environment of the scope, or def if the request named none.
func (s Scope) EnvOr(def Env) Env {
	if s.Env == AnyEnv {
		return def
	}
	return s.Env
}

// Sees reports whether an object of environment e is visible in this scope.
func (s Scope) Sees(e Env) bool { return s.Env == AnyEnv || s.Env == e }

// May returns Forbidden if the credential is bound to the other environment than e. Call it for
// every environment that a request names.
func (s Scope) May(e Env) error {
	if s.EnvBound && e != s.Env {
		return fault.Newf(fault.Forbidden, "environment_denied", "this credential is valid for %s only", s.Env)
	}
	return nil
}

// CreateIn returns the environment of a new object: asked (from the body), else that of the scope,
// else sandbox. Faults: Forbidden if the credential is bound to the other environment; Invalid if
// the body contradicts the request.
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
