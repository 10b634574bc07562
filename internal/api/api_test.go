package api

import (
	"context"
	"log/slog"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/getkin/kin-openapi/openapi3"

	"github.com/gatehouse-dev/gatehouse/internal/auth"
	"github.com/gatehouse-dev/gatehouse/internal/errtest"
	"github.com/gatehouse-dev/gatehouse/internal/fault"
	"github.com/gatehouse-dev/gatehouse/internal/rest"
	"github.com/gatehouse-dev/gatehouse/internal/rest/resttest"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

// rig is the whole API with the services of a test.
type rig struct {
	*resttest.Recorder
}

// callers are the credentials that the tests know.
var callers = map[string]scope.Scope{
	"full":     {Tenant: "t1", Permissions: scope.Permissions{All: true}, Actor: scope.Actor{Kind: scope.Key, ID: "1"}},
	"platform": {Tenant: "default", Permissions: scope.Permissions{All: true}, Platform: true, Actor: scope.Actor{Kind: scope.Person, ID: "4"}},
}

// kit returns the smallest configuration with which the API answers. It knows the credentials in
// callers.
func kit() rest.Config {
	var ids atomic.Int64
	return rest.Config{
		Version: "test", Now: time.Now, Log: slog.New(slog.DiscardHandler), Panics: &fault.Panics{Add: func(string) {}},
		NewID: func() string { return "made-" + strconv.FormatInt(ids.Add(1), 10) },
		Authenticate: func(_ context.Context, c rest.Credential) (scope.Scope, rest.Principal, error) {
			sc, ok := callers[c.APIKey+c.Bearer]
			if !ok {
				return sc, rest.Principal{}, fault.New(fault.Unauthenticated, "invalid_credentials", "the credential is not valid")
			}
			sc.RequestID, sc.Env = c.RequestID, c.EnvHint
			return sc, rest.Principal{KeyID: sc.Actor.ID, Tenant: sc.Tenant, Plan: "standard", RateLimited: sc.Actor.Kind == scope.Key}, nil
		},
	}
}

// authenticator returns an authenticator for the kit that asks a service.
func authenticator(svc *auth.Service) func(context.Context, rest.Credential) (scope.Scope, rest.Principal, error) {
	return func(ctx context.Context, c rest.Credential) (scope.Scope, rest.Principal, error) {
		sc, who, err := svc.Authenticate(ctx, auth.Credential(c))
		return sc, rest.Principal(who), err
	}
}

// wholeDocument returns the document of the API. It is the same for each rig, and parsed once.
var wholeDocument = sync.OnceValues(func() (*openapi3.T, error) {
	a, err := New(Config{Kit: kit()})
	if err != nil {
		return nil, err
	}
	return openapi3.NewLoader().LoadFromData(a.Edition("", "en").Body)
})

// newRig returns the API. change adds services to it.
func newRig(t testing.TB, change func(*Config)) *rig {
	t.Helper()
	c := Config{Kit: kit()}
	if change != nil {
		change(&c)
	}
	a, err := New(c)
	errtest.Must(t, err)
	spec, err := wholeDocument()
	errtest.Must(t, err)
	return &rig{&resttest.Recorder{Handler: a, Spec: spec, Pattern: a.Pattern}}
}
