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
	case rt.op.NoBouncer && sc.Actor.Kind == scope.Bouncer:
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
