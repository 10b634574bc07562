package user

import (
	"context"

	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/fault"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

// RequireActor checks within tx that the person who sends a request still has an active account and
// is still signed in. It locks the person until tx ends: a removal either sees what tx inserts, or
// tx sees the removal. Call it in each transaction that inserts what belongs to the caller, before
// other locks and before anything is inserted. It accepts callers who are not people of the tenant:
// keys, and platform administrators in a tenant that is not theirs. Fault: Unauthenticated.
func RequireActor(ctx context.Context, tx *db.Tx, sc scope.Scope) error {
	if sc.Actor.Kind != scope.Person || sc.Platform && sc.Tenant != scope.DefaultTenant {
		return nil
	}
	u, err := LockByID(ctx, tx, sc.Actor.ID)
	if fault.Is(err, fault.NotFound) || err == nil && u.Status != Active {
		return ended()
	}
	if err != nil || sc.Session == "" {
		return err
	}
	// A new person may have the id by now. The session shows that this is the same one.
	there, err := hasSession(ctx, tx, u.ID, sc.Session)
	if err == nil && !there {
		err = ended()
	}
	return err
}

// ended returns the answer to a request whose credential has ended while it ran.
func ended() error {
	return fault.New(fault.Unauthenticated, "invalid_credentials", "the credential is not valid any more")
}
