package identity

import (
	"context"
	"net/http"

	"github.com/gatehouse-dev/gatehouse/internal/auth"
	"github.com/gatehouse-dev/gatehouse/internal/rest"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

// PortalTokenRequest is the body of POST /developer-portal/token.
type PortalTokenRequest struct {
	Scopes []string `json:"scopes,omitempty" maxItems:"64" nullable:"false" doc:"Scopes of the token; absent: all that the caller holds"`
}

type portalTokenIn struct {
	Body *PortalTokenRequest
}

type portalKeyIn struct {
	Environment scope.Env `path:"environment" enum:"sandbox,production" doc:"The only environment in which the key is valid"`
	Body        *auth.PortalDraft
}

// developerPortal registers the operations that give developers their first credentials.
func (h *Handler) developerPortal(r *rest.Router) {
	tags := []string{"Developer portal"}
	rest.Register(r, rest.Op{
		ID: "issue-portal-token", Method: http.MethodPost, Path: "/developer-portal/token", Reach: rest.ReachSelf, Only: rest.NoBouncers, Tags: tags,
		Summary:     "Issue a token for the caller",
		Description: "The token is valid for an hour and has the caller's scopes, or fewer. It ends with the credential that created it. A scope that the caller does not hold: 403.",
	}, func(ctx context.Context, sc scope.Scope, in *portalTokenIn) (*rest.JSON[auth.Grant], error) {
		var scopes []string
		if in.Body != nil {
			scopes = in.Body.Scopes
		}
		return rest.Answer(h.Auth.IssuePortalToken(ctx, sc, scopes))
	})
	rest.Register(r, rest.Op{
		ID: "generate-api-key", Method: http.MethodPost, Path: "/developer-portal/api-keys/{environment}/generate", Only: rest.NoBouncers, Tags: tags, Status: http.StatusCreated, Creates: true,
		Summary:     "Create an API key for one environment",
		Description: "Only this answer contains the key. The key works in its environment only. Without `scopes` it gets the least: read access to decisions, policies and resources. A person's key can do no more than the person and ends with the account. An API key needs `tenants:write` to create keys, and they end no later than itself. A scope that the caller does not hold: 403; an unknown one: 422.",
	}, func(ctx context.Context, sc scope.Scope, in *portalKeyIn) (*rest.JSON[auth.Key], error) {
		var d auth.PortalDraft
		if in.Body != nil {
			d = *in.Body
		}
		return rest.Answer(h.Auth.GenerateKey(ctx, sc, in.Environment, r.BoundPermissions(), d))
	})
}
