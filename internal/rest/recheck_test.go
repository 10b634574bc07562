package rest

import (
	"context"
	"errors"
	"testing"

	"github.com/gatehouse-dev/gatehouse/internal/fault"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

// TestRecheck: a refused credential, or one that has lost a permission, ends an open stream. A
// store that does not answer does not.
func TestRecheck(t *testing.T) {
	was := scope.Scope{Tenant: "was", Permissions: scope.Permissions{All: true}}
	now := scope.Scope{Tenant: "now", Permissions: scope.Permissions{All: true}}
	ended, end := context.WithCancel(t.Context())
	end()
	for name, c := range map[string]struct {
		ctx    context.Context
		scope  scope.Scope
		err    error
		want   scope.TenantID
		ending bool
	}{
		"good":                   {t.Context(), now, nil, "now", false},
		"without the permission": {t.Context(), scope.Scope{Tenant: "now"}, nil, "", true},
		"unauthenticated":        {t.Context(), now, fault.New(fault.Unauthenticated, "x", "x"), "", true},
		"forbidden":              {t.Context(), now, fault.New(fault.Forbidden, "x", "x"), "", true},
		"not found":              {t.Context(), now, fault.New(fault.NotFound, "x", "x"), "", true},
		"no store":               {t.Context(), now, fault.New(fault.Unavailable, "x", "x"), "was", false},
		"another error":          {t.Context(), now, errors.New("x"), "was", false},
		"the end of ctx":         {ended, now, context.Canceled, "was", true},
	} {
		a := Authenticator(func(context.Context, Credential) (scope.Scope, Principal, error) { return c.scope, Principal{}, c.err })
		sc, err := a.Recheck(c.ctx, Credential{}, was, "editor:read")
		if sc.Tenant != c.want || (err != nil) != c.ending {
			t.Errorf("%s: Recheck = scope of %q, %v, want %q and an end: %v", name, sc.Tenant, err, c.want, c.ending)
		}
	}
}
