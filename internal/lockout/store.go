package lockout

import (
	"context"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/db"
)

// lockAttempt locks a subject and returns its count, which is zero for a new subject.
func lockAttempt(ctx context.Context, tx *db.Tx, subject string) (Attempt, error) {
	if err := tx.Lock(ctx, "login:"+subject); err != nil {
		return Attempt{}, err
	}
	return selectAttempt(ctx, tx, subject)
}

func selectAttempt(ctx context.Context, tx *db.Tx, subject string) (Attempt, error) {
	a, err := db.One[Attempt](ctx, tx, `SELECT subject, failures, refused, since, locked_until FROM login_attempts WHERE subject = $1`, subject)
	return db.FoundOr(a, err, Attempt{Subject: subject})
}

func putAttempt(ctx context.Context, tx *db.Tx, a Attempt) error {
	return tx.Do(ctx, `INSERT INTO login_attempts (subject, failures, refused, since, locked_until) VALUES ($1, $2, $3, $4, $5)
		ON CONFLICT (subject) DO UPDATE SET failures = excluded.failures, refused = excluded.refused,
			since = excluded.since, locked_until = excluded.locked_until`,
		a.Subject, a.Failures, a.Refused, a.Since, a.LockedUntil)
}

// returnAttempt takes back one guess at a subject. limit is the number of guesses that locks the
// subject; 0: none does. A lock that only this guess has caused ends.
func returnAttempt(ctx context.Context, tx *db.Tx, subject string, limit int64) error {
	return tx.Do(ctx, `UPDATE login_attempts SET failures = failures - 1,
		locked_until = CASE WHEN failures <= $2 THEN $3 ELSE locked_until END WHERE subject = $1 AND failures > 0`, subject, limit, time.Time{})
}

func dropAttempt(ctx context.Context, tx *db.Tx, subject string) error {
	return tx.Do(ctx, `DELETE FROM login_attempts WHERE subject = $1`, subject)
}

// dropAttemptsAt deletes the counts of an account, and of its pairs with all networks.
func dropAttemptsAt(ctx context.Context, tx *db.Tx, account string) error {
	return tx.Do(ctx, `DELETE FROM login_attempts WHERE subject = $1 OR substr(subject, 1, $2) = $3`, account, int64(len(account)+1), account+"@")
}

// hasSignedInFrom reports whether a person has signed in from a network since a time.
func hasSignedInFrom(ctx context.Context, tx *db.Tx, userID, network string, since time.Time) (bool, error) {
	n, err := db.One[int64](ctx, tx, `SELECT count(*) FROM login_places WHERE user_id = $1 AND network = $2 AND at >= $3`, userID, network, since)
	return n > 0, err
}

// RecordNetwork records that a person signed in from a network, and deletes old records.
func RecordNetwork(ctx context.Context, tx *db.Tx, userID, network string, at time.Time) error {
	err := tx.Do(ctx, `INSERT INTO login_places (user_id, network, at) VALUES ($1, $2, $3)
		ON CONFLICT (user_id, network) DO UPDATE SET at = excluded.at`, userID, network, at)
	if err != nil {
		return err
	}
	return tx.Do(ctx, `DELETE FROM login_places WHERE at < $1`, at.Add(-placesKept))
}

// DropPlaces deletes the networks from which a person signed in.
func DropPlaces(ctx context.Context, tx *db.Tx, userID string) error {
	return tx.Do(ctx, `DELETE FROM login_places WHERE user_id = $1`, userID)
}

func dropAttempts(ctx context.Context, tx *db.Tx, before time.Time) error {
	return tx.Do(ctx, `DELETE FROM login_attempts WHERE since < $1`, before)
}
