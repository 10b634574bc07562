package rest

import (
	"net/http"
	"slices"

	"github.com/gatehouse-dev/gatehouse/internal/fault"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

// Reach says what data an operation uses, and so whether a credential for one environment may call
// it. The zero value refuses such credentials.
type Reach uint8

const (
	// ReachTenant is for data of the whole tenant: people, keys, settings, promotion. A credential
	// for one environment is refused.
	ReachTenant Reach = iota
	// ReachEnvironment is for reading and writing in one environment: that of the credential, of
	// the path or of the request.
	ReachEnvironment
	// ReachSandbox is for data that only sandbox has. A credential for production is refused.
	ReachSandbox
	// ReachSelf is for the caller's own credential, or for nothing that a tenant stores.
	ReachSelf
)

// String returns the name of the reach in the document.
func (r Reach) String() string {
	return [...]string{"tenant", "environment", "sandbox", "self"}[r]
}

// checkReach refuses a credential for one environment everything outside it. For an environment in
// a body, the service calls scope.Scope.May.
func (rt *route) checkReach(req *http.Request, sc scope.Scope) error {
	if !sc.EnvBound {
		return nil
	}
	switch rt.op.Reach {
	case ReachSelf:
		return nil
	case ReachSandbox:
		return sc.May(scope.Sandbox)
	case ReachEnvironment:
		if named := scope.Env(req.PathValue("environment")); named.Valid() {
			return sc.May(named)
		}
		return nil
	default:
		return fault.Newf(fault.Forbidden, "environment_denied",
			"this credential is valid for %s only, and this operation is not limited to one environment", sc.Env)
	}
}

// checkCaller refuses (403) a kind of credential that the operation does not accept.
func (rt *route) checkCaller(sc scope.Scope) error {
	switch {
	case rt.op.Caller == sc.Actor.Kind, rt.op.Agents && sc.Actor.Kind == scope.Agent:
		return nil
	case rt.op.Caller != "":
		return fault.Newf(fault.Forbidden, "permission_denied", "this operation takes the key of a %s", rt.op.Caller)
	case sc.Actor.Kind.Dedicated():
		return fault.Newf(fault.Forbidden, "permission_denied", "the key of a %s is not valid here", sc.Actor.Kind)
	}
	return nil
}

// Callers are those that an operation is for, beyond what permissions say. The zero value
// is all that have the permission.
type Callers uint8

const (
	// Everybody are people, API keys and bouncers.
	Everybody Callers = iota
	// PlatformAdmins are platform administrators. A key of theirs is not one.
	PlatformAdmins
	// People are persons who are signed in.
	People
	// Bouncers are the tokens of bouncers.
	Bouncers
	// NoBouncers are all but the tokens of bouncers.
	NoBouncers
)

// kinds are the callers that the document lists for an operation (x-callers); nil for
// everybody.
func (op *Op) kinds() []string {
	switch {
	case op.Caller != "" && op.Agents:
		return []string{string(op.Caller), string(scope.Agent)}
	case op.Caller != "":
		return []string{string(op.Caller)}
	case op.Agents:
		return []string{string(scope.Person), string(scope.Key), string(scope.Bouncer), string(scope.Agent)}
	}
	return map[Callers][]string{
		PlatformAdmins: {"platform_admin"},
		People:         {string(scope.Person)},
		Bouncers:       {string(scope.Bouncer)},
		NoBouncers:     {string(scope.Person), string(scope.Key)},
	}[op.Only]
}

// checkOnly refuses (403) a caller whom the operation is not for, before its body is read.
func (rt *route) checkOnly(sc scope.Scope) error {
	switch only := rt.op.Only; {
	case only == PlatformAdmins && !sc.Platform:
		return fault.New(fault.Forbidden, "permission_denied", "this needs the permissions of a platform administrator")
	case only == People && sc.Actor.Kind != scope.Person:
		return fault.New(fault.Forbidden, "person_required", "only a person who is signed in may do this")
	case only == Bouncers && sc.Actor.Kind != scope.Bouncer:
		return fault.New(fault.Forbidden, "bouncers_only", "this needs a bouncer's token")
	case only == NoBouncers && sc.Actor.Kind == scope.Bouncer:
		return fault.New(fault.Forbidden, "permission_denied", "the token of a bouncer is not valid here")
	}
	return nil
}

// BoundPermissions returns the permissions that a credential for one environment can use, sorted.
func (r *Router) BoundPermissions() []scope.Permission {
	var out []scope.Permission
	for _, rt := range r.routes {
		if rt.op.Reach != ReachTenant && rt.op.Permission != "" {
			out = append(out, rt.op.Permission)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}
