package decisions

import (
	"context"
	"net/http"

	"github.com/gatehouse-dev/gatehouse/internal/audit"
	"github.com/gatehouse-dev/gatehouse/internal/fault"
	"github.com/gatehouse-dev/gatehouse/internal/rest"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

type decisionLogIn struct {
	rest.InEnvironment
	rest.Window
	rest.Scroll
	UserID     string `query:"user_id" maxLength:"4096" doc:"Only decisions about this user"`
	ResourceID string `query:"resource_id" maxLength:"4096" doc:"Only decisions about this resource: the id of a registered one, or the id that the request gave if none matched"`
	Decision   string `query:"decision" enum:"PERMIT,DENY" doc:"Only these outcomes"`
	PolicyID   int64  `query:"policy_id" minimum:"1" doc:"Only decisions made by this policy"`
	DecisionID string `query:"decision_id" maxLength:"200" doc:"Only this decision: its id, or the decision_id that the caller sent. Several decisions can have the same one"`
}

type explanationIn struct {
	ID string `path:"decision_id" minLength:"1" maxLength:"200" doc:"Id of the decision, as the answer and the bouncer's X-Decision-Id name it"`
}

type decisionIn struct {
	rest.InEnvironment
	ID string `path:"decision_id" minLength:"1" maxLength:"200" doc:"Id of the decision, as the answer and the bouncer's X-Decision-Id name it"`
}

// log registers the decision log.
func (h *Handler) log(r *rest.Router) {
	tags := []string{"Audit"}
	rest.Register(r, rest.Op{
		ID: "list-decisions", Method: http.MethodGet, Path: "/decisions/audit", Reach: rest.ReachEnvironment, Permission: "audit:read", Tags: tags,
		Summary:     "Read the decision log",
		Description: "Newest first. `total` counts all entries, `filtered` those that match the filters. The audit level of a resource sets what is stored of its decisions, and for how long.",
	}, func(ctx context.Context, sc scope.Scope, in *decisionLogIn) (*rest.JSON[audit.Page], error) {
		f := audit.Filter{UserID: in.UserID, ResourceID: in.ResourceID, Decision: in.Decision, PolicyID: in.PolicyID, DecisionID: in.DecisionID, Limit: in.Limit, Cursor: in.Cursor}
		var err error
		if f.Start, f.End, err = in.Period(); err != nil {
			return nil, err
		}
		return rest.Answer(h.Audit.Query(ctx, sc, f))
	})
	rest.Register(r, rest.Op{
		ID: "get-decision", Method: http.MethodGet, Path: "/decisions/audit/{decision_id}", Reach: rest.ReachEnvironment, Permission: "audit:read", Tags: tags,
		Errors:      []int{http.StatusNotFound},
		Summary:     "Read one decision",
		Description: "The entry of the decision log with this id, as GET /decisions/audit lists it.",
	}, func(ctx context.Context, sc scope.Scope, in *decisionIn) (*rest.JSON[audit.Decision], error) {
		d, err := h.Audit.One(ctx, sc, in.ID)
		if err == nil && !sc.Sees(d.Environment) {
			err = fault.NotFoundf("the log has no such decision in %s", sc.Env)
		}
		if err != nil {
			return nil, err
		}
		return rest.Answer(d, nil)
	})
	rest.Register(r, rest.Op{
		ID: "explain-decision", Method: http.MethodGet, Path: "/decisions/audit/{decision_id}/explanation", Reach: rest.ReachEnvironment, Permission: "audit:read", Tags: tags,
		Errors:      []int{http.StatusNotFound},
		Summary:     "Explain a decision",
		Description: "The rule and line that decided, its conditions with the values that they read and, when access was not granted, the nearest rule that would have granted it, with what was missing. At audit levels detailed and comprehensive it is stored; at lower levels it is worked out from the input stored for replay, as long as there is one. Secrets are redacted.",
	}, func(ctx context.Context, sc scope.Scope, in *explanationIn) (*rest.JSON[audit.Explanation], error) {
		return rest.Answer(h.Replays.Explain(ctx, sc, in.ID))
	})
}
