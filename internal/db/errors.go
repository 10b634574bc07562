package db

import (
	"context"
	"errors"
	"net"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"modernc.org/sqlite"
	lib "modernc.org/sqlite/lib"

	"github.com/gatehouse-dev/gatehouse/internal/fault"
)

// ErrNoRows means that the query of One returned no row. A caller that does not handle it may
// return it: as a fault, it is NotFound.
var ErrNoRows error = noRows{}

// CheckUnique returns Conflict "already_exists" if another object than self has the same name or
// key. found and err are the results of One, which looked for the id of that object. format and
// args are the message of the fault.
func CheckUnique(found, self int64, err error, format string, args ...any) error {
	if errors.Is(err, ErrNoRows) || err == nil && found == self {
		return nil
	}
	if err != nil {
		return err
	}
	return fault.Newf(fault.Conflict, "already_exists", format, args...)
}

// Found returns v, or NotFound "no such <object>" if One returned no row, or the caller may not see
// the object (seen is false). v and err are the results of One.
func Found[T any](v T, err error, seen bool, object string) (T, error) {
	if errors.Is(err, ErrNoRows) || err == nil && !seen {
		var none T
		return none, fault.NotFoundf("no such %s", object)
	}
	return v, err
}

// FoundOr returns v, or otherwise if One returned no row. v and err are the results of One.
func FoundOr[T any](v T, err error, otherwise T) (T, error) {
	if errors.Is(err, ErrNoRows) {
		return otherwise, nil
	}
	return v, err
}

type noRows struct{}

func (noRows) Error() string { return "db: no rows" }

// As implements errors.As for *fault.Error. Each call creates a new fault, which the caller may
// change.
func (noRows) As(target any) bool {
	f, ok := target.(**fault.Error)
	if ok {
		*f = fault.NotFoundf("there is no such object")
	}
	return ok
}

// errLostGroup means that a transaction was rolled back because another one that shared its commit
// failed. It may run again.
var errLostGroup = errors.New("the transaction shared a commit that failed")

// errUnavailable marks an error as: the store could not be reached.
var errUnavailable = errors.New("the store cannot be reached")

// retryable reports whether err means that the transaction had no effect and may run again.
func retryable(err error) bool {
	if errors.Is(err, errLostGroup) || errors.Is(err, errMoved) {
		return true
	}
	if pg, ok := errors.AsType[*pgconn.PgError](err); ok {
		switch pg.Code {
		case "40001", "40P01": // serialization failure, deadlock
			return true
		case "0A000": // a cached plan is older than a migration; the driver has dropped it
			return pg.Message == "cached plan must not change result type"
		case "XX000": // DROP ROLE counted what another database needs while that was dropped
			return strings.HasPrefix(pg.Message, "cache lookup failed for database ")
		}
	}
	return false
}

// storeGone reports whether an error may mean that the store was dropped.
func storeGone(err error) bool {
	if lite, ok := errors.AsType[*sqlite.Error](err); ok {
		switch lite.Code() & 0xff {
		case lib.SQLITE_ERROR, lib.SQLITE_READONLY, lib.SQLITE_IOERR, lib.SQLITE_CORRUPT, lib.SQLITE_CANTOPEN, lib.SQLITE_NOTADB:
			return true
		}
		return false
	}
	switch stateOf(err) {
	case "42P01", "42501", "42704", "3F000", "22023": // no such table, no right, no such role or schema
		return true
	}
	return false
}

// translate converts driver errors to faults. Faults, ErrNoRows and context errors are
// unchanged.
func translate(ctx context.Context, err error) error {
	if err == nil || errors.Is(err, ErrNoRows) {
		return err
	}
	if _, ok := errors.AsType[*fault.Error](err); ok {
		return err
	}
	if ctxErr := ctx.Err(); ctxErr != nil {
		return ctxErr
	}
	if lite, ok := errors.AsType[*sqlite.Error](err); ok {
		return fromSQLite(lite)
	}
	if pg, ok := errors.AsType[*pgconn.PgError](err); ok {
		return fromPostgres(pg)
	}
	_, network := errors.AsType[net.Error](err)
	_, unconnected := errors.AsType[*pgconn.ConnectError](err)
	if network || unconnected || errors.Is(err, errUnavailable) ||
		errors.Is(err, net.ErrClosed) || pgconn.Timeout(err) || pgconn.SafeToRetry(err) || brokenConn(err) {
		return unavailable(err)
	}
	return fault.Wrap(err, "database")
}

func fromSQLite(err *sqlite.Error) error {
	switch err.Code() {
	case lib.SQLITE_CONSTRAINT_UNIQUE, lib.SQLITE_CONSTRAINT_PRIMARYKEY, lib.SQLITE_CONSTRAINT_ROWID:
		return duplicate(err)
	case lib.SQLITE_CONSTRAINT_FOREIGNKEY:
		return referenced(err)
	case lib.SQLITE_CONSTRAINT_TRIGGER:
		if strings.Contains(err.Error(), MovingText) {
			return movingFault(err)
		}
	}
	switch err.Code() & 0xff {
	case lib.SQLITE_FULL:
		return full(err)
	case lib.SQLITE_BUSY, lib.SQLITE_LOCKED, lib.SQLITE_IOERR, lib.SQLITE_READONLY, lib.SQLITE_CANTOPEN:
		return unavailable(err)
	}
	return fault.Wrap(err, "database")
}

func fromPostgres(err *pgconn.PgError) error {
	switch err.Code {
	case "23505":
		return duplicate(err)
	case "23503":
		return referenced(err)
	case "53100":
		return full(err)
	case MovingState:
		return movingFault(err)
	case "22021", "22P05": // NUL or bytes that are not UTF-8
		return badText(err)
	case "25006", "55P03", "57014": // read-only server, lock or statement timeout
		return unavailable(err)
	}
	switch err.Code[:2] {
	case "08", "53", "57": // connection, resources, operator intervention
		return unavailable(err)
	}
	return fault.Wrap(err, "database")
}

func duplicate(err error) error {
	return fault.New(fault.Conflict, "already_exists", "this object already exists").Because(err)
}

func referenced(err error) error {
	return fault.New(fault.Conflict, "still_referenced", "other objects depend on this one, or it depends on one that does not exist").Because(err)
}

func full(err error) error {
	return fault.New(fault.StorageFull, "storage_full", "the store is full").Because(err)
}

func badText(err error) error {
	return fault.New(fault.Invalid, "invalid_text", "text must be UTF-8 without NUL characters").Because(err)
}

func unavailable(err error) error {
	return fault.New(fault.Unavailable, "store_unavailable", "the store does not answer").After(time.Second).Because(err)
}
