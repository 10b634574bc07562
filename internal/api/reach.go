package api

import (
	"net/http"
	"slices"

	"github.com/gatehouse-dev/gatehouse/internal/fault"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

// Reach says what an operation touches, and so what a credential that is bound
// to one environment may do with it. The zero value denies.
type Reach uint8

const (
	// ReachTenant is for what belongs to the tenant as a whole: people, keys,
	// settings, promotion. A bound credential is refused.
	ReachTenant Reach = iota
	// ReachEnvironment is for what reads and writes in one environment: the one
	// that the credential is bound to, that the path names or that the request asks for.
	ReachEnvironment
	// ReachSandbox is for what only sandbox has. A credential that is bound to
	// production is refused.
	ReachSandbox
	// ReachSelf is for what touches the caller's own credential alone, or
	// nothing that a tenant keeps.
	ReachSelf
)

// String is the reach as the document names it.
func (r Reach) String() string {
	return [...]string{"tenant", "environment", "sandbox", "self"}[r]
}

// reaches refuses a credential that is bound to one environment whatever lies
// outside it. This is the one place where operations are asked; a body that
// names an environment is asked by scope.Scope.May.
func (rt *route) reaches(req *http.Request, sc scope.Scope) error {
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
			"this credential is good for %s only, and this operation is not of one environment", sc.Env)
	}
}

// boundPermissions are the permissions that are of use to a credential which is
// bound to one environment, sorted.
func (r *Router) boundPermissions() []scope.Permission {
	var out []scope.Permission
	for _, rt := range r.routes {
		if rt.op.Reach != ReachTenant && rt.op.Permission != "" {
			out = append(out, rt.op.Permission)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}
