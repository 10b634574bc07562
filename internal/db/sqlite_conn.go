package db

import (
	"context"
	"database/sql/driver"
	"errors"
	"io"
	"sync"

	"modernc.org/sqlite"
)

// maxStatements bounds the prepared statements that one connection keeps.
const maxStatements = 256

// sqliteConn is one connection with its prepared statements. It uses the driver directly:
// database/sql would prepare every statement again.
type sqliteConn struct {
	conn  driver.Conn
	stmts map[string]driver.Stmt
}

func dialSQLite(ctx context.Context, dsn string) (*sqliteConn, error) {
	connector, err := sqlite.NewConnector(dsn)
	if err != nil {
		return nil, err
	}
	conn, err := connector.Connect(ctx)
	if err != nil {
		return nil, err
	}
	return &sqliteConn{conn: conn, stmts: map[string]driver.Stmt{}}, nil
}

func (c *sqliteConn) close() error {
	c.clear()
	return c.conn.Close()
}

func (c *sqliteConn) clear() {
	for text, s := range c.stmts {
		_ = s.Close() // it returns the error of its last run again
		delete(c.stmts, text)
	}
}

func (c *sqliteConn) prepare(ctx context.Context, text string) (driver.Stmt, error) {
	if s, ok := c.stmts[text]; ok {
		return s, nil
	}
	if len(c.stmts) >= maxStatements {
		c.clear()
	}
	s, err := c.conn.(driver.ConnPrepareContext).PrepareContext(ctx, positional(text))
	if err == nil {
		c.stmts[text] = s
	}
	return s, err
}

func named(args []any) []driver.NamedValue {
	out := make([]driver.NamedValue, len(args))
	for i, a := range args {
		out[i] = driver.NamedValue{Ordinal: i + 1, Value: a}
	}
	return out
}

func (c *sqliteConn) exec(ctx context.Context, text string, args []any) (int64, error) {
	s, err := c.prepare(ctx, text)
	if err != nil {
		return 0, err
	}
	res, err := s.(driver.StmtExecContext).ExecContext(ctx, named(args))
	if err != nil {
		return 0, err
	}
	return res.RowsAffected()
}

func (c *sqliteConn) query(ctx context.Context, text string, args []any) (cursor, error) {
	s, err := c.prepare(ctx, text)
	if err != nil {
		return nil, err
	}
	rows, err := s.(driver.StmtQueryContext).QueryContext(ctx, named(args))
	if err != nil {
		return nil, err
	}
	cur := &sqliteCursor{rows: rows, names: rows.Columns()}
	cur.dest, cur.vals = make([]driver.Value, len(cur.names)), make([]any, len(cur.names))
	return cur, nil
}

type sqliteCursor struct {
	rows  driver.Rows
	names []string
	dest  []driver.Value
	vals  []any
}

func (c *sqliteCursor) columns() []string { return c.names }

func (c *sqliteCursor) next(ctx context.Context) ([]any, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if err := c.rows.Next(c.dest); err != nil {
		if errors.Is(err, io.EOF) {
			err = nil
		}
		return nil, err
	}
	for i, v := range c.dest {
		c.vals[i] = v
	}
	return c.vals, nil
}

// close resets the statement. SQLite makes all changes of a statement with RETURNING before it
// returns the first row, so a caller may stop early.
func (c *sqliteCursor) close() error { return c.rows.Close() }

// sqliteReaders is a pool of a few read-only connections. It opens them when they are needed.
type sqliteReaders struct {
	dsn   string
	slots chan struct{}

	mu   sync.Mutex
	idle []*sqliteConn
	open int
}

func newSQLiteReaders(dsn string, n int) *sqliteReaders {
	return &sqliteReaders{dsn: dsn, slots: make(chan struct{}, n)}
}

func (r *sqliteReaders) begin(ctx context.Context, done func()) (txn, error) {
	select {
	case r.slots <- struct{}{}:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	c, err := r.get(ctx)
	if err == nil {
		if _, err = c.exec(context.Background(), "BEGIN DEFERRED", nil); err != nil {
			r.put(c, false)
		}
	}
	if err != nil {
		<-r.slots
		return nil, err
	}
	return &sqliteRead{sqliteConn: c, from: r, done: done}, nil
}

func (r *sqliteReaders) get(ctx context.Context) (*sqliteConn, error) {
	r.mu.Lock()
	if n := len(r.idle); n > 0 {
		c := r.idle[n-1]
		r.idle = r.idle[:n-1]
		r.mu.Unlock()
		return c, nil
	}
	r.open++
	r.mu.Unlock()
	c, err := dialSQLite(ctx, r.dsn)
	if err != nil {
		r.mu.Lock()
		r.open--
		r.mu.Unlock()
	}
	return c, err
}

func (r *sqliteReaders) put(c *sqliteConn, healthy bool) {
	r.mu.Lock()
	if healthy {
		r.idle = append(r.idle, c)
	} else {
		r.open--
	}
	r.mu.Unlock()
	if !healthy {
		_ = c.close() // the connection was broken already
	}
}

func (r *sqliteReaders) count() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.open
}

func (r *sqliteReaders) close() error {
	r.mu.Lock()
	idle := r.idle
	r.idle, r.open = nil, 0
	r.mu.Unlock()
	var errs []error
	for _, c := range idle {
		errs = append(errs, c.close())
	}
	return errors.Join(errs...)
}

// sqliteRead is a read transaction on one connection of the pool.
type sqliteRead struct {
	*sqliteConn
	from *sqliteReaders
	done func()
}

func (t *sqliteRead) lock(context.Context, string) error { return nil }

func (t *sqliteRead) announce(context.Context, string) error {
	return errors.New("a read transaction has no changes to announce")
}

func (t *sqliteRead) commit(context.Context) error {
	t.rollback()
	return nil
}

func (t *sqliteRead) rollback() {
	_, err := t.exec(context.Background(), "ROLLBACK", nil)
	t.from.put(t.sqliteConn, err == nil)
	<-t.from.slots
	t.done()
}
