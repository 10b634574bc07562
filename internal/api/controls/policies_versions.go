package controls

import (
	"context"
	"net/http"

	"github.com/gatehouse-dev/gatehouse/internal/policy"
	"github.com/gatehouse-dev/gatehouse/internal/rest"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

type policyHistoryIn struct {
	PolicyPath
	rest.Page
}

// PolicyVersionPath names one version of a policy.
type PolicyVersionPath struct {
	PolicyPath
	Version int64 `path:"version" minimum:"1" doc:"Number of the version"`
}

type policyDiffIn struct {
	PolicyPath
	From int64 `query:"from" minimum:"1" doc:"The older version; absent: the one before to"`
	To   int64 `query:"to" minimum:"1" doc:"The newer version; absent: the newest one"`
}

type policyVersionRestoreIn struct {
	PolicyVersionPath
	rest.IfMatch
}

// versions registers the history of a policy.
func (h *Handler) versions(r *rest.Router) {
	tags := []string{"Policies"}
	rest.Register(r, rest.Op{
		ID: "list-policy-versions", Method: http.MethodGet, Path: "/policies/{policy_id}/versions", Reach: rest.ReachEnvironment, Permission: "policies:read", Tags: tags,
		Summary: "List the versions of a policy", Description: "Newest first.",
	}, func(ctx context.Context, sc scope.Scope, in *policyHistoryIn) (*rest.JSON[policy.History], error) {
		return rest.Answer(h.Policies.Versions(ctx, sc, in.ID, int64(in.Skip), int64(in.Limit)))
	})
	rest.Register(r, rest.Op{
		ID: "diff-policy-versions", Method: http.MethodGet, Path: "/policies/{policy_id}/versions/diff", Reach: rest.ReachEnvironment, Permission: "policies:read", Tags: tags,
		Summary: "Compare two versions of a policy",
	}, func(ctx context.Context, sc scope.Scope, in *policyDiffIn) (*rest.JSON[policy.Difference], error) {
		return rest.Answer(h.Policies.Diff(ctx, sc, in.ID, in.From, in.To))
	})
	rest.Register(r, rest.Op{
		ID: "get-policy-version", Method: http.MethodGet, Path: "/policies/{policy_id}/versions/{version}", Reach: rest.ReachEnvironment, Permission: "policies:read", Tags: tags,
		Summary: "Read one version of a policy",
	}, func(ctx context.Context, sc scope.Scope, in *PolicyVersionPath) (*rest.JSON[policy.Version], error) {
		return rest.Answer(h.Policies.Version(ctx, sc, in.ID, in.Version))
	})
	rest.RegisterChange(r, rest.Op{
		ID: "restore-policy-version", Method: http.MethodPost, Path: "/policies/{policy_id}/versions/{version}/restore", Reach: rest.ReachEnvironment, Permission: "policies:write", Tags: tags,
		Errors:      []int{http.StatusConflict, http.StatusPreconditionFailed},
		Summary:     "Restore an old version",
		Description: "Creates a new version with the content of the old one. Status and environment do not change. Links do not change either if the old version was of the other environment.",
	}, func(ctx context.Context, sc scope.Scope, in *policyVersionRestoreIn, version int64) (*policyOut, error) {
		p, err := h.Policies.RestoreVersion(ctx, sc, in.ID, in.Version, version)
		return &policyOut{rest.ETag(p.Version), p}, err
	})
}
