package auth

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"io"
	"net/netip"
	"sync"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/fault"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
	"github.com/gatehouse-dev/gatehouse/internal/user"
)

// maxLinks is the largest number of unused links.
const maxLinks = 16

// links holds the sign-in links that this process has issued. They are in memory only: they
// end with the process, and no store contains them.
type links struct {
	mu   sync.Mutex
	open map[[sha256.Size]byte]link
}

// link is a sign-in link that no browser has used yet.
type link struct {
	tenant scope.TenantID
	userID string
	// created is when the account was created. A later account may have the same id.
	created time.Time
	until   time.Time
}

// Link returns a secret that signs a person in once, within life, from this machine only. The
// command that starts the server uses it for its user.
func (b *Sessions) Link(ctx context.Context, t scope.TenantID, name string, life time.Duration) (string, error) {
	u, err := db.Read(ctx, b.s.Stores, t, func(tx *db.Tx) (user.User, error) { return user.ByName(ctx, tx, name) })
	if err != nil {
		return "", err
	}
	var raw [cookieBytes]byte
	if _, err := io.ReadFull(b.s.Random, raw[:]); err != nil {
		return "", err
	}
	secret := base64.RawURLEncoding.EncodeToString(raw[:])
	b.links.add(secret, link{tenant: t, userID: u.ID, created: u.CreatedAt, until: b.s.Now().Add(life)}, b.s.Now())
	return secret, nil
}

func invalidLink() error {
	return fault.New(fault.Unauthenticated, "invalid_link", "the link was already used, has expired, or is for another machine")
}

// Redeem starts a browser's session with the secret of a Link, once. sc is the scope of a
// stranger, whose address must be a loopback address. Every failure is the same 401
// invalid_link.
func (b *Sessions) Redeem(ctx context.Context, sc scope.Scope, secret string, from Browser) (SignedIn, error) {
	addr, err := netip.ParseAddr(sc.Actor.IP)
	if err != nil || !addr.IsLoopback() {
		return SignedIn{}, invalidLink()
	}
	l, ok := b.links.redeem(secret, b.s.Now())
	if !ok {
		return SignedIn{}, invalidLink()
	}
	r, err := b.s.get(ctx, l.tenant, b.s.Now())
	if err == nil {
		err = r.checkServed()
	}
	if err != nil {
		return SignedIn{}, err
	}
	var in SignedIn
	err = b.s.Stores.Write(ctx, l.tenant, func(tx *db.Tx) error {
		u, err := user.LockByID(ctx, tx, l.userID)
		if fault.Is(err, fault.NotFound) || err == nil && (u.Status != user.Active || !u.CreatedAt.Equal(l.created)) {
			return invalidLink()
		}
		if err != nil {
			return err
		}
		if err := user.RecordSignIn(ctx, tx, u.ID, b.s.Now(), ""); err != nil {
			return err
		}
		open := b.opener(ctx, &in, from, "link")
		return b.startSession(ctx, tx, l.tenant, sc, u, func(tx *db.Tx, t scope.TenantID, ss session) (map[string]any, error) {
			ss.Proof = proofLink
			return open(tx, t, ss)
		})
	})
	if err != nil {
		return SignedIn{}, err
	}
	return in, b.EndCookie(ctx, from.Cookie)
}

// add stores a link, and drops expired ones; over the limit it drops the one that ends
// first.
func (ls *links) add(secret string, l link, now time.Time) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	if ls.open == nil {
		ls.open = map[[sha256.Size]byte]link{}
	}
	for digest, old := range ls.open {
		if !now.Before(old.until) {
			delete(ls.open, digest)
		}
	}
	for len(ls.open) >= maxLinks {
		var first [sha256.Size]byte
		var until time.Time
		for digest, old := range ls.open {
			if until.IsZero() || old.until.Before(until) {
				first, until = digest, old.until
			}
		}
		delete(ls.open, first)
	}
	ls.open[sha256.Sum256([]byte(secret))] = l
}

// redeem returns the link of a secret, and removes it.
func (ls *links) redeem(secret string, now time.Time) (link, bool) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	digest := sha256.Sum256([]byte(secret))
	l, ok := ls.open[digest]
	delete(ls.open, digest)
	return l, ok && now.Before(l.until)
}
