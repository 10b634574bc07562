package controls

import (
	"context"
	"net/http"

	"github.com/gatehouse-dev/gatehouse/internal/replay"
	"github.com/gatehouse-dev/gatehouse/internal/rest"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

type unusedIn struct {
	rest.InEnvironment
	Days int `query:"days" default:"30" minimum:"1" maximum:"365" doc:"For how many days no decision may have touched them"`
}

type unusedOut struct{ Body replay.Unused }

type casesIn struct {
	PolicyPath
	Body replay.FromDecisions
}

type casesOut struct{ Body replay.Made }

// recorded registers what recorded decisions say about policies.
func (h *Handler) recorded(r *rest.Router) {
	tags := []string{"Policies"}
	rest.Register(r, rest.Op{
		ID: "list-unused-policies", Method: http.MethodGet, Path: "/policies/unused", Reach: rest.ReachEnvironment, Permission: "policies:read", Tags: tags,
		Summary:     "List active policies that decided nothing",
		Description: "Counted by the decisions that name a policy: one that matched and was overruled by another is not named. Rules are told where resources at audit level detailed or comprehensive recorded why they decided.",
	},
		func(ctx context.Context, sc scope.Scope, in *unusedIn) (*unusedOut, error) {
			out, err := h.Replays.Unused(ctx, sc, in.Days)
			return &unusedOut{out}, err
		})
	rest.Register(r, rest.Op{
		ID: "test-cases-from-decisions", Method: http.MethodPost, Path: "/policies/{policy_id}/test-cases/from-decisions", Reach: rest.ReachEnvironment, Permission: "policies:write", Also: "audit:read", Tags: tags,
		Errors:      []int{http.StatusPreconditionFailed},
		Summary:     "Make test cases of recorded decisions",
		Description: "Each case holds the input as the policies saw it, the matched resource's fields included, and whether access was granted by all policies together (in shadow mode: would have been). The new cases are run against this policy alone at once, so that those show which other policies decide. A decision of which no input is kept makes none. It shows what requests held, so it needs the permission audit:read too.",
	},
		func(ctx context.Context, sc scope.Scope, in *casesIn) (*casesOut, error) {
			out, err := h.Replays.Cases(ctx, sc, in.ID, in.Body)
			return &casesOut{out}, err
		})
}
