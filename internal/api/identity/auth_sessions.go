package identity

import (
	"context"
	"net/http"

	"github.com/gatehouse-dev/gatehouse/internal/auth"
	"github.com/gatehouse-dev/gatehouse/internal/rest"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

type signInIn struct{ Body LoginRequest }

// RedeemRequest is the body of POST /auth/sessions/redeem.
type RedeemRequest struct {
	Link string `json:"link" minLength:"1" maxLength:"128" writeOnly:"true" doc:"What stands behind #link= in the link"`
}

type redeemIn struct{ Body RedeemRequest }

type signedInOut struct {
	SetCookie string `header:"Set-Cookie" doc:"The session cookie: HttpOnly, SameSite=Strict, over TLS Secure with the prefix __Host-"`
	Body      auth.SessionInfo
}

// SessionList is the answer of GET /auth/sessions.
type SessionList struct {
	Sessions []auth.SessionInfo `json:"sessions" nullable:"false" doc:"The sign-ins, last used first"`
}

type sessionsOut struct{ Body SessionList }

type sessionPath struct {
	SessionID string `path:"session_id" maxLength:"64" doc:"Id of the session"`
}

// SessionsEnded is the answer of DELETE /auth/sessions.
type SessionsEnded struct {
	Ended int `json:"ended" doc:"How many sessions were ended"`
}

type sessionsEndedOut struct{ Body SessionsEnded }

// authSessions registers what browsers sign in with, and people's own sessions.
func (h *Handler) authSessions(r *rest.Router) {
	tags := []string{"Authentication"}
	rest.Register(r, rest.Op{
		ID: "sign-in", Method: http.MethodPost, Path: "/auth/sessions", Public: true, Tags: tags,
		Errors:      []int{http.StatusUnauthorized, http.StatusForbidden, http.StatusTooManyRequests},
		Summary:     "Sign in with a browser",
		Description: "Begins a session whose secret is a cookie that scripts cannot read; API clients use /auth/login. Errors and locks are those of /auth/login. The session ends when it is not used for an hour, after 12 hours at the latest (both configurable), at sign-out, and when the person's password or roles change. A session that the browser had before ends. The request must come from a page of this origin: 403 `cross_origin`; so must every other that is made with the cookie.",
	},
		func(ctx context.Context, sc scope.Scope, in *signInIn) (*signedInOut, error) {
			b, err := r.Browser(ctx)
			if err != nil {
				return nil, err
			}
			got, err := h.Auth.Sessions.SignIn(ctx, sc, in.Body.Username, in.Body.Password, client(b))
			return signedIn(b, got), err
		})
	rest.Register(r, rest.Op{
		ID: "redeem-sign-in-link", Method: http.MethodPost, Path: "/auth/sessions/redeem", Public: true, Tags: tags,
		Errors:      []int{http.StatusUnauthorized, http.StatusForbidden},
		Summary:     "Sign in with a link",
		Description: "For the link that a server prints when it is started to be tried out. It signs in once, within ten minutes, from the machine that the server runs on: 401 `invalid_link` otherwise.",
	},
		func(ctx context.Context, sc scope.Scope, in *redeemIn) (*signedInOut, error) {
			b, err := r.Browser(ctx)
			if err != nil {
				return nil, err
			}
			if b.Relayed {
				sc.Actor.IP = ""
			}
			got, err := h.Auth.Sessions.Redeem(ctx, sc, in.Body.Link, client(b))
			return signedIn(b, got), err
		})
	rest.Register(r, rest.Op{
		ID: "list-own-sessions", Method: http.MethodGet, Path: "/auth/sessions", Reach: rest.ReachSelf, Tags: tags,
		Summary:     "List one's own sessions",
		Description: "The caller's sign-ins that have not ended, of browsers and of tokens. API keys have none: 400 `not_a_session`.",
	},
		func(ctx context.Context, sc scope.Scope, _ *struct{}) (*sessionsOut, error) {
			list, err := h.Auth.Sessions.List(ctx, sc)
			return &sessionsOut{SessionList{list}}, err
		})
	rest.Register(r, rest.Op{
		ID: "end-own-session", Method: http.MethodDelete, Path: "/auth/sessions/{session_id}", Reach: rest.ReachSelf, Tags: tags,
		Summary:     "End one of one's own sessions",
		Description: "At once, with the tokens that were made from it. Another person's session is not found: 404 `session_not_found`.",
	},
		func(ctx context.Context, sc scope.Scope, in *sessionPath) (*struct{}, error) {
			return nil, h.Auth.Sessions.End(ctx, sc, in.SessionID)
		})
	rest.Register(r, rest.Op{
		ID: "end-other-sessions", Method: http.MethodDelete, Path: "/auth/sessions", Reach: rest.ReachSelf, Tags: tags,
		Summary:     "End all one's other sessions",
		Description: "All the caller's sessions but the one that asks, at once.",
	},
		func(ctx context.Context, sc scope.Scope, _ *struct{}) (*sessionsEndedOut, error) {
			n, err := h.Auth.Sessions.EndOthers(ctx, sc)
			return &sessionsEndedOut{SessionsEnded{n}}, err
		})
}

// client is what package auth must know of a browser.
func client(b rest.Browser) auth.Browser { return auth.Browser{Agent: b.Agent, Cookie: b.Cookie} }

// signedIn is the answer to a sign-in.
func signedIn(b rest.Browser, got auth.SignedIn) *signedInOut {
	return &signedInOut{b.SetCookie(got.Cookie, got.Session.ExpiresAt.Sub(got.Session.CreatedAt)), got.Session}
}
