package identity

import (
	"context"
	"net/http"

	"github.com/gatehouse-dev/gatehouse/internal/auth"
	"github.com/gatehouse-dev/gatehouse/internal/factor"
	"github.com/gatehouse-dev/gatehouse/internal/rest"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

// ChallengeRequest is the body of the operations that complete a sign-in.
type ChallengeRequest struct {
	Challenge string `json:"challenge" minLength:"1" maxLength:"128" writeOnly:"true" doc:"The challenge of the sign-in with the password"`
	Code      string `json:"code" minLength:"1" maxLength:"64" writeOnly:"true" doc:"A code of the authenticator app, or a recovery code"`
}

func (q ChallengeRequest) proof() auth.Proof {
	return auth.Proof{Challenge: q.Challenge, Code: q.Code}
}

// EnrolRequest is the body of POST /auth/second-factor.
type EnrolRequest struct {
	Password string `json:"password,omitempty" maxLength:"1024" writeOnly:"true" doc:"The caller's password; not needed while the session is only good for enrolling"`
}

// CodeRequest is the body of POST /auth/second-factor/confirm.
type CodeRequest struct {
	Code string `json:"code" minLength:"1" maxLength:"64" writeOnly:"true" doc:"The code that the authenticator app shows now"`
}

// RecoveryCodes are shown once.
type RecoveryCodes struct {
	Codes []string `json:"recovery_codes" nullable:"false" doc:"Codes that sign in without the app, each once. They are not shown again"`
}

// ConfirmedRequest is the body of operations that need the password and a code.
type ConfirmedRequest struct {
	Password string `json:"password" minLength:"1" maxLength:"1024" writeOnly:"true" doc:"The caller's password"`
	Code     string `json:"code" minLength:"1" maxLength:"64" writeOnly:"true" doc:"A code of the authenticator app, or a recovery code"`
}

// authFactor registers people's own second factors, and the second step of signing in.
func (h *Handler) authFactor(r *rest.Router) {
	h.secondStep(r)
	tags, path := []string{"Authentication"}, "/auth/second-factor"
	rest.Register(r, rest.Op{
		ID: "get-own-second-factor", Method: http.MethodGet, Path: path, Reach: rest.ReachSelf, Only: rest.People, Enrols: true, Tags: tags,
		Errors:      []int{http.StatusForbidden},
		Summary:     "Your second factor",
		Description: "Whether the caller's sign-ins with a password need a code, and how many recovery codes are left. Only people who are signed in have a second factor: 403 for API keys, here and below.",
	}, func(ctx context.Context, sc scope.Scope, _ *struct{}) (*rest.JSON[auth.FactorState], error) {
		return rest.Answer(h.Auth.Factors.State(ctx, sc))
	})
	rest.Register(r, rest.Op{
		ID: "enrol-second-factor", Method: http.MethodPost, Path: path, Reach: rest.ReachSelf, Only: rest.People, Enrols: true, Tags: tags,
		Errors:      []int{http.StatusForbidden, http.StatusConflict, http.StatusTooManyRequests},
		Summary:     "Enrol a second factor",
		Description: "Draws a secret for an authenticator app (RFC 6238: SHA-1, six digits, 30 seconds) and shows it once, as text, as an otpauth:// address and as a QR code. It counts once it is confirmed with a first code. An enrolment that was not confirmed is replaced. 403 `confirmation_failed`: the password is wrong, which counts as a failed sign-in. 409 `second_factor_exists`: disable the present one first. 409 `no_password`: the caller does not sign in with a password.",
	}, func(ctx context.Context, sc scope.Scope, in *rest.JSON[EnrolRequest]) (*rest.JSON[factor.Enrolment], error) {
		return rest.Answer(h.Auth.Factors.Begin(ctx, sc, in.Body.Password))
	})
	rest.Register(r, rest.Op{
		ID: "confirm-second-factor", Method: http.MethodPost, Path: path + "/confirm", Reach: rest.ReachSelf, Only: rest.People, Enrols: true, Tags: tags,
		Errors:      []int{http.StatusForbidden, http.StatusConflict},
		Summary:     "Confirm a second factor",
		Description: "Makes the enrolment count and answers with ten recovery codes, which are not shown again. The caller's other sessions end. 403 `confirmation_failed`: the code is wrong. 409 `no_enrolment`: there is nothing to confirm.",
	}, func(ctx context.Context, sc scope.Scope, in *rest.JSON[CodeRequest]) (*rest.JSON[RecoveryCodes], error) {
		codes, err := h.Auth.Factors.Confirm(ctx, sc, in.Body.Code)
		return rest.Answer(RecoveryCodes{codes}, err)
	})
	rest.Register(r, rest.Op{
		ID: "renew-recovery-codes", Method: http.MethodPost, Path: path + "/recovery-codes", Reach: rest.ReachSelf, Only: rest.People, Tags: tags,
		Errors:      []int{http.StatusForbidden, http.StatusConflict, http.StatusTooManyRequests},
		Summary:     "Renew the recovery codes",
		Description: "Replaces all recovery codes and answers with ten new ones, which are not shown again. 403 `confirmation_failed`: the password or the code is wrong, which counts as a failed sign-in. 409 `no_second_factor`: the caller has none.",
	}, func(ctx context.Context, sc scope.Scope, in *rest.JSON[ConfirmedRequest]) (*rest.JSON[RecoveryCodes], error) {
		codes, err := h.Auth.Factors.Renew(ctx, sc, in.Body.Password, in.Body.Code)
		return rest.Answer(RecoveryCodes{codes}, err)
	})
	rest.Register(r, rest.Op{
		ID: "disable-second-factor", Method: http.MethodPost, Path: path + "/disable", Reach: rest.ReachSelf, Only: rest.People, Tags: tags,
		Errors:      []int{http.StatusForbidden, http.StatusConflict, http.StatusTooManyRequests},
		Summary:     "Disable your second factor",
		Description: "Removes the second factor and its recovery codes, and ends the caller's other sessions. If the tenant requires a second factor, the caller must then enrol a new one before anything else. Errors as for renewing recovery codes.",
	}, func(ctx context.Context, sc scope.Scope, in *rest.JSON[ConfirmedRequest]) (*struct{}, error) {
		return nil, h.Auth.Factors.Disable(ctx, sc, in.Body.Password, in.Body.Code)
	})
}

// secondStep registers the operations that complete a sign-in after a correct password.
func (h *Handler) secondStep(r *rest.Router) {
	tags := []string{"Authentication"}
	rest.Register(r, rest.Op{
		ID: "login-second-factor", Method: http.MethodPost, Path: "/auth/login/second-factor", Public: true, Tags: tags,
		Errors:      []int{http.StatusUnauthorized, http.StatusForbidden, http.StatusTooManyRequests},
		Summary:     "Complete a sign-in with a code",
		Description: "Answers the challenge of /auth/login with a code of the authenticator app or a recovery code, and issues the token. Each code is accepted once, in its own 30 seconds and in those before and after. 401 `second_factor_invalid`: the code is wrong or was used, which counts as a failed sign-in. 401 `invalid_challenge`: the challenge is older than five minutes, was used, had five wrong codes, or belongs to another tenant.",
	}, func(ctx context.Context, sc scope.Scope, in *rest.JSON[ChallengeRequest]) (*rest.JSON[auth.Grant], error) {
		return rest.Answer(h.Auth.Login(ctx, sc, in.Body.proof()))
	})
	rest.Register(r, rest.Op{
		ID: "sign-in-second-factor", Method: http.MethodPost, Path: "/auth/sessions/second-factor", Public: true, Tags: tags,
		Errors:      []int{http.StatusUnauthorized, http.StatusForbidden, http.StatusTooManyRequests},
		Summary:     "Complete a browser's sign-in with a code",
		Description: "Answers the challenge of /auth/sessions, and starts the browser's session. Errors are the same as for /auth/login/second-factor. The request must come from a page of this origin: 403 `cross_origin` otherwise.",
	}, func(ctx context.Context, sc scope.Scope, in *rest.JSON[ChallengeRequest]) (*signedInOut, error) {
		b, err := r.Browser(ctx)
		if err != nil {
			return nil, err
		}
		got, err := h.Auth.Sessions.SignIn(ctx, sc, in.Body.proof(), browserOf(b))
		return signedIn(b, got), err
	})
}
