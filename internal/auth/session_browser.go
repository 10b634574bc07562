package auth

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"io"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/audit"
	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/fault"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
	"github.com/gatehouse-dev/gatehouse/internal/user"
)

// maxBrowsers is how many browser sessions one person may have; a further sign-in ends the
// oldest.
const maxBrowsers = 50

// cookieBytes is the number of random bytes in a cookie.
const cookieBytes = 32

// Sessions manages the sessions of people: sign-in from browsers, and the list of their
// sessions.
type Sessions struct {
	s     *Service
	links links
}

// Browser describes the client of a sign-in.
type Browser struct {
	// Agent is its User-Agent header.
	Agent string
	// Cookie is the session cookie that it sent, if any: that session ends when a new one
	// starts, so that no session outlives a sign-in.
	Cookie string
}

// SignedIn is a browser's session that has just started.
type SignedIn struct {
	// Cookie is the secret that the browser sends from now on. Only its hash is stored.
	Cookie  string
	Session SessionInfo
}

// startSession starts a session for a person and records the sign-in.
func (b *Sessions) startSession(ctx context.Context, tx *db.Tx, t scope.TenantID, sc scope.Scope, u user.User, open opener) error {
	about, err := open(tx, t, session{UserID: u.ID, IP: sc.Actor.IP})
	if err != nil {
		return err
	}
	sc.Tenant = t
	sc.Actor = scope.Actor{Kind: scope.Person, ID: u.ID, Name: u.Username, Roles: u.Roles, IP: sc.Actor.IP}
	return audit.Append(ctx, tx, sc, b.s.Now(), audit.Entry{
		Type: "LOGIN", Object: "user", ObjectID: u.ID, ObjectName: u.Username, EventContext: about,
	})
}

// Logout ends the caller's sign-in and all sessions made from it. It returns the identity provider
// of the sign-in.
func (b *Sessions) Logout(ctx context.Context, sc scope.Scope) (by Federation, err error) {
	if sc.Session == "" {
		return by, fault.New(fault.BadRequest, "not_a_session", "an API key has no session; revoke the key instead")
	}
	home, err := homeStore(ctx, b.s.Stores, sc)
	if err != nil {
		return by, err
	}
	err = home.Write(ctx, func(tx *db.Tx) error {
		ss, err := selectSession(ctx, tx, sc.Session)
		if errors.Is(err, db.ErrNoRows) {
			return refused()
		}
		if err != nil {
			return err
		}
		root, err := selectSession(ctx, tx, ss.Root)
		if err != nil && !errors.Is(err, db.ErrNoRows) {
			return err
		}
		by = root.Federation
		if err := deleteRoot(ctx, tx, ss.Root); err != nil {
			return err
		}
		if _, err := tx.Bump(ctx, user.Revision); err != nil {
			return err
		}
		sc.Tenant = home.TenantID()
		return audit.Append(ctx, tx, sc, b.s.Now(), audit.Entry{Type: "LOGOUT", Object: "user", ObjectID: sc.Actor.ID, ObjectName: sc.Actor.Name})
	})
	return by, err
}

// open sets the id and end of a session, at most life from now, and writes it.
func (b *Sessions) open(ctx context.Context, tx *db.Tx, ss *session, life time.Duration) error {
	ss.ID, ss.CreatedAt = b.s.NewID(), b.s.Now()
	ss.UsedAt = ss.CreatedAt
	if ss.Root == "" {
		ss.Root = ss.ID
	}
	if end := ss.CreatedAt.Add(life); ss.ExpiresAt.IsZero() || ss.ExpiresAt.After(end) {
		ss.ExpiresAt = end
	}
	if err := dropExpired(ctx, tx, ss.CreatedAt); err != nil {
		return err
	}
	return insertSession(ctx, tx, *ss)
}

// SignIn checks a person's proof and starts a session of a browser. Its errors are those of Login.
func (b *Sessions) SignIn(ctx context.Context, sc scope.Scope, p Proof, from Browser) (SignedIn, error) {
	var in SignedIn
	if err := b.s.login(ctx, sc, p, forBrowser, b.opener(ctx, &in, from, "password")); err != nil {
		return SignedIn{}, err
	}
	return in, b.EndCookie(ctx, from.Cookie)
}

// opener opens a session whose secret is a new cookie.
func (b *Sessions) opener(ctx context.Context, in *SignedIn, from Browser, by string) opener {
	return func(tx *db.Tx, t scope.TenantID, ss session) (map[string]any, error) {
		cookie, err := b.newCookie(t)
		if err != nil {
			return nil, err
		}
		digest := cookieDigest(cookie)
		ss.Digest, ss.Agent = hex.EncodeToString(digest[:]), cleanAgent(from.Agent)
		if err := b.open(ctx, tx, &ss, b.s.SessionLife); err != nil {
			return nil, err
		}
		dropped, err := keepNewest(ctx, tx, ss.UserID, maxBrowsers)
		if err != nil {
			return nil, err
		}
		if dropped > 0 {
			if _, err := tx.Bump(ctx, user.Revision); err != nil {
				return nil, err
			}
		}
		*in = SignedIn{Cookie: cookie, Session: b.info(ss, ss.ID)}
		return map[string]any{"session": "browser", "session_id": ss.ID, "by": by, "device": in.Session.Device}, nil
	}
}

// newCookie makes a cookie's value: the tenant of its session, and 256 random bits.
func (b *Sessions) newCookie(t scope.TenantID) (string, error) {
	var raw [cookieBytes]byte
	if _, err := io.ReadFull(b.s.Random, raw[:]); err != nil {
		return "", err
	}
	return string(t) + "." + base64.RawURLEncoding.EncodeToString(raw[:]), nil
}

// cookieDigest returns the stored form of a cookie.
func cookieDigest(text string) [sha256.Size]byte {
	return sha256.Sum256([]byte("cookie\x00" + text))
}

// load makes the entry of a browser's session.
func (b *Sessions) load(ctx context.Context, text string, digest [sha256.Size]byte, now time.Time) (*entry, error) {
	t, ok := scope.SessionTenant(text)
	if !ok {
		return nil, refused()
	}
	e, err := b.s.newEntry(ctx, t, now)
	if err != nil {
		return nil, err
	}
	store, err := b.s.Stores.Tenant(ctx, t)
	if err != nil {
		return nil, err
	}
	err = store.Read(ctx, func(tx *db.Tx) error {
		ss, err := selectBrowser(ctx, tx, hex.EncodeToString(digest[:]))
		if err != nil {
			return err
		}
		if err := fillFromUser(ctx, tx, e, ss); err != nil {
			return err
		}
		e.expires, e.idle, e.shown = ss.ExpiresAt.UnixNano(), b.s.SessionIdle, asCookie
		if e.expired(now) {
			return refused()
		}
		return nil
	})
	return e, refuseGone(err)
}

// limitToRoot limits the life of a token that was made from a person's sign-in to that of the
// sign-in: the token ends when the browser's session has been idle for too long. Its use counts as
// use of the sign-in.
func (b *Sessions) limitToRoot(ctx context.Context, tx *db.Tx, e *entry, ss session, now time.Time) error {
	if ss.Root == ss.ID {
		return nil
	}
	root, err := selectSession(ctx, tx, ss.Root)
	if err != nil {
		return err
	}
	e.used = &lastUse{tenant: e.tenant.id, id: root.ID, session: true}
	e.used.at.Store(root.UsedAt.UnixNano())
	if root.Digest != "" {
		e.idle = b.s.SessionIdle
	}
	if !root.ExpiresAt.After(now) || e.expired(now) {
		return refused()
	}
	return nil
}

// EndCookie ends the session of a cookie, if there is one. Call it after a new sign-in, so that the
// browser's earlier session ends.
func (b *Sessions) EndCookie(ctx context.Context, text string) error {
	t, ok := scope.SessionTenant(text)
	if !ok {
		return nil
	}
	_, err := b.s.get(ctx, t, b.s.Now())
	if fault.Is(err, fault.NotFound) {
		return nil // the tenant is gone, and its sessions with it
	}
	if err != nil {
		return err
	}
	store, err := b.s.Stores.Tenant(ctx, t)
	if err != nil {
		return err
	}
	digest := cookieDigest(text)
	return store.Write(ctx, func(tx *db.Tx) error {
		ss, err := selectBrowser(ctx, tx, hex.EncodeToString(digest[:]))
		if errors.Is(err, db.ErrNoRows) {
			return nil
		}
		if err != nil {
			return err
		}
		if err := deleteRoot(ctx, tx, ss.Root); err != nil {
			return err
		}
		_, err = tx.Bump(ctx, user.Revision)
		return err
	})
}
