package auth

import (
	"context"
	"strings"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
	"github.com/gatehouse-dev/gatehouse/internal/user"
)

// Holder is the caller that a dedicated key identifies.
type Holder struct {
	Name string
	// Limit is how many requests the holder may make in an hour; 0: the limit of the tenant's plan.
	Limit int64
	// Permissions are what the key may do, for operations that need a permission of its kind.
	Permissions scope.Permissions
}

// Holders find the holders of dedicated keys by kind and id, in the store of the keys'
// tenant.
type Holders map[scope.ActorKind]func(ctx context.Context, tx *db.Tx, id string) (Holder, error)

// Dedicated issues and revokes keys for one kind of caller. Such a key works only with the
// operations of that kind (rest.Op.Caller), identifies its holder, and does not appear among the
// tenant's API keys.
type Dedicated struct{ s *Service }

// DedicatedKey is a key for one kind of caller and one purpose.
type DedicatedKey struct {
	ID         string     `json:"id" doc:"Identifies the key; not secret."`
	Key        string     `json:"key,omitempty" doc:"The key itself; only the answer that creates it contains it."`
	Hint       string     `json:"hint" doc:"The beginning of the key, to recognise it."`
	CreatedBy  string     `json:"created_by" doc:"Who created it."`
	CreatedAt  time.Time  `json:"created_at" doc:"When it was created."`
	ExpiresAt  *time.Time `json:"expires_at" doc:"When it ends; null: only when it is revoked."`
	LastUsedAt *time.Time `json:"last_used_at" doc:"When it was last used, accurate to half a minute."`
}

func dedicatedKey(k Key) DedicatedKey {
	return DedicatedKey{ID: k.ID, Key: k.Key, Hint: k.Hint, CreatedBy: k.CreatedBy, CreatedAt: k.CreatedAt, ExpiresAt: k.ExpiresAt, LastUsedAt: k.LastUsedAt}
}

// Issue creates a key for a holder in the caller's tenant. Only the answer contains the key.
// The holder's earlier keys end after grace; more runs in the same transaction.
func (d *Dedicated) Issue(ctx context.Context, sc scope.Scope, kind scope.ActorKind, holder, name string, grace time.Duration, more func(tx *db.Tx) error) (DedicatedKey, error) {
	var ended []Key
	k, err := d.s.storeKey(ctx, sc, Key{Name: name, Scopes: []string{}, Dedicated: kind, Holder: holder}, strings.ToUpper(string(kind))+"_KEY_CREATED", func(tx *db.Tx, made Key) error {
		ended = nil
		if err := tx.Lock(ctx, "keys of "+string(kind)+":"+holder); err != nil {
			return err
		}
		if more != nil {
			if err := more(tx); err != nil {
				return err
			}
		}
		all, err := selectDedicated(ctx, tx, kind, holder)
		if err != nil {
			return err
		}
		at := db.Stamp(d.s.Now().Add(grace))
		for _, old := range all {
			switch {
			case old.ID == made.ID:
			case grace <= 0:
				ended = append(ended, old)
				err = deleteKey(ctx, tx, old.ID)
			case old.ExpiresAt == nil || old.ExpiresAt.After(at):
				err = expireKey(ctx, tx, old.ID, at)
			}
			if err != nil {
				return err
			}
		}
		_, err = tx.Bump(ctx, user.Revision)
		return err
	})
	if err != nil {
		return DedicatedKey{}, err
	}
	dropEnded(ctx, d.s, ended...)
	return dedicatedKey(k), nil
}

// Revoke ends all keys of a holder at once. more runs in the same transaction; it may be nil.
func (d *Dedicated) Revoke(ctx context.Context, sc scope.Scope, kind scope.ActorKind, holder string, more func(tx *db.Tx) error) error {
	var ended []Key
	err := d.s.Stores.Write(ctx, sc.Tenant, func(tx *db.Tx) (err error) {
		if err = tx.Lock(ctx, "keys of "+string(kind)+":"+holder); err != nil {
			return err
		}
		if ended, err = selectDedicated(ctx, tx, kind, holder); err != nil {
			return err
		}
		for _, k := range ended {
			if err := deleteKey(ctx, tx, k.ID); err != nil {
				return err
			}
		}
		if _, err := tx.Bump(ctx, user.Revision); err != nil {
			return err
		}
		if more == nil {
			return nil
		}
		return more(tx)
	})
	if err != nil {
		return err
	}
	dropEnded(ctx, d.s, ended...)
	return nil
}

// DedicatedKeys lists a holder's keys within tx, newest first; the keys themselves are not
// returned.
func DedicatedKeys(ctx context.Context, tx *db.Tx, kind scope.ActorKind, holder string) ([]DedicatedKey, error) {
	keys, err := selectDedicated(ctx, tx, kind, holder)
	out := make([]DedicatedKey, len(keys))
	for i, k := range keys {
		out[i] = dedicatedKey(k)
	}
	return out, err
}

// fill fills an entry for a dedicated key. The key's kind gives access to the operations of that
// kind. The key has the permissions of its holder, usually none.
func (hs Holders) fill(ctx context.Context, tx *db.Tx, e *entry, k Key) error {
	find := hs[k.Dedicated]
	if find == nil {
		return refused()
	}
	h, err := find(ctx, tx, k.Holder)
	if err != nil {
		return err
	}
	e.who = Principal{KeyID: k.Holder, Tenant: e.tenant.id, Plan: e.tenant.facts.Load().Plan, RateLimited: true, Limit: h.Limit}
	e.scope = scope.Scope{Tenant: e.tenant.id, Actor: scope.Actor{Kind: k.Dedicated, ID: k.Holder, Name: h.Name}, Permissions: h.Permissions}
	return nil
}
