package connect

import (
	"context"
	"net/http"

	"github.com/gatehouse-dev/gatehouse/internal/integration"
	"github.com/gatehouse-dev/gatehouse/internal/rest"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

type integrationRunsIn struct {
	IntegrationPath
	rest.Page
	Status string `query:"status" enum:"pending,running,succeeded,failed,approved,denied,expired" doc:"Only runs in this state"`
}

type integrationRunsOut struct{ Body integration.RunPage }

type integrationAnswerIn struct {
	IntegrationPath
	Run  int64 `path:"run_id" minimum:"1" doc:"Id of the run"`
	Body integration.Answer
}

type integrationAnswerOut struct {
	Body struct {
		RunID  int64  `json:"run_id" doc:"Id of the run."`
		Status string `json:"status" doc:"State of the run now."`
	}
}

// integrationRuns registers the runs of systems that answer back, and their answers.
func (h *Handler) integrationRuns(r *rest.Router) {
	rest.Register(r, integrationOp("list-integration-runs", http.MethodGet, "/integrations/{integration_id}/runs", "List what an integration was started with",
		"Newest first: each message to a system that answers back, and how it ended. Tokens are never returned. Runs are kept for 90 days after their end."),
		func(ctx context.Context, sc scope.Scope, in *integrationRunsIn) (*integrationRunsOut, error) {
			page, err := h.Integrations.Runs(ctx, sc, in.ID, in.Status, int64(in.Skip), int64(in.Limit))
			return &integrationRunsOut{page}, err
		})
	rest.Register(r, rest.Op{
		ID: "answer-integration-run", Method: http.MethodPost, Path: "/integrations/{integration_id}/runs/{run_id}/answer", Public: true, Tags: []string{"Integrations"},
		Errors:  []int{http.StatusUnauthorized, http.StatusForbidden, http.StatusConflict},
		Summary: "Answer back to a run",
		Description: "For the system that got the callback: its token replaces the credential and is good for one answer. The callback's URL names the tenant. 401 `invalid_callback`: there is no such run, or the token is wrong. " +
			"409 `already_answered`, `callback_expired`, or `integration_disabled`. The answer of an `approval_queue` decides the request for access: 409 `already_decided`, 403 `own_request`, and 422 for a longer grant than was requested or may be given.",
	}, func(ctx context.Context, sc scope.Scope, in *integrationAnswerIn) (*integrationAnswerOut, error) {
		run, err := h.Integrations.Answer(ctx, sc, in.ID, in.Run, in.Body)
		out := &integrationAnswerOut{}
		out.Body.RunID, out.Body.Status = run.ID, run.Status
		return out, err
	})
}
