package auth

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"io"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/factor"
	"github.com/gatehouse-dev/gatehouse/internal/fault"
	"github.com/gatehouse-dev/gatehouse/internal/lockout"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
	"github.com/gatehouse-dev/gatehouse/internal/user"
)

const (
	// challengeLife is how long a person has to send the code.
	challengeLife = 5 * time.Minute
	// challengeTries is the number of wrong codes after which a challenge ends.
	challengeTries = 5
	// maxChallenges is the largest number of open challenges of one person.
	maxChallenges = 20
)

// Error codes after a correct password.
const (
	codeRequired = "second_factor_required"
	codeInvalid  = "second_factor_invalid"
)

func wrongCode() error {
	return fault.New(fault.Unauthenticated, codeInvalid, "the code is wrong, or was used already")
}

func badChallenge() error {
	return fault.New(fault.Unauthenticated, "invalid_challenge", "this sign-in has expired or was completed; start again with the password")
}

// secondFactor checks the second factor of a person whose password was correct. why is the answer
// if the factor is missing or wrong. That is not an error of the transaction, which must commit to
// count the attempt.
func (f *Factors) secondFactor(ctx context.Context, tx *db.Tx, t scope.TenantID, sc scope.Scope, u user.User, in *passwordSignIn) (proof factor.Proof, why, err error) {
	enrolled, err := factor.Enrolled(ctx, tx, u.ID)
	if err != nil {
		return proof, nil, err
	}
	if !enrolled {
		if in.challenge != nil { // the factor was removed meanwhile
			return proof, nil, badChallenge()
		}
		return proof, nil, nil
	}
	if in.code == "" {
		why, err = f.challenge(ctx, tx, u, in)
		return proof, why, err
	}
	if proof, why, err = f.verifyCode(ctx, tx, t, sc, u, in); err != nil || in.challenge == nil {
		return proof, why, err
	}
	if why != nil {
		return proof, why, failChallenge(ctx, tx, in.challenge.Digest)
	}
	taken, err := takeChallenge(ctx, tx, in.challenge.Digest)
	if err == nil && !taken {
		err = badChallenge()
	}
	return proof, nil, err
}

// challenge asks for a code. It takes back the count of this guess, which was neither right nor
// wrong. It resets no count: a correct password must not allow more guesses at the code.
func (f *Factors) challenge(ctx context.Context, tx *db.Tx, u user.User, in *passwordSignIn) (why, err error) {
	if err := in.TakeBack(ctx, tx); err != nil {
		return nil, err
	}
	ask := fault.New(fault.Unauthenticated, codeRequired, "the password is right; send the code of your authenticator app, or a recovery code")
	if in.purpose == noChallenge {
		return ask, nil
	}
	var raw [cookieBytes]byte
	if _, err := io.ReadFull(f.s.Random, raw[:]); err != nil {
		return nil, err
	}
	text, now := base64.RawURLEncoding.EncodeToString(raw[:]), f.s.Now()
	err = insertChallenge(ctx, tx, challenge{
		Digest: challengeDigest(text), UserID: u.ID, Purpose: in.purpose, PasswordDigest: hexDigest(u.PasswordHash),
		Rehash: in.rehash, ExpiresAt: db.Stamp(now.Add(challengeLife)),
	})
	if err == nil {
		err = dropChallenges(ctx, tx, u.ID, now)
	}
	return ask.With("challenge", text).With("expires_in", int64(challengeLife/time.Second)), err
}

func hexDigest(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:])
}

// challengeDigest returns the form in which a challenge is stored.
func challengeDigest(text string) string { return hexDigest("challenge\x00" + text) }

// answer completes the sign-in that belongs to a challenge. The answer is 401 invalid_challenge if
// the challenge is unknown, is for another purpose or tenant, or if the password has changed.
func (f *Factors) answer(ctx context.Context, store *db.DB, sc scope.Scope, p Proof, what purpose, open opener) error {
	if p.Code == "" {
		return wrongCode()
	}
	var c challenge
	var u user.User
	var g lockout.Guess
	err := store.Read(ctx, func(tx *db.Tx) (err error) {
		if c, err = selectChallenge(ctx, tx, challengeDigest(p.Challenge)); err != nil {
			return err
		}
		if u, err = user.ByID(ctx, tx, c.UserID); err != nil {
			return err
		}
		g, err = lockout.Load(ctx, tx, sc.Actor.IP, u.Username, f.s.Now())
		return err
	})
	if errors.Is(err, db.ErrNoRows) || fault.Is(err, fault.NotFound) {
		return badChallenge()
	}
	if err != nil {
		return err
	}
	if c.Purpose != what || c.Failures >= challengeTries || !c.ExpiresAt.After(f.s.Now()) || c.PasswordDigest != hexDigest(g.User.PasswordHash) || g.User.ID != u.ID {
		return badChallenge()
	}
	if wait := g.LockedFor(f.s.Now()); wait > 0 {
		return lockout.Locked(wait)
	}
	if err := f.queue(ctx, &g); err != nil {
		return err
	}
	var wait time.Duration
	err = store.Write(ctx, func(tx *db.Tx) (err error) {
		wait, err = g.Reserve(ctx, tx, f.s.Now())
		return err
	})
	if err != nil {
		return err
	}
	if wait > 0 {
		return lockout.Locked(wait)
	}
	return f.s.finish(ctx, store, sc, &passwordSignIn{Guess: g, rehash: c.Rehash, code: p.Code, challenge: &c}, open)
}

// queue delays a caller who has guessed wrong before, as check does.
func (f *Factors) queue(ctx context.Context, g *lockout.Guess) error {
	if g.Familiar {
		return nil
	}
	if !f.s.lobby.Acquire(g.Network, lockout.MaxInNetwork) {
		return lockout.TooManySignIns()
	}
	defer f.s.lobby.Release(g.Network)
	return f.s.Pause(ctx, g.Delay(f.s.Now()))
}
