package identity

import (
	"context"
	"net/http"

	"github.com/gatehouse-dev/gatehouse/internal/auth"
	"github.com/gatehouse-dev/gatehouse/internal/rest"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

// RedeemRequest is the body of POST /auth/sessions/redeem.
type RedeemRequest struct {
	Link string `json:"link" minLength:"1" maxLength:"128" writeOnly:"true" doc:"The part of the link after #link="`
}

type signedInOut struct {
	SetCookie string `header:"Set-Cookie" doc:"The session cookie: HttpOnly and SameSite=Strict; over TLS also Secure, with the prefix __Host-"`
	Body      auth.SessionInfo
}

// SessionList is the answer of GET /auth/sessions.
type SessionList struct {
	Sessions []auth.SessionInfo `json:"sessions" nullable:"false" doc:"The sessions, last used first"`
}

type sessionPath struct {
	SessionID string `path:"session_id" maxLength:"64" doc:"Id of the session"`
}

// SessionsEnded is the answer of DELETE /auth/sessions.
type SessionsEnded struct {
	Ended int `json:"ended" doc:"How many sessions were ended"`
}

// authSessions registers the sign-in of browsers, and people's own sessions.
func (h *Handler) authSessions(r *rest.Router) {
	tags := []string{"Authentication"}
	rest.Register(r, rest.Op{
		ID: "sign-in", Method: http.MethodPost, Path: "/auth/sessions", Public: true, Tags: tags,
		Errors:      []int{http.StatusUnauthorized, http.StatusForbidden, http.StatusTooManyRequests},
		Summary:     "Sign in with a browser",
		Description: "Starts a session for a browser. Its secret is a cookie that scripts cannot read; API clients use /auth/login instead. Errors and locks are the same as for /auth/login; the challenge of a second factor is for /auth/sessions/second-factor. The session ends after an hour without use, after 12 hours at the latest (both configurable), at sign-out, and when the person's password or roles change. An earlier session of this browser ends. This request, and every request made with the cookie, must come from a page of this origin: 403 `cross_origin` otherwise.",
	}, func(ctx context.Context, sc scope.Scope, in *rest.JSON[LoginRequest]) (*signedInOut, error) {
		b, err := r.Browser(ctx)
		if err != nil {
			return nil, err
		}
		got, err := h.Auth.Sessions.SignIn(ctx, sc, in.Body.proof(), browserOf(b))
		return signedIn(b, got), err
	})
	rest.Register(r, rest.Op{
		ID: "redeem-sign-in-link", Method: http.MethodPost, Path: "/auth/sessions/redeem", Public: true, Tags: tags,
		Errors:      []int{http.StatusUnauthorized, http.StatusForbidden},
		Summary:     "Sign in with a link",
		Description: "For the link that a server prints when it starts in its demo mode. The link works once, within ten minutes, from the machine that runs the server: 401 `invalid_link` otherwise.",
	}, func(ctx context.Context, sc scope.Scope, in *rest.JSON[RedeemRequest]) (*signedInOut, error) {
		b, err := r.Browser(ctx)
		if err != nil {
			return nil, err
		}
		if b.Relayed {
			sc.Actor.IP = ""
		}
		got, err := h.Auth.Sessions.Redeem(ctx, sc, in.Body.Link, browserOf(b))
		return signedIn(b, got), err
	})
	rest.Register(r, rest.Op{
		ID: "list-own-sessions", Method: http.MethodGet, Path: "/auth/sessions", Reach: rest.ReachSelf, Only: rest.NoBouncers, Tags: tags,
		Summary:     "List your sessions",
		Description: "The caller's active sessions, of browsers and of tokens. API keys have none: 400 `not_a_session`.",
	}, func(ctx context.Context, sc scope.Scope, _ *struct{}) (*rest.JSON[SessionList], error) {
		list, err := h.Auth.Sessions.List(ctx, sc)
		return rest.Answer(SessionList{list}, err)
	})
	rest.Register(r, rest.Op{
		ID: "end-own-session", Method: http.MethodDelete, Path: "/auth/sessions/{session_id}", Reach: rest.ReachSelf, Only: rest.NoBouncers, Tags: tags,
		Summary:     "End one of your sessions",
		Description: "Ends the session and the tokens that were created from it at once. Another person's session: 404 `session_not_found`.",
	}, func(ctx context.Context, sc scope.Scope, in *sessionPath) (*struct{}, error) {
		return nil, h.Auth.Sessions.End(ctx, sc, in.SessionID)
	})
	rest.Register(r, rest.Op{
		ID: "end-other-sessions", Method: http.MethodDelete, Path: "/auth/sessions", Reach: rest.ReachSelf, Only: rest.NoBouncers, Tags: tags,
		Summary:     "End all your other sessions",
		Description: "Ends all the caller's sessions at once, except the one that makes this request.",
	}, func(ctx context.Context, sc scope.Scope, _ *struct{}) (*rest.JSON[SessionsEnded], error) {
		n, err := h.Auth.Sessions.EndOthers(ctx, sc)
		return rest.Answer(SessionsEnded{n}, err)
	})
}

// browserOf converts a browser for package auth.
func browserOf(b rest.Browser) auth.Browser { return auth.Browser{Agent: b.Agent, Cookie: b.Cookie} }

// signedIn returns the answer to a sign-in.
func signedIn(b rest.Browser, got auth.SignedIn) *signedInOut {
	return &signedInOut{b.SetCookie(got.Cookie, got.Session.ExpiresAt.Sub(got.Session.CreatedAt)), got.Session}
}
