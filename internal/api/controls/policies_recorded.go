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
	Days int `query:"days" default:"30" minimum:"1" maximum:"365" doc:"How many days without a decision count as unused"`
}

type casesIn struct {
	PolicyPath
	Body replay.FromDecisions
}

// recorded registers the operations about policies that read recorded decisions.
func (h *Handler) recorded(r *rest.Router) {
	tags := []string{"Policies"}
	rest.Register(r, rest.Op{
		ID: "list-unused-policies", Method: http.MethodGet, Path: "/policies/unused", Reach: rest.ReachEnvironment, Permission: "policies:read", Tags: tags,
		Summary:     "List active policies that have decided nothing",
		Description: "Counts the decisions that name a policy. A policy that matched but was overruled by another is not named. Rules are listed for resources whose audit level, detailed or comprehensive, stores explanations.",
	}, func(ctx context.Context, sc scope.Scope, in *unusedIn) (*rest.JSON[replay.Unused], error) {
		return rest.Answer(h.Replays.Unused(ctx, sc, in.Days))
	})
	rest.Register(r, rest.Op{
		ID: "test-cases-from-decisions", Method: http.MethodPost, Path: "/policies/{policy_id}/test-cases/from-decisions", Reach: rest.ReachEnvironment, Permission: "policies:write", Also: "audit:read", Tags: tags,
		Errors:      []int{http.StatusPreconditionFailed},
		Summary:     "Create test cases from recorded decisions",
		Description: "Each case holds the input as the policies read it, with the fields of the matched resource, and whether all policies together granted access (in shadow mode: would have granted it). The new cases are run at once against this policy alone, so they also show which ones another policy decided. A decision without a stored input gives no case. Cases show what requests contained, so the caller also needs audit:read.",
	}, func(ctx context.Context, sc scope.Scope, in *casesIn) (*rest.JSON[replay.Made], error) {
		return rest.Answer(h.Replays.Cases(ctx, sc, in.ID, in.Body))
	})
}
