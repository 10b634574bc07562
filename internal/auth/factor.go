package auth

import (
	"context"

	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/factor"
	"github.com/gatehouse-dev/gatehouse/internal/fault"
	"github.com/gatehouse-dev/gatehouse/internal/lockout"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
	"github.com/gatehouse-dev/gatehouse/internal/user"
)

// Proofs of sessions that need no second factor.
const (
	proofLink     = "link"
	proofProvider = "provider"
)

// Factors manages second factors: people's own, and for administrators those of others.
type Factors struct {
	*factor.Service
	s *Service
}

// FactorState describes the caller's second factor to the caller.
type FactorState struct {
	factor.State
	Required bool `json:"required" doc:"Whether the tenant requires a second factor of people who sign in with a password."`
}

// enrolFirst returns the refusal of all other requests of a person who must enrol a second factor.
func enrolFirst() error {
	return fault.New(fault.Forbidden, "second_factor_enrolment_required", "this tenant requires a second factor; enrol one before you do anything else")
}

// notConfirmed returns the answer to a wrong password or code of a person who is signed in. It does
// not reveal which of them is wrong.
func notConfirmed() error {
	return fault.New(fault.Forbidden, "confirmation_failed", "the password or the code is wrong")
}

// mustEnrol reports whether a person's session only allows enrolling, because the tenant requires a
// second factor and the person has none. A session that is older than the enrolment is refused.
func mustEnrol(ctx context.Context, tx *db.Tx, r *cachedTenant, ss session) (bool, error) {
	if !r.facts.Load().RequireFactor || ss.Proof != string(factor.None) || ss.Issuer != "" {
		return false, nil
	}
	enrolled, err := factor.Enrolled(ctx, tx, ss.UserID)
	if err == nil && enrolled {
		err = refused()
	}
	return true, err
}

// ownStore returns the store of a person who acts on their own second factor.
func (f *Factors) ownStore(ctx context.Context, sc scope.Scope) (*db.DB, scope.Scope, error) {
	if sc.Actor.Kind != scope.Person || sc.Session == "" {
		return nil, sc, fault.New(fault.Forbidden, "permission_denied", "only people who are signed in have a second factor")
	}
	home, err := homeStore(ctx, f.s.Stores, sc)
	sc.Tenant = Home(sc)
	return home, sc, err
}

// State describes the caller's second factor.
func (f *Factors) State(ctx context.Context, sc scope.Scope) (FactorState, error) {
	home, sc, err := f.ownStore(ctx, sc)
	if err != nil {
		return FactorState{}, err
	}
	r, err := f.s.get(ctx, sc.Tenant, f.s.Now())
	if err != nil {
		return FactorState{}, err
	}
	out := FactorState{Required: r.facts.Load().RequireFactor}
	out.State, err = db.ReadStore(ctx, home, func(tx *db.Tx) (factor.State, error) { return factor.StateOf(ctx, tx, sc.Actor.ID) })
	return out, err
}

// Begin creates the secret of a new second factor. The caller must send the password, except right
// after signing in to enrol. Faults: Conflict for people who have a second factor or no password,
// Forbidden confirmation_failed.
func (f *Factors) Begin(ctx context.Context, sc scope.Scope, password string) (factor.Enrolment, error) {
	home, sc, err := f.ownStore(ctx, sc)
	if err != nil {
		return factor.Enrolment{}, err
	}
	var out factor.Enrolment
	begin := func(tx *db.Tx, u user.User) (err error) {
		out, err = f.Service.Begin(ctx, tx, sc.Tenant, u)
		return err
	}
	if sc.EnrolOnly {
		err = home.Write(ctx, func(tx *db.Tx) error {
			if err := user.RequireActor(ctx, tx, sc); err != nil {
				return err
			}
			u, err := user.LockByID(ctx, tx, sc.Actor.ID)
			if err != nil {
				return err
			}
			return begin(tx, u)
		})
		return out, err
	}
	err = f.withPassword(ctx, home, sc, password, nil, begin)
	return out, err
}

// Confirm activates the caller's new second factor with a first code from its app, and returns the
// recovery codes. It ends the caller's other sessions, which started without the factor.
func (f *Factors) Confirm(ctx context.Context, sc scope.Scope, code string) ([]string, error) {
	home, sc, err := f.ownStore(ctx, sc)
	if err != nil {
		return nil, err
	}
	var codes []string
	err = home.Write(ctx, func(tx *db.Tx) error {
		u, err := user.LockByID(ctx, tx, sc.Actor.ID)
		if err != nil {
			return err
		}
		root, err := rootOf(ctx, tx, sc.Session)
		if err != nil {
			return err
		}
		if root == "" { // ended meanwhile
			return refused()
		}
		if codes, err = f.Service.Confirm(ctx, tx, sc, u, code); err != nil {
			return err
		}
		if codes == nil {
			return fault.New(fault.Forbidden, "confirmation_failed", "the code is wrong; check that the clock of the device is right, and send the code that the app shows now")
		}
		return f.endOthers(ctx, tx, u, root, factor.Timed)
	})
	return codes, err
}

// endOthers ends all sessions of a person except one, which has given a new proof.
func (f *Factors) endOthers(ctx context.Context, tx *db.Tx, u user.User, root string, proof factor.Proof) error {
	if err := deleteOthersOf(ctx, tx, u.ID, root); err != nil {
		return err
	}
	if err := setProof(ctx, tx, root, string(proof)); err != nil {
		return err
	}
	if err := user.RecordPasswordUse(ctx, tx, u, proof.Methods()); err != nil {
		return err
	}
	_, err := tx.Bump(ctx, user.Revision)
	return err
}

// Renew replaces the caller's recovery codes. It needs the password and a code.
func (f *Factors) Renew(ctx context.Context, sc scope.Scope, password, code string) ([]string, error) {
	home, sc, err := f.ownStore(ctx, sc)
	if err != nil {
		return nil, err
	}
	var codes []string
	err = f.withPassword(ctx, home, sc, password, &code, func(tx *db.Tx, u user.User) (err error) {
		codes, err = f.Service.Renew(ctx, tx, sc, u)
		return err
	})
	return codes, err
}

// Disable removes the caller's second factor. It needs the password and a code, and ends the
// caller's other sessions.
func (f *Factors) Disable(ctx context.Context, sc scope.Scope, password, code string) error {
	home, sc, err := f.ownStore(ctx, sc)
	if err != nil {
		return err
	}
	return f.withPassword(ctx, home, sc, password, &code, func(tx *db.Tx, u user.User) error {
		if err := f.Service.Disable(ctx, tx, sc, u); err != nil {
			return err
		}
		root, err := rootOf(ctx, tx, sc.Session)
		if err != nil {
			return err
		}
		return f.endOthers(ctx, tx, u, root, factor.None)
	})
}

// withPassword runs then in a transaction if the caller's password is correct, and the code too
// unless it is nil. A wrong one counts as a failed sign-in.
func (f *Factors) withPassword(ctx context.Context, home *db.DB, sc scope.Scope, password string, code *string, then func(tx *db.Tx, u user.User) error) error {
	var u user.User
	enrolled := false
	err := home.Read(ctx, func(tx *db.Tx) (err error) {
		if u, err = user.ByID(ctx, tx, sc.Actor.ID); err == nil {
			enrolled, err = factor.Enrolled(ctx, tx, u.ID)
		}
		return err
	})
	switch {
	case err != nil:
		return err
	case u.PasswordHash == "":
		return fault.New(fault.Conflict, "no_password", "you do not sign in with a password, so there is nothing to add a second factor to")
	case code != nil && !enrolled:
		return fault.New(fault.Conflict, "no_second_factor", "you have no second factor")
	}
	right, g, rehash, err := f.s.check(ctx, home, sc, u.Username, password)
	if err != nil {
		return err
	}
	in := &passwordSignIn{Guess: g, rehash: rehash}
	if code != nil {
		in.code = *code
	}
	var refusal error
	err = home.Write(ctx, func(tx *db.Tx) error {
		if err := user.RequireActor(ctx, tx, sc); err != nil {
			return err
		}
		u, err := user.LockByID(ctx, tx, sc.Actor.ID)
		if err != nil {
			return err
		}
		if !right || u.ID != g.User.ID || u.PasswordHash != g.User.PasswordHash {
			refusal = notConfirmed()
			return f.s.recordFailure(ctx, tx, sc, g)
		}
		if code != nil {
			_, why, err := f.verifyCode(ctx, tx, sc.Tenant, sc, u, in)
			if err != nil || why != nil {
				if refusal = why; fault.Is(why, fault.Unauthenticated) {
					refusal = notConfirmed()
				}
				return err
			}
		}
		if err := g.NoteSuccess(ctx, tx); err != nil {
			return err
		}
		return then(tx, u)
	})
	if err != nil {
		return err
	}
	return refusal
}

// StateOf describes the second factor of a person of the tenant. Fault: NotFound.
func (f *Factors) StateOf(ctx context.Context, sc scope.Scope, userID string) (factor.State, error) {
	var out factor.State
	err := f.s.Stores.Read(ctx, sc.Tenant, func(tx *db.Tx) error {
		u, err := user.ByID(ctx, tx, userID)
		if err != nil {
			return err
		}
		out, err = factor.StateOf(ctx, tx, u.ID)
		return err
	})
	return out, err
}

// ResetOf removes the second factor of a person who has lost it, and ends the person's sessions.
// The caller must hold all permissions of the person, and must be another person: people disable
// their own factor with a code. Faults: NotFound, Forbidden, Conflict if there is none.
func (f *Factors) ResetOf(ctx context.Context, sc scope.Scope, userID string) error {
	return f.s.Stores.Write(ctx, sc.Tenant, func(tx *db.Tx) error {
		u, err := user.LockByID(ctx, tx, userID)
		if err != nil {
			return err
		}
		if err := user.MayChange(sc, u); err != nil {
			return err
		}
		if sc.Actor.Kind == scope.Person && sc.Actor.ID == u.ID && Home(sc) == sc.Tenant {
			return fault.New(fault.Forbidden, "permission_denied", "disable your own second factor with your password and a code")
		}
		had, err := f.Service.Reset(ctx, tx, sc, u)
		if err != nil {
			return err
		}
		if !had {
			return fault.New(fault.Conflict, "no_second_factor", "the person has no second factor")
		}
		if err := f.forgetMethods(ctx, tx, u); err != nil {
			return err
		}
		return RevokeUser(ctx, tx, u.ID, user.EndsSessions)
	})
}

// forgetMethods clears how a person last signed in, and unlocks their codes.
func (f *Factors) forgetMethods(ctx context.Context, tx *db.Tx, u user.User) error {
	if err := lockout.ClearCodes(ctx, tx, u.ID); err != nil {
		return err
	}
	return user.RecordPasswordUse(ctx, tx, u, factor.None.Methods())
}

// drop is ResetOf for an operator on the server's host, within tx. The person's sessions have
// already ended.
func (f *Factors) drop(ctx context.Context, tx *db.Tx, sc scope.Scope, u user.User) error {
	u, err := user.LockByID(ctx, tx, u.ID)
	if err != nil {
		return err
	}
	if _, err := f.Service.Reset(ctx, tx, sc, u); err != nil {
		return err
	}
	return f.forgetMethods(ctx, tx, u)
}

// verifyCode checks the code of a sign-in whose password was correct. why is the refusal of a wrong
// code, which is counted.
func (f *Factors) verifyCode(ctx context.Context, tx *db.Tx, t scope.TenantID, sc scope.Scope, u user.User, in *passwordSignIn) (proof factor.Proof, why, err error) {
	sc.Tenant = t
	sc.Actor = scope.Actor{Kind: scope.Person, ID: u.ID, Name: u.Username, Roles: u.Roles, IP: sc.Actor.IP}
	if factor.IsTimed(in.code) {
		wait, err := lockout.ReserveCode(ctx, tx, u.ID, f.s.Now())
		if err != nil {
			return proof, nil, err
		}
		if wait > 0 {
			return proof, lockout.Locked(wait), nil
		}
	}
	if proof, err = f.Verify(ctx, tx, sc, u, in.code); err != nil {
		return proof, nil, err
	}
	if proof == factor.None {
		return proof, wrongCode(), f.s.recordFailure(ctx, tx, sc, in.Guess)
	}
	return proof, nil, lockout.ClearCodes(ctx, tx, u.ID)
}
