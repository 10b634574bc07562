package controls

import (
	"context"
	"net/http"

	"github.com/gatehouse-dev/gatehouse/internal/policy"
	"github.com/gatehouse-dev/gatehouse/internal/rest"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

// libraries registers the operation for libraries only.
func (h *Handler) libraries(r *rest.Router) {
	rest.Register(r, rest.Op{
		ID: "list-policy-dependents", Method: http.MethodGet, Path: "/policies/{policy_id}/dependents", Reach: rest.ReachEnvironment, Permission: "policies:read", Tags: []string{"Policies"},
		Errors:  []int{http.StatusConflict},
		Summary: "List the policies that use a library", Description: "Policies that use the library directly or through another library, in both environments. A policy that is a control: 409 `not_a_library`. The path `/policies/{policy_id}/users` is an alias.",
	}, func(ctx context.Context, sc scope.Scope, in *PolicyPath) (*rest.JSON[policy.Usage], error) {
		return rest.Answer(h.Policies.Dependents(ctx, sc, in.ID))
	})
}
