package factor

import (
	"context"
	"io"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/audit"
	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/event"
	"github.com/gatehouse-dev/gatehouse/internal/fault"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
	"github.com/gatehouse-dev/gatehouse/internal/secret"
	"github.com/gatehouse-dev/gatehouse/internal/user"
)

// stepsKept is how long used steps are remembered. A clock may be set back by less than that.
const stepsKept = 24 * time.Hour

// Proof is what a person proved in addition to the password.
type Proof string

// The proofs. None means that the code was wrong.
const (
	None     Proof = ""
	Timed    Proof = "otp"
	Recovery Proof = "recovery_code"
)

// Methods returns the authentication methods (RFC 8176) of a sign-in with a password and p.
func (p Proof) Methods() []string {
	switch p {
	case Timed:
		return []string{"pwd", "otp", "mfa"}
	case Recovery:
		return []string{"pwd", "mfa"}
	default:
		return []string{"pwd"}
	}
}

// State is the state of a person's second factor.
type State struct {
	Enrolled   bool       `json:"enrolled" doc:"Whether sign-ins with a password need a code."`
	EnrolledAt *time.Time `json:"enrolled_at" doc:"When the second factor was confirmed; null if there is none."`
	CodesLeft  int64      `json:"recovery_codes_left" doc:"How many recovery codes can still be used."`
}

// Enrolment is a second factor that waits for its first code. It is returned only once.
type Enrolment struct {
	Secret string `json:"secret" doc:"The secret for the authenticator app, in base32."`
	URI    string `json:"otpauth_uri" doc:"The same as an otpauth:// address: SHA-1, six digits, 30 seconds."`
	QR     string `json:"qr_svg" doc:"The address as a QR code, an SVG image."`
}

// Service keeps second factors. All fields are needed.
type Service struct {
	Stores *db.Cluster
	// Box seals the secrets.
	Box    *secret.Box
	Now    func() time.Time
	Random io.Reader
}

// place names the person that a sealed secret is bound to.
func place(t scope.TenantID, userID string) string {
	return "user_factors/" + string(t) + "/" + userID
}

// Enrolled reports whether a person has a confirmed second factor.
func Enrolled(ctx context.Context, tx *db.Tx, userID string) (bool, error) {
	r, err := selectRow(ctx, tx, userID)
	return r.ConfirmedAt != nil, err
}

// StateOf returns the state of a person's second factor.
func StateOf(ctx context.Context, tx *db.Tx, userID string) (State, error) {
	r, err := selectRow(ctx, tx, userID)
	if err != nil || r.ConfirmedAt == nil {
		return State{}, err
	}
	left, err := countRecovery(ctx, tx, userID)
	return State{Enrolled: true, EnrolledAt: r.ConfirmedAt, CodesLeft: left}, err
}

// Begin makes a new secret for a person. It replaces one that was not confirmed. Fault: Conflict if
// the person has a second factor.
func (s *Service) Begin(ctx context.Context, tx *db.Tx, t scope.TenantID, u user.User) (Enrolment, error) {
	old, err := selectRow(ctx, tx, u.ID)
	if err != nil {
		return Enrolment{}, err
	}
	if old.ConfirmedAt != nil {
		return Enrolment{}, fault.New(fault.Conflict, "second_factor_exists", "you have a second factor already; disable it first")
	}
	var raw [secretBytes]byte
	if _, err := io.ReadFull(s.Random, raw[:]); err != nil {
		return Enrolment{}, err
	}
	text := encoding.EncodeToString(raw[:])
	out := Enrolment{Secret: text, URI: address(text, string(t), u.Username)}
	if out.QR, err = drawing(out.URI); err != nil {
		return Enrolment{}, err
	}
	sealed, err := s.Box.Seal(raw[:], place(t, u.ID))
	if err != nil {
		return Enrolment{}, err
	}
	return out, putRow(ctx, tx, row{UserID: u.ID, Sealed: sealed, CreatedAt: db.Stamp(s.Now())})
}

// Confirm confirms an enrolment if the code is right, and returns the recovery codes. If it returns
// none, the code was wrong. Fault: Conflict if there is no enrolment to confirm.
func (s *Service) Confirm(ctx context.Context, tx *db.Tx, sc scope.Scope, u user.User, code string) ([]string, error) {
	r, err := selectRow(ctx, tx, u.ID)
	if err != nil {
		return nil, err
	}
	if r.Sealed == nil || r.ConfirmedAt != nil {
		return nil, fault.New(fault.Conflict, "no_enrolment", "there is no second factor to confirm; begin an enrolment first")
	}
	ok, err := s.useTimed(ctx, tx, sc.Tenant, r, clean(code))
	if err != nil || !ok {
		return nil, err
	}
	now := db.Stamp(s.Now())
	r.ConfirmedAt = &now
	if err := putRow(ctx, tx, r); err != nil {
		return nil, err
	}
	codes, err := s.renew(ctx, tx, u.ID)
	if err != nil {
		return nil, err
	}
	return codes, s.record(ctx, tx, sc, u, "SECOND_FACTOR_ENROLLED", "enrolled", nil)
}

// Verify checks a code of a person's app, or a recovery code, and marks it as used. It returns None
// if the code is wrong or was used before, or if the person has no second factor.
func (s *Service) Verify(ctx context.Context, tx *db.Tx, sc scope.Scope, u user.User, code string) (Proof, error) {
	r, err := selectRow(ctx, tx, u.ID)
	if err != nil || r.ConfirmedAt == nil {
		return None, err
	}
	text := clean(code)
	if IsTimed(text) {
		ok, err := s.useTimed(ctx, tx, sc.Tenant, r, text)
		if err != nil || !ok {
			return None, err
		}
		return Timed, nil
	}
	ok, err := useRecovery(ctx, tx, u.ID, recoveryDigest(u.ID, text), s.Now())
	if err != nil || !ok {
		return None, err
	}
	left, err := countRecovery(ctx, tx, u.ID)
	if err != nil {
		return None, err
	}
	return Recovery, s.record(ctx, tx, sc, u, "RECOVERY_CODE_USED", "recovery_code_used", map[string]any{"recovery_codes_left": left})
}

// useTimed checks a code of an app, and marks its step as used.
func (s *Service) useTimed(ctx context.Context, tx *db.Tx, t scope.TenantID, r row, code string) (bool, error) {
	raw, err := s.Box.Open(r.Sealed, place(t, r.UserID))
	if err != nil {
		return false, fault.Wrap(err, "open the secret of a second factor")
	}
	now := s.Now()
	if err := deleteStepsBefore(ctx, tx, r.UserID, stepAt(now.Add(-stepsKept))); err != nil {
		return false, err
	}
	for _, step := range matches(raw, code, now) {
		if ok, err := useStep(ctx, tx, r.UserID, step); err != nil || ok {
			return ok, err
		}
	}
	return false, nil
}

// Renew replaces the recovery codes of a person, and returns the new ones. The caller has checked
// that the person has a second factor.
func (s *Service) Renew(ctx context.Context, tx *db.Tx, sc scope.Scope, u user.User) ([]string, error) {
	codes, err := s.renew(ctx, tx, u.ID)
	if err != nil {
		return nil, err
	}
	return codes, s.record(ctx, tx, sc, u, "RECOVERY_CODES_RENEWED", "recovery_codes_renewed", nil)
}

// Disable removes a person's second factor on the person's own request.
func (s *Service) Disable(ctx context.Context, tx *db.Tx, sc scope.Scope, u user.User) error {
	if _, err := deleteAll(ctx, tx, u.ID); err != nil {
		return err
	}
	return s.record(ctx, tx, sc, u, "SECOND_FACTOR_DISABLED", "disabled", nil)
}

// Reset removes another person's second factor. It reports whether there was one.
func (s *Service) Reset(ctx context.Context, tx *db.Tx, sc scope.Scope, u user.User) (bool, error) {
	had, err := deleteAll(ctx, tx, u.ID)
	if err != nil || !had {
		return false, err
	}
	return true, s.record(ctx, tx, sc, u, "SECOND_FACTOR_RESET", "reset", nil)
}

// Forget removes what is stored about a person who is being deleted.
func Forget(ctx context.Context, tx *db.Tx, userID string) error {
	_, err := deleteAll(ctx, tx, userID)
	return err
}

// record writes the audit entry and the event of a change. Neither contains a secret.
func (s *Service) record(ctx context.Context, tx *db.Tx, sc scope.Scope, u user.User, kind, what string, more map[string]any) error {
	err := audit.Append(ctx, tx, sc, s.Now(), audit.Entry{Type: kind, Object: "user", ObjectID: u.ID, ObjectName: u.Username, EventContext: more})
	if err != nil {
		return err
	}
	return event.Emit(ctx, tx, sc, event.Event{
		Type: event.UserUpdated, ObjectKind: "user", ObjectID: u.ID, ObjectName: u.Username, Data: map[string]any{"second_factor": what},
	})
}
