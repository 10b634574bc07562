package source

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"regexp"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"

	"github.com/gatehouse-dev/gatehouse/internal/rego/value"
)

const (
	// batch is how many rows are added at a time.
	batch = 500
	// overlap is how far back changes are requested again. A transaction can commit after another
	// that began later, and clocks differ.
	overlap = 5 * time.Minute

	beforeQuery = "SELECT row_to_json(gatehouse_row)::text FROM (\n"
	afterQuery  = "\n) AS gatehouse_row LIMIT %d"
)

// reads matches a statement that reads. It only gives an early error when a source is saved: the
// read-only transaction is what prevents writes.
var reads = regexp.MustCompile(`(?is)^(\s|--[^\n]*\n|/\*.*?\*/)*(select|with|values|table)\b`)

// query checks the query of a database.
func (k *checker) query(c Config) {
	if c.SQL == nil {
		return
	}
	const at = "/configuration/sql/query"
	switch text := trimQuery(c.SQL.Query); {
	case !reads.MatchString(text):
		k.add(at, "must begin with SELECT, WITH, VALUES or TABLE")
	case strings.ContainsRune(text, 0):
		k.add(at, "must not contain the character U+0000")
	case c.Incremental != nil && !strings.Contains(text, "$1"):
		k.add(at, "must use $1, the time of the last sync, with incremental: such as $1::timestamptz IS NULL OR changed_at >= $1")
	}
}

func trimQuery(text string) string { return strings.TrimRight(text, "; \t\r\n") }

// readSQL adds the rows of a query. A query cannot write or change the session: the transaction is
// read-only and never committed, and the extended protocol takes one statement only.
func (r *run) readSQL(ctx context.Context, b *builder) error {
	ctx, cancel := context.WithTimeoutCause(ctx, CallTime, failf("the database took longer than %s", CallTime))
	defer cancel()
	conn, err := r.connectSQL(ctx)
	if err != nil {
		return r.failedSQL(ctx, err)
	}
	defer closeSQL(conn)
	tx, err := conn.BeginTx(ctx, pgx.TxOptions{AccessMode: pgx.ReadOnly, IsoLevel: pgx.RepeatableRead})
	if err != nil {
		return r.failedSQL(ctx, err)
	}
	began, err := r.prepareSQL(ctx, tx)
	if err != nil {
		return r.failedSQL(ctx, err)
	}
	limit, args := MaxRecords+1, []any{}
	if r.order.Sample {
		limit = typed
	}
	if r.Incremental != nil {
		var since *time.Time
		if !r.since.IsZero() {
			since = &r.since
		}
		args = append(args, since)
	}
	rows, err := tx.Query(ctx, beforeQuery+trimQuery(r.SQL.Query)+fmt.Sprintf(afterQuery, limit), args...)
	if err != nil {
		return r.failedSQL(ctx, err)
	}
	defer rows.Close()
	if err := r.addRows(ctx, b, rows); err != nil {
		return err
	}
	if err := rows.Err(); err != nil {
		return r.failedSQL(ctx, err)
	}
	r.noteFull()
	if r.Incremental != nil {
		r.state.Since = began.UTC().Add(-overlap)
	}
	return nil
}

// addRows adds rows in batches. A row that cannot be used is a Failure.
func (r *run) addRows(ctx context.Context, b *builder, rows pgx.Rows) error {
	var records []value.Value
	flush := func() error {
		_, err := b.add(value.Array(records...))
		if err == nil {
			err = r.reserve(ctx, b.size)
		}
		records = nil
		return err
	}
	for rows.Next() {
		record, err := r.decode(string(rows.RawValues()[0]))
		if err != nil {
			return err
		}
		if records = append(records, record); len(records) < batch {
			continue
		}
		if err := flush(); err != nil {
			return err
		}
	}
	return flush()
}

// prepareSQL sets a time limit for the query in the database, and returns when the transaction
// began, by the clock of the database.
func (r *run) prepareSQL(ctx context.Context, tx pgx.Tx) (began time.Time, err error) {
	if _, err := tx.Exec(ctx, fmt.Sprintf("SET LOCAL statement_timeout = %d", CallTime.Milliseconds())); err != nil {
		return began, err
	}
	err = tx.QueryRow(ctx, "SELECT now()").Scan(&began)
	return began, err
}

// connectSQL connects through r.Target. It ignores the PostgreSQL settings in the environment and
// home directory of this process.
func (r *run) connectSQL(ctx context.Context) (*pgx.Conn, error) {
	server, database, err := serverOf(SQL, r.URL)
	if err != nil {
		return nil, err
	}
	const bare = "host=invalid.invalid port=5432 user=none password=none dbname=none sslmode=disable passfile=/nonexistent servicefile=/nonexistent " +
		"connect_timeout=30 target_session_attrs=any"
	cfg, err := pgx.ParseConfig(bare)
	if err != nil {
		return nil, failf("the address of the database is not valid")
	}
	cfg.Host, cfg.Port, cfg.Database = server.Host, server.Port, database
	cfg.User, cfg.Password = r.order.Credentials.Username, r.order.Credentials.Password
	cfg.Fallbacks, cfg.RuntimeParams, cfg.TLSConfig = nil, map[string]string{"application_name": "gatehouse"}, nil
	if !server.Plain {
		cfg.TLSConfig = r.Target.TLS(server.Host)
	}
	// r.Target resolves the name, and connects only to addresses that the operator allows.
	cfg.LookupFunc = func(_ context.Context, host string) ([]string, error) { return []string{host}, nil }
	cfg.DialFunc = func(ctx context.Context, _, _ string) (net.Conn, error) { return r.Target.Dial(ctx, server) }
	cfg.BuildFrontend = func(from io.Reader, to io.Writer) *pgproto3.Frontend {
		f := pgproto3.NewFrontend(from, to)
		f.SetMaxBodyLen(MaxBytes)
		return f
	}
	cfg.OnNotice = func(*pgconn.PgConn, *pgconn.Notice) {}
	cfg.StatementCacheCapacity, cfg.DescriptionCacheCapacity = 0, 0
	cfg.DefaultQueryExecMode = pgx.QueryExecModeDescribeExec
	return pgx.ConnectConfig(ctx, cfg)
}

func closeSQL(conn *pgx.Conn) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_ = conn.Close(ctx)
}

// causes explains the errors that the owner of a database can fix, by SQLSTATE.
var causes = map[string]string{
	"28P01": "it refused the user or the password",
	"28000": "it refused the user",
	"3D000": "there is no such database",
	"42501": "the user may not read what the query names",
	"42601": "the query has a syntax error",
	"42P01": "the query names a table that does not exist",
	"42703": "the query names a column that does not exist",
	"42883": "the query names a function or an operator that does not exist",
	"42P18": "the type of $1 is not clear: write $1::timestamptz",
	"25006": "the query would write",
	"57014": "the query took too long",
	"53300": "it has no connection left",
}

// failedSQL returns a failure as the owner of the source sees it. It leaves out the database's own
// message, which can contain data.
func (r *run) failedSQL(ctx context.Context, err error) error {
	_, known := errors.AsType[*Failure](err)
	answer, answered := errors.AsType[*pgconn.PgError](err)
	switch {
	case ended(ctx, err):
		return context.Cause(ctx)
	case known:
		return err
	case answered:
		text := "the database answered with the error " + answer.Code
		if cause := causes[answer.Code]; cause != "" {
			text += ": " + cause
		}
		if at := int(answer.Position) - len(beforeQuery); at > 0 {
			text += fmt.Sprintf(" (at character %d)", at)
		}
		return failf("%s", text)
	}
	return failedConn(err, "database")
}
