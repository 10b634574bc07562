package db

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

// withAdvisoryLock runs f while it holds the advisory lock of a name.
func withAdvisoryLock(ctx context.Context, c *pgx.Conn, name string, f func() error) (err error) {
	key := lockKey("", name)
	if _, err := c.Exec(ctx, lockSession(key)); err != nil {
		return err
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), commitTimeout)
		defer cancel()
		if _, e := c.Exec(ctx, unlockSession(key)); e != nil {
			err = errors.Join(err, e, c.Close(ctx)) // the end of the session frees the lock
		}
	}()
	return f()
}

// A process that is frozen, or cut off from the database, keeps its locks as long as PostgreSQL keeps
// its session. So a session that holds a lock and sends nothing for holderSilence ends, before others
// give up waiting for the lock after lockPatience.
const (
	lockPatience  = "10s"
	holderSilence = "6s"
	// readerSilence is for transactions that only read. Nobody waits for their locks.
	readerSilence = "60s"
)

// lockSession returns the statements that take an advisory lock for the session, and have PostgreSQL
// end the session if it is silent, in a transaction or not.
func lockSession(key int64) string {
	return fmt.Sprintf(`SELECT pg_advisory_lock(%d); SET idle_session_timeout = '%s'; SET idle_in_transaction_session_timeout = '%s'`, key, holderSilence, holderSilence)
}

// unlockSession returns the statements that undo lockSession.
func unlockSession(key int64) string {
	return fmt.Sprintf(`SELECT pg_advisory_unlock(%d); RESET idle_session_timeout; SET idle_in_transaction_session_timeout = '%s'`, key, readerSilence)
}

func sum64(s string) []byte {
	sum := sha256.Sum256([]byte(s))
	return sum[:8]
}

// lockKey returns the number of the advisory lock of a name.
func lockKey(id scope.TenantID, name string) int64 {
	return int64(binary.BigEndian.Uint64(sum64(string(id) + "\n" + name)))
}

// sessionLock prevents replicas from migrating one store at the same time.
type sessionLock struct{ key int64 }

// SessionLock waits for the advisory lock.
func (l sessionLock) SessionLock(ctx context.Context, c *sql.Conn) error {
	_, err := c.ExecContext(ctx, lockSession(l.key))
	return err
}

// SessionUnlock releases it.
func (l sessionLock) SessionUnlock(ctx context.Context, c *sql.Conn) error {
	_, err := c.ExecContext(ctx, unlockSession(l.key))
	return err
}
