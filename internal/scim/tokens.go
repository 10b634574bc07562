package scim

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/audit"
	"github.com/gatehouse-dev/gatehouse/internal/auth"
	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/fault"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
	"github.com/gatehouse-dev/gatehouse/internal/user"
)

// requestsAnHour is how many requests an hour a token may make: 25 a second, the most that
// directories send.
const requestsAnHour = 90_000

// Token is a bearer token of a directory. It is valid only for the SCIM operations of its tenant.
type Token struct {
	ID         string     `json:"id" db:"id" doc:"Identifies the token; not secret."`
	Name       string     `json:"name" db:"name" doc:"Which directory the token is for."`
	Token      string     `json:"token,omitempty" db:"-" doc:"The token itself; only the answer that creates it contains it."`
	Hint       string     `json:"hint" db:"-" doc:"The beginning of the token, to recognise it."`
	CreatedBy  string     `json:"created_by" db:"created_by" doc:"Who created it."`
	CreatedAt  time.Time  `json:"created_at" db:"created_at" doc:"When it was created."`
	RotatedAt  time.Time  `json:"rotated_at" db:"-" doc:"When its current value was created."`
	LastUsedAt *time.Time `json:"last_used_at" db:"-" doc:"When it was last used, accurate to half a minute; null if never."`
}

// TokenDraft is the body of a create.
type TokenDraft struct {
	Name string `json:"name" minLength:"1" maxLength:"128" doc:"Which directory the token is for." example:"Okta"`
}

// TokenPage is one page of tokens.
type TokenPage struct {
	Tokens []Token `json:"tokens" nullable:"false" doc:"The tokens, oldest first; the tokens themselves are never returned."`
	Total  int64   `json:"total" doc:"Total number."`
}

// Tokens holds the use cases of tokens. All fields are needed.
type Tokens struct {
	Stores *db.Cluster
	Auth   *auth.Service
	Now    func() time.Time
	// NewID returns a new, random id.
	NewID func() string
}

// show returns the token with the value, hint and times of its key.
func (t Token) show(k auth.DedicatedKey) Token {
	t.Token, t.Hint, t.RotatedAt, t.LastUsedAt = k.Key, k.Hint, k.CreatedAt, k.LastUsedAt
	return t
}

// mayHandOut returns Forbidden if the caller does not hold the permissions of all roles that a
// token can grant.
func mayHandOut(ctx context.Context, tx *db.Tx, sc scope.Scope) error {
	r, err := selectRecord(ctx, tx)
	if err != nil {
		return err
	}
	return user.MayGrantRoles(sc, r.Settings.roles())
}

// Create makes a token. The caller must hold the permissions of all roles in the settings.
// Faults: Forbidden, the fault of fault.CheckCount beyond maxTokens, Invalid.
func (s *Tokens) Create(ctx context.Context, sc scope.Scope, d TokenDraft) (Token, error) {
	t := Token{ID: s.NewID(), Name: strings.TrimSpace(d.Name), CreatedBy: sc.Actor.Name, CreatedAt: db.Stamp(s.Now())}
	if t.Name == "" {
		return Token{}, fault.Invalidf("/name", "must not be empty")
	}
	k, err := s.Auth.Dedicated.Issue(ctx, sc, scope.Directory, t.ID, t.Name, 0, func(tx *db.Tx) error {
		if err := tx.Lock(ctx, lock); err != nil {
			return err
		}
		if err := mayHandOut(ctx, tx, sc); err != nil {
			return err
		}
		n, err := countTokens(ctx, tx)
		if err := fault.CheckCounted(n, err, maxTokens, "a tenant may have %d tokens"); err != nil {
			return err
		}
		return insertToken(ctx, tx, t)
	})
	return t.show(k), err
}

// Rotate gives a token a new value. The old one stays valid for grace.
func (s *Tokens) Rotate(ctx context.Context, sc scope.Scope, id string, grace time.Duration) (Token, error) {
	t, err := s.load(ctx, sc, id)
	if err != nil {
		return Token{}, err
	}
	k, err := s.Auth.Dedicated.Issue(ctx, sc, scope.Directory, id, t.Name, grace, func(tx *db.Tx) error {
		if err := tx.Lock(ctx, lock); err != nil {
			return err
		}
		if err := mayHandOut(ctx, tx, sc); err != nil {
			return err
		}
		_, err := selectToken(ctx, tx, id) // it may have been revoked in the meantime
		return err
	})
	return t.show(k), err
}

func (s *Tokens) load(ctx context.Context, sc scope.Scope, id string) (Token, error) {
	return db.Read(ctx, s.Stores, sc.Tenant, func(tx *db.Tx) (Token, error) { return selectToken(ctx, tx, id) })
}

// Revoke removes a token, which stops working at once.
func (s *Tokens) Revoke(ctx context.Context, sc scope.Scope, id string) (Token, error) {
	var t Token
	err := s.Auth.Dedicated.Revoke(ctx, sc, scope.Directory, id, func(tx *db.Tx) error {
		if err := tx.Lock(ctx, lock); err != nil {
			return err
		}
		var err error
		if t, err = selectToken(ctx, tx, id); err != nil {
			return err
		}
		if err := deleteToken(ctx, tx, id); err != nil {
			return err
		}
		return audit.Append(ctx, tx, sc, s.Now(), audit.Entry{Type: "DIRECTORY_KEY_REVOKED", Object: "key", ObjectID: t.ID, ObjectName: t.Name})
	})
	return t, err
}

// List lists the tokens of the tenant.
func (s *Tokens) List(ctx context.Context, sc scope.Scope, skip, limit int) (TokenPage, error) {
	var p TokenPage
	err := s.Stores.Read(ctx, sc.Tenant, func(tx *db.Tx) error {
		var err error
		if p.Tokens, err = selectTokens(ctx, tx, skip, limit); err != nil {
			return err
		}
		for i, t := range p.Tokens {
			keys, err := auth.DedicatedKeys(ctx, tx, scope.Directory, t.ID)
			if err != nil {
				return err
			}
			if len(keys) > 0 {
				p.Tokens[i] = t.show(keys[0])
			}
			for _, k := range keys { // the old value may still be in use
				if last := p.Tokens[i].LastUsedAt; k.LastUsedAt != nil && (last == nil || k.LastUsedAt.After(*last)) {
					p.Tokens[i].LastUsedAt = k.LastUsedAt
				}
			}
		}
		p.Total, err = countTokens(ctx, tx)
		return err
	})
	return p, err
}

// Holder returns the directory that a key was made for. It is one of auth.Config.Holders.
func Holder(ctx context.Context, tx *db.Tx, id string) (auth.Holder, error) {
	t, err := selectToken(ctx, tx, id)
	return auth.Holder{Name: t.Name, Limit: requestsAnHour}, err
}

func unknownToken(err error) error {
	if errors.Is(err, db.ErrNoRows) {
		return fault.NotFoundf("there is no such token")
	}
	return err
}
