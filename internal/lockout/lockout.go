// Package lockout counts guesses at passwords and codes, and decides who must wait. It locks pairs of
// an account and a network, and slows down accounts and networks.
package lockout

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"net/netip"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/fault"
	"github.com/gatehouse-dev/gatehouse/internal/user"
)

// The limits against guessing. Only the pair of an account and a network is locked, so that nobody
// can lock out another person. Accounts and networks are never locked. Beyond their limits, guesses
// from networks from which the person has not signed in lately must wait, longer after each failure.
const (
	// Window is how long a failure counts.
	Window = 15 * time.Minute
	// LockTime is how long a lock lasts.
	LockTime = 15 * time.Minute
	// PairGuesses is how many failures lock a pair. From AccountGuesses failures at an account and
	// AddressGuesses failures of a network on, guesses must wait.
	PairGuesses    = 10
	AccountGuesses = 10
	AddressGuesses = 100
	// AlertAt is how many failures at an account cause an event.
	AlertAt = 5
	// CodeGuesses is how many wrong codes at one account, from all networks, lock the codes of its
	// app. Only a person who knows the password can cause this. Recovery codes are not counted,
	// because nobody can guess them.
	CodeGuesses = 20
	pauseStep   = 100 * time.Millisecond
	// LongestPause is the longest time that a guess must wait.
	LongestPause = 2 * time.Second
)

// placesKept is how long a network stays familiar after the person's last sign-in from there.
const placesKept = 180 * 24 * time.Hour

// Attempt counts the guesses at one account, from one network, or both.
type Attempt struct {
	Subject     string    `db:"subject"`
	Failures    int64     `db:"failures"`
	Refused     int64     `db:"refused"`
	Since       time.Time `db:"since"`
	LockedUntil time.Time `db:"locked_until"`
}

// recent returns how many guesses failed within the window.
func (a Attempt) recent(now time.Time) int64 {
	if now.Sub(a.Since) >= Window {
		return 0
	}
	return a.Failures
}

// reserve counts a guess before it is checked, so that concurrent guesses cannot exceed the limit
// together; limit 0 means none. Guesses at a locked subject count only as refused: the lock ends at
// the announced time.
func (a Attempt) reserve(now time.Time, limit int64) (after Attempt, locked bool) {
	if now.Before(a.LockedUntil) {
		a.Refused++
		return a, true
	}
	if now.Sub(a.Since) >= Window || !a.LockedUntil.IsZero() {
		a.Failures, a.Since, a.LockedUntil = 0, now, time.Time{}
	}
	a.Failures++
	if limit > 0 && a.Failures >= limit {
		a.LockedUntil = now.Add(LockTime)
	}
	return a, false
}

// Guess is a sign-in in progress: its account, its network, and the counts of both.
type Guess struct {
	User                   user.User // the zero User: no account has the name
	Network                string
	Familiar               bool // the person signed in from this network within placesKept
	Pair, Account, Address Attempt
}

// Load returns the account with a name and the counts of a guess at it, in the same way for known
// and unknown names. It counts nothing.
func Load(ctx context.Context, tx *db.Tx, ip, name string, now time.Time) (Guess, error) {
	g := Guess{Network: Network(ip)}
	u, err := user.ByName(ctx, tx, name)
	if err != nil && !errors.Is(err, db.ErrNoRows) {
		return g, err
	}
	g.User = u
	sum := sha256.Sum256([]byte(user.Fold(name)))
	g.Account.Subject = "account:?" + hex.EncodeToString(sum[:])
	if u.ID != "" { // one account under both of its names
		g.Account.Subject = "account:" + u.ID
	}
	g.Pair.Subject = g.Account.Subject + "@" + g.Network
	g.Address.Subject = "address:" + g.Network
	for _, a := range g.attempts() {
		if *a, err = selectAttempt(ctx, tx, a.Subject); err != nil {
			return g, err
		}
	}
	g.Familiar, err = hasSignedInFrom(ctx, tx, u.ID, g.Network, now.Add(-placesKept))
	return g, err
}

// attempts returns the counts of a guess, in the order in which they are locked.
func (g *Guess) attempts() []*Attempt { return []*Attempt{&g.Pair, &g.Account, &g.Address} }

// LockedFor returns how long the pair stays locked; 0: it is not.
func (g *Guess) LockedFor(now time.Time) time.Duration {
	return max(0, g.Pair.LockedUntil.Sub(now))
}

// Delay returns how long a guess from an unfamiliar network must wait.
func (g *Guess) Delay(now time.Time) time.Duration {
	return max(delayAfter(g.Account.recent(now)-AccountGuesses), NetworkDelay(g.Address.recent(now)))
}

// NetworkDelay returns how long a sign-in must wait after a number of recent failures of its
// network. A network is never locked, because other people sign in from there, too.
func NetworkDelay(failures int64) time.Duration { return delayAfter(failures - AddressGuesses) }

func delayAfter(over int64) time.Duration {
	return min(max(0, time.Duration(over+1)*pauseStep), LongestPause)
}

// RecordsFailure reports whether the nth recent failure of a network gets an audit entry: each of
// the first AddressGuesses, and then one in a hundred.
func RecordsFailure(n int64) bool { return n <= AddressGuesses || n%100 == 0 }

// WillLock reports whether this guess locks the pair if it is wrong.
func (g *Guess) WillLock() bool { return g.Pair.Failures >= PairGuesses }

// ShouldRecord reports whether this failure gets an audit entry: each of the first ones and the one
// that locks, and then one in ten of an account, and one in a hundred of a network.
func (g *Guess) ShouldRecord() bool {
	return g.WillLock() || (g.Account.Failures <= 2*AccountGuesses || g.Account.Failures%10 == 0) && RecordsFailure(g.Address.Failures)
}

// Reserve counts the guess before it is checked. It returns how long the pair is locked; 0: it is not
// locked, and the guess may be checked.
func (g *Guess) Reserve(ctx context.Context, tx *db.Tx, now time.Time) (time.Duration, error) {
	for _, a := range g.attempts() {
		got, err := lockAttempt(ctx, tx, a.Subject)
		if err != nil {
			return 0, err
		}
		limit := int64(0)
		if a == &g.Pair {
			limit = PairGuesses
		}
		after, locked := got.reserve(now, limit)
		*a = after
		if err := putAttempt(ctx, tx, after); err != nil {
			return 0, err
		}
		if locked {
			return g.LockedFor(now), nil
		}
	}
	return 0, dropAttempts(ctx, tx, now.Add(-24*time.Hour))
}

// Locked returns the fault for a locked pair. It is the same whether the account exists or not.
func Locked(wait time.Duration) error {
	return fault.New(fault.RateLimited, "locked", "too many failed sign-ins to this account from this address; wait before you try again").After(wait)
}

// Network returns the network under which an address is counted: the address itself, or for IPv6 its
// /64, which one household has.
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

// NoteSuccess is called after a right guess. It clears the count of the pair, and takes the guess back
// from the counts of the account and the network.
func (g *Guess) NoteSuccess(ctx context.Context, tx *db.Tx) error {
	if err := dropAttempt(ctx, tx, g.Pair.Subject); err != nil {
		return err
	}
	for _, a := range []Attempt{g.Account, g.Address} {
		if err := returnAttempt(ctx, tx, a.Subject, 0); err != nil {
			return err
		}
	}
	return nil
}

// TakeBack takes back a guess that was neither right nor wrong. It does not clear the counts.
func (g *Guess) TakeBack(ctx context.Context, tx *db.Tx) error {
	for _, a := range g.attempts() {
		limit := int64(0)
		if a == &g.Pair {
			limit = PairGuesses
		}
		if err := returnAttempt(ctx, tx, a.Subject, limit); err != nil {
			return err
		}
	}
	return nil
}

// codesOf returns the subject under which wrong codes of a person's app are counted.
func codesOf(userID string) string { return "factor:" + userID }

// ReserveCode counts a code of a person's app before it is checked, whatever network it comes from.
// It returns how long such codes are locked; 0: they are not.
func ReserveCode(ctx context.Context, tx *db.Tx, userID string, now time.Time) (time.Duration, error) {
	a, err := lockAttempt(ctx, tx, codesOf(userID))
	if err != nil {
		return 0, err
	}
	after, locked := a.reserve(now, CodeGuesses)
	if err := putAttempt(ctx, tx, after); err != nil || !locked {
		return 0, err
	}
	return after.LockedUntil.Sub(now), nil
}

// ClearCodes clears the count of wrong codes.
func ClearCodes(ctx context.Context, tx *db.Tx, userID string) error {
	return dropAttempt(ctx, tx, codesOf(userID))
}

// Unlock deletes the counts of guesses at a person's account, from all networks.
func Unlock(ctx context.Context, tx *db.Tx, userID string) error {
	return dropAttemptsAt(ctx, tx, "account:"+userID)
}
