package tenant

import (
	"context"

	"github.com/gatehouse-dev/gatehouse/internal/audit"
	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/fault"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

// Enforcement returns the mode of an environment; shadow until it is changed.
func (s *Service) Enforcement(ctx context.Context, sc scope.Scope, env scope.Env) (Enforcement, error) {
	if err := checkEnv(sc, env); err != nil {
		return Enforcement{}, err
	}
	return db.Read(ctx, s.Stores, sc.Tenant, func(tx *db.Tx) (Enforcement, error) { return EnforcementIn(ctx, tx, env) })
}

// EnforcementIn is Enforcement inside the caller's transaction.
func EnforcementIn(ctx context.Context, tx *db.Tx, env scope.Env) (Enforcement, error) {
	e, err := selectEnforcement(ctx, tx, env)
	return db.FoundOr(e, err, Enforcement{Environment: env, Mode: Shadow})
}

// SetEnforcement sets the mode of an environment. Production can enforce only while sandbox does
// (409) and if the license allows it (403). Bouncers learn of it as of a changed control: through
// the revision env:<environment>.
func (s *Service) SetEnforcement(ctx context.Context, sc scope.Scope, env scope.Env, mode string) (Enforcement, error) {
	if err := checkEnv(sc, env); err != nil {
		return Enforcement{}, err
	}
	if mode != Shadow && mode != Enforce {
		return Enforcement{}, fault.Invalidf("/mode", "must be shadow or enforce")
	}
	if env == scope.Production && mode == Enforce && s.MayEnforce != nil {
		if err := s.MayEnforce(ctx, sc); err != nil {
			return Enforcement{}, err
		}
	}
	store, err := s.Stores.Tenant(ctx, sc.Tenant)
	if err != nil {
		return Enforcement{}, err
	}
	now := db.Stamp(s.Now())
	e := Enforcement{Environment: env, Mode: mode, UpdatedAt: &now, UpdatedBy: sc.Actor.Name}
	err = store.Write(ctx, func(tx *db.Tx) error {
		if err := tx.Lock(ctx, "enforcement"); err != nil {
			return err
		}
		before, err := EnforcementIn(ctx, tx, env)
		if err != nil {
			return err
		}
		if env == scope.Production && mode == Enforce {
			sandbox, err := EnforcementIn(ctx, tx, scope.Sandbox)
			if err != nil {
				return err
			}
			if sandbox.Mode != Enforce {
				return fault.New(fault.Conflict, "sandbox_first", "sandbox must enforce before production does")
			}
		}
		if err := putEnforcement(ctx, tx, e); err != nil {
			return err
		}
		if _, err := tx.Bump(ctx, "env:"+string(env)); err != nil {
			return err
		}
		return audit.Append(ctx, tx, sc, now, audit.Entry{
			Type: "ENFORCEMENT_CHANGED", Object: "environment", ObjectID: string(env), ObjectName: string(env), Env: env,
			Changes: map[string]any{"mode": map[string]any{"from": before.Mode, "to": mode}},
		})
	})
	return e, err
}

// checkEnv refuses an unknown environment, and one for which the credential is not valid.
func checkEnv(sc scope.Scope, env scope.Env) error {
	if !env.Valid() {
		return fault.New(fault.BadRequest, "invalid_environment", "the environment must be sandbox or production")
	}
	return sc.May(env)
}
