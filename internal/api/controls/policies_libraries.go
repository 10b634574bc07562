package controls

import (
	"context"
	"net/http"

	"github.com/gatehouse-dev/gatehouse/internal/policy"
	"github.com/gatehouse-dev/gatehouse/internal/rest"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

type policyUsersOut struct{ Body policy.Usage }

// libraries registers what is asked of libraries alone.
func (h *Handler) libraries(r *rest.Router) {
	rest.Register(r, rest.Op{
		ID: "list-policy-users", Method: http.MethodGet, Path: "/policies/{policy_id}/users", Reach: rest.ReachEnvironment, Permission: "policies:read", Tags: []string{"Policies"},
		Errors:  []int{http.StatusConflict},
		Summary: "List the policies that use a library", Description: "By themselves or through another library, in either environment. A policy that is a control: 409 `not_a_library`.",
	},
		func(ctx context.Context, sc scope.Scope, in *PolicyPath) (*policyUsersOut, error) {
			u, err := h.Policies.Users(ctx, sc, in.ID)
			return &policyUsersOut{u}, err
		})
}
