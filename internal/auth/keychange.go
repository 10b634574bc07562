package auth

import (
	"context"
	"slices"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/fault"
	"github.com/gatehouse-dev/gatehouse/internal/patch"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
	"github.com/gatehouse-dev/gatehouse/internal/user"
)

// KeyChange is a change of an API key; absent members stay.
type KeyChange struct {
	Name      patch.Field[string]    `json:"name,omitzero" minLength:"1" maxLength:"128" doc:"What the key is for." example:"ci"`
	Scopes    patch.Field[[]string]  `json:"scopes,omitzero" minItems:"1" maxItems:"64" doc:"What the key may do from now on; replaces all scopes. The caller must hold them." example:"[\"policies:read\"]"`
	ExpiresAt patch.Field[time.Time] `json:"expires_at,omitzero" doc:"When it ends; null: only when it is revoked." example:"2030-01-01T00:00:00Z"`
}

// checkLive refuses (409) a key that has expired or was revoked.
func checkLive(k Key, now time.Time) error {
	if k.ExpiresAt != nil && !k.ExpiresAt.After(now) {
		return fault.New(fault.Conflict, "key_expired", "the key has expired: create a new one")
	}
	return nil
}

// UpdateKey changes the members of a key that were sent, and the tokens that were made from
// it. The caller must be able to create a key like the result: 403 for scopes that the
// caller does not hold, for an end later than the caller's own, and for the other
// environment. A key that has ended cannot be changed: 409.
func (s *Service) UpdateKey(ctx context.Context, sc scope.Scope, id string, ch KeyChange) (Key, error) {
	var after Key
	err := s.Stores.Write(ctx, sc.Tenant, func(tx *db.Tx) error {
		before, err := lockKey(ctx, tx, id)
		if err != nil {
			return err
		}
		if err := checkLive(before, s.Now()); err != nil {
			return err
		}
		after = before
		ch.Name.Apply(&after.Name)
		ch.Scopes.Apply(&after.Scopes)
		ch.ExpiresAt.ApplyPointer(&after.ExpiresAt)
		if after, err = s.validateNewKey(sc, after); err != nil {
			return err
		}
		if err := checkKeyLifetime(ctx, tx, sc, after); err != nil {
			return err
		}
		if err := updateKey(ctx, tx, after); err != nil {
			return err
		}
		if _, err := tx.Bump(ctx, user.Revision); err != nil {
			return err
		}
		return s.noteKey(ctx, tx, sc, after, "API_KEY_UPDATED", changesOf(before, after))
	})
	return after, err
}

// changesOf lists the differences between two states of a key.
func changesOf(before, after Key) map[string]any {
	out := map[string]any{}
	put := func(name string, was, is any, same bool) {
		if !same {
			out[name] = map[string]any{"from": was, "to": is}
		}
	}
	put("name", before.Name, after.Name, before.Name == after.Name)
	put("scopes", before.Scopes, after.Scopes, slices.Equal(before.Scopes, after.Scopes))
	put("expires_at", before.ExpiresAt, after.ExpiresAt, sameEnd(before.ExpiresAt, after.ExpiresAt))
	return out
}

func sameEnd(a, b *time.Time) bool {
	return a == b || a != nil && b != nil && a.Equal(*b)
}

// lockUnchanged locks a key that was read before. It fails if the key has changed since, so
// that a new key does not get rights that a change has removed.
func lockUnchanged(ctx context.Context, tx *db.Tx, old Key) error {
	now, err := lockKey(ctx, tx, old.ID)
	if err != nil {
		return err
	}
	if !slices.Equal(now.Scopes, old.Scopes) || !sameEnd(now.ExpiresAt, old.ExpiresAt) {
		return fault.New(fault.Conflict, "key_changed", "the key has changed since you read it: read it again")
	}
	return nil
}
