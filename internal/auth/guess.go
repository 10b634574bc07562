package auth

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"net/netip"
	"sync"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/fault"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
	"github.com/gatehouse-dev/gatehouse/internal/user"
)

// Limits against guessing. The lock is on the pair of an account and a network, so that
// nobody can lock out somebody else. Accounts and networks are never locked: over their
// limits, guesses from networks where the person has never signed in must wait, longer with
// each failure.
const (
	guessWindow    = 15 * time.Minute
	lockTime       = 15 * time.Minute
	pairGuesses    = 10
	accountGuesses = 10
	addressGuesses = 100
	alertAt        = 5
	pauseStep      = 100 * time.Millisecond
	longestPause   = 2 * time.Second
)

// Limits on the sign-ins of strangers that are in progress, in total and from one network.
const (
	seats = 512
	// SeatsNetwork is how many one network may have in progress.
	SeatsNetwork = 64
)

// placesKept is how long a network counts as one from which the person signs in.
const placesKept = 180 * 24 * time.Hour

// attempt counts the guesses at one account, from one network, or both.
type attempt struct {
	Subject     string    `db:"subject"`
	Failures    int64     `db:"failures"`
	Refused     int64     `db:"refused"`
	Since       time.Time `db:"since"`
	LockedUntil time.Time `db:"locked_until"`
}

// recent returns how many guesses failed within the window.
func (a attempt) recent(now time.Time) int64 {
	if now.Sub(a.Since) >= guessWindow {
		return 0
	}
	return a.Failures
}

// reserve counts a guess before it is checked, so that parallel guesses cannot exceed the
// limit together; 0: no limit applies. A locked subject is not counted further: the lock
// ends at the announced time.
func (a attempt) reserve(now time.Time, limit int64) (after attempt, locked bool) {
	if now.Before(a.LockedUntil) {
		a.Refused++
		return a, true
	}
	if now.Sub(a.Since) >= guessWindow || !a.LockedUntil.IsZero() {
		a.Failures, a.Since, a.LockedUntil = 0, now, time.Time{}
	}
	a.Failures++
	if limit > 0 && a.Failures >= limit {
		a.LockedUntil = now.Add(lockTime)
	}
	return a, false
}

// guess is a sign-in in progress: possible accounts, its network, and its counts.
type guess struct {
	user                   user.User // zero: unknown
	network                string
	familiar               bool // the person signed in from this network before
	pair, account, address attempt
}

// loadGuess finds the account of a name and its counts, in the same way for known and
// unknown accounts. It counts nothing.
func (s *Service) loadGuess(ctx context.Context, tx *db.Tx, sc scope.Scope, name string) (guess, error) {
	g := guess{network: Network(sc.Actor.IP)}
	u, err := user.ByName(ctx, tx, name)
	if err != nil && !errors.Is(err, db.ErrNoRows) {
		return g, err
	}
	g.user = u
	sum := sha256.Sum256([]byte(user.Fold(name)))
	g.account.Subject = "account:?" + hex.EncodeToString(sum[:])
	if u.ID != "" { // one account under both of its names
		g.account.Subject = "account:" + u.ID
	}
	g.pair.Subject = g.account.Subject + "@" + g.network
	g.address.Subject = "address:" + g.network
	for _, a := range g.attempts() {
		if *a, err = selectAttempt(ctx, tx, a.Subject); err != nil {
			return g, err
		}
	}
	g.familiar, err = isPlace(ctx, tx, u.ID, g.network, s.Now().Add(-placesKept))
	return g, err
}

// attempts returns the counts of a guess, in the order in which they are locked.
func (g *guess) attempts() []*attempt { return []*attempt{&g.pair, &g.account, &g.address} }

// lockedFor is how long the pair stays locked.
func (g *guess) lockedFor(now time.Time) time.Duration {
	return max(0, g.pair.LockedUntil.Sub(now))
}

// delay is how long a guess from an unfamiliar network waits.
func (g *guess) delay(now time.Time) time.Duration {
	return max(delayAfter(g.account.recent(now)-accountGuesses), NetworkDelay(g.address.recent(now)))
}

// NetworkDelay is how long a network waits before its next sign-in after so many recent
// failures. It is slowed and never locked: others sign in from there, too.
func NetworkDelay(failures int64) time.Duration { return delayAfter(failures - addressGuesses) }

func delayAfter(over int64) time.Duration {
	return min(max(0, time.Duration(over+1)*pauseStep), longestPause)
}

// RecordsFailure reports whether the nth recent failure of a network is written to the
// audit: all of the first ones, and in a flood one in a hundred.
func RecordsFailure(n int64) bool { return n <= addressGuesses || n%100 == 0 }

// shouldRecord reports whether this failure is written to the audit: all of the first ones
// and the one that locks, and in a flood one in ten or a hundred.
func (g *guess) shouldRecord(locks bool) bool {
	return locks || (g.account.Failures <= 2*accountGuesses || g.account.Failures%10 == 0) && RecordsFailure(g.address.Failures)
}

// reserve counts the guess. It returns how long the pair is locked; 0: it is not.
func (s *Service) reserve(ctx context.Context, tx *db.Tx, g *guess) (time.Duration, error) {
	now := s.Now()
	for _, a := range g.attempts() {
		got, err := lockAttempt(ctx, tx, a.Subject)
		if err != nil {
			return 0, err
		}
		limit := int64(0)
		if a == &g.pair {
			limit = pairGuesses
		}
		after, locked := got.reserve(now, limit)
		*a = after
		if err := putAttempt(ctx, tx, after); err != nil {
			return 0, err
		}
		if locked {
			return g.lockedFor(now), nil
		}
	}
	return 0, dropAttempts(ctx, tx, now.Add(-24*time.Hour))
}

// locked is the answer for a pair with too many guesses, whether the account exists or not.
func locked(wait time.Duration) error {
	return fault.New(fault.RateLimited, "locked", "too many failed sign-ins to this account from this address; wait before you try again").After(wait)
}

// TooManySignIns is the answer for a network with too many sign-ins at once.
func TooManySignIns() error {
	return fault.New(fault.RateLimited, "too_many_sign_ins", "too many people are signing in; try again shortly").After(time.Second)
}

// Network is the unit in which an address is counted: itself, or its /64 for IPv6, which is
// what one household has.
func Network(ip string) string {
	a, err := netip.ParseAddr(ip)
	if err != nil {
		return ip
	}
	if a = a.Unmap(); a.Is6() {
		p, _ := a.WithZone("").Prefix(64)
		return p.String()
	}
	return a.String()
}

// Lobby counts the sign-ins of strangers in progress, in total and by a key such as their
// network. The zero value is empty.
type Lobby struct {
	mu    sync.Mutex
	taken int
	by    map[string]int
}

// Enter takes a seat; false: there is none left in total, or the key has most of them.
func (l *Lobby) Enter(key string, most int) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.taken >= seats || l.by[key] >= most {
		return false
	}
	if l.by == nil {
		l.by = map[string]int{}
	}
	l.taken++
	l.by[key]++
	return true
}

// Leave gives the seat back.
func (l *Lobby) Leave(key string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.taken--
	if l.by[key]--; l.by[key] == 0 {
		delete(l.by, key)
	}
}

// pause waits, at most until the caller disconnects.
func pause(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return nil
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
