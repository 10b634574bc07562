package identity

import (
	"context"
	"net/http"

	"github.com/gatehouse-dev/gatehouse/internal/rest"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
	"github.com/gatehouse-dev/gatehouse/internal/user"
)

// Identities is the answer of GET /users/{user_id}/identities.
type Identities struct {
	Identities []user.Identity `json:"identities" nullable:"false" doc:"The identities, oldest first"`
}

type identityCreateIn struct {
	UserPath
	Body user.IdentityDraft
}

type identityPath struct {
	UserPath
	IdentityID string `path:"identity_id" maxLength:"64" doc:"Id of the identity"`
}

// userIdentities registers the identities of people at identity providers.
func (h *Handler) userIdentities(r *rest.Router) {
	tags, path := []string{"Users"}, "/users/{user_id}/identities"
	rest.Register(r, rest.Op{
		ID: "list-user-identities", Method: http.MethodGet, Path: path, Permission: "users:read", Tags: tags,
		Summary: "List the identities of a user", Description: "Who the person is at identity providers: the subjects that can sign in as this user.",
	}, func(ctx context.Context, sc scope.Scope, in *UserPath) (*rest.JSON[Identities], error) {
		list, err := h.Users.Identities(ctx, sc, in.ID)
		return rest.Answer(Identities{list}, err)
	})
	rest.Register(r, rest.Op{
		ID: "link-user-identity", Method: http.MethodPost, Path: path, Permission: "users:write", Tags: tags, Status: http.StatusCreated, Creates: true,
		Errors:  []int{http.StatusConflict},
		Summary: "Link a user to an identity", Description: "From then on, whoever signs in at the issuer as this subject is this user. The caller must hold what the user may do (403). A subject can belong to one person only (409).",
	}, func(ctx context.Context, sc scope.Scope, in *identityCreateIn) (*rest.JSON[user.Identity], error) {
		return rest.Answer(h.Users.Link(ctx, sc, in.ID, in.Body))
	})
	rest.Register(r, rest.Op{
		ID: "unlink-user-identity", Method: http.MethodDelete, Path: path + "/{identity_id}", Permission: "users:write", Tags: tags,
		Summary: "Unlink an identity from a user", Description: "The subject can no longer sign in as this user, and the user's sessions end. The caller must hold what the user may do (403).",
	}, func(ctx context.Context, sc scope.Scope, in *identityPath) (*struct{}, error) {
		return nil, h.Users.Unlink(ctx, sc, in.ID, in.IdentityID)
	})
}
