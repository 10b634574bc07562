package identity

import (
	"context"
	"net/http"

	"github.com/gatehouse-dev/gatehouse/internal/rest"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

type userSessionPath struct {
	UserPath
	SessionID string `path:"session_id" maxLength:"64" doc:"Id of the session"`
}

// userSessions registers the sessions of people, for administrators.
func (h *Handler) userSessions(r *rest.Router) {
	tags, path := []string{"Users"}, "/users/{user_id}/sessions"
	rest.Register(r, rest.Op{
		ID: "list-user-sessions", Method: http.MethodGet, Path: path, Permission: "users:read", Tags: tags,
		Summary: "List the sessions of a user", Description: "The user's active sessions, of browsers and of tokens, last used first.",
	}, func(ctx context.Context, sc scope.Scope, in *UserPath) (*rest.JSON[SessionList], error) {
		list, err := h.Auth.Sessions.ListOf(ctx, sc, in.ID)
		return rest.Answer(SessionList{list}, err)
	})
	rest.Register(r, rest.Op{
		ID: "end-user-sessions", Method: http.MethodDelete, Path: path, Permission: "users:write", Tags: tags,
		Summary: "End all sessions of a user", Description: "Ends all of the user's sessions at once, and the tokens that were created from them. API keys stay valid. The caller must hold what the user may do (403).",
	}, func(ctx context.Context, sc scope.Scope, in *UserPath) (*rest.JSON[SessionsEnded], error) {
		n, err := h.Auth.Sessions.EndOf(ctx, sc, in.ID, "")
		return rest.Answer(SessionsEnded{n}, err)
	})
	rest.Register(r, rest.Op{
		ID: "end-user-session", Method: http.MethodDelete, Path: path + "/{session_id}", Permission: "users:write", Tags: tags,
		Summary: "End a session of a user", Description: "Ends the session at once, and the tokens that were created from it. The caller must hold what the user may do (403). Unknown sessions and those of other people: 404 `session_not_found`.",
	}, func(ctx context.Context, sc scope.Scope, in *userSessionPath) (*struct{}, error) {
		_, err := h.Auth.Sessions.EndOf(ctx, sc, in.ID, in.SessionID)
		return nil, err
	})
}
