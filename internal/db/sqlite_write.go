package db

import (
	"context"
	"errors"
	"sync/atomic"
)

// maxGroup is the largest number of transactions that share one commit.
const maxGroup = 64

// sqliteWriter is the only writer of a file (group commit). Transactions run one after another.
// Those that wait while another one runs share its commit, and so one fsync. Each runs in a
// savepoint, so a failure rolls back only that transaction. None is acknowledged before the shared
// commit.
type sqliteWriter struct {
	dsn     string
	turn    chan struct{} // full while a transaction has its turn; guards conn and group
	waiting atomic.Int32
	conn    *sqliteConn
	group   *commitGroup
	open    atomic.Int32
}

// commitGroup is one SQLite transaction with the transactions that share it.
type commitGroup struct {
	size int
	done chan struct{} // closed after the commit; err is its result
	err  error
}

func newSQLiteWriter(dsn string) *sqliteWriter {
	return &sqliteWriter{dsn: dsn, turn: make(chan struct{}, 1)}
}

func (w *sqliteWriter) begin(ctx context.Context, done func()) (txn, error) {
	w.waiting.Add(1)
	defer w.waiting.Add(-1)
	select {
	case w.turn <- struct{}{}:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	t := &sqliteWrite{w: w, done: done, first: w.group == nil}
	if err := t.start(ctx); err != nil {
		<-w.turn
		return nil, err
	}
	return t, nil
}

func (w *sqliteWriter) count() int { return int(w.open.Load()) }

func (w *sqliteWriter) close() error {
	w.turn <- struct{}{}
	defer func() { <-w.turn }()
	return w.drop()
}

// drop closes the connection; the next transaction opens another.
func (w *sqliteWriter) drop() error {
	if w.conn == nil {
		return nil
	}
	err := w.conn.close()
	w.conn = nil
	w.open.Store(0)
	return err
}

// do runs a statement without a context: SQLite rolls back the whole group if a write is
// interrupted.
func (w *sqliteWriter) do(text string) error {
	_, err := w.conn.exec(context.Background(), text, nil)
	return err
}

// finish commits the group and wakes its members. The caller has the turn.
func (w *sqliteWriter) finish() error {
	g := w.group
	w.group = nil
	g.err = w.do("COMMIT")
	if g.err != nil {
		w.undo()
	}
	close(g.done)
	return g.err
}

// undo rolls back the SQLite transaction. After some errors SQLite has already done so, and then
// ROLLBACK fails. In that case the connection is replaced, because it might still be inside a
// transaction.
func (w *sqliteWriter) undo() {
	if w.do("ROLLBACK") != nil {
		_ = w.drop()
	}
}

// abort rolls back the group. Its members must run again.
func (w *sqliteWriter) abort() {
	g := w.group
	w.group = nil
	w.undo()
	g.err = errLostGroup
	close(g.done)
}

// sqliteWrite is one write transaction.
type sqliteWrite struct {
	w     *sqliteWriter
	done  func()
	first bool
}

func (t *sqliteWrite) start(ctx context.Context) error {
	w := t.w
	if !t.first {
		return w.do("SAVEPOINT member")
	}
	if w.conn == nil {
		c, err := dialSQLite(ctx, w.dsn)
		if err != nil {
			return err
		}
		w.conn = c
		w.open.Store(1)
	}
	if err := w.do("BEGIN IMMEDIATE"); err != nil {
		return err
	}
	w.group = &commitGroup{done: make(chan struct{})}
	return nil
}

func (t *sqliteWrite) exec(_ context.Context, sql string, args []any) (int64, error) {
	return t.w.conn.exec(context.Background(), sql, args)
}

func (t *sqliteWrite) query(_ context.Context, sql string, args []any) (cursor, error) {
	return t.w.conn.query(context.Background(), sql, args)
}

// lock needs no statement: there is only one writer.
func (t *sqliteWrite) lock(context.Context, string) error { return nil }

// announce does nothing: there are no other replicas.
func (t *sqliteWrite) announce(context.Context, string) error { return nil }

func (t *sqliteWrite) commit(context.Context) error {
	defer t.done()
	w := t.w
	g := w.group
	if !t.first {
		if err := w.do("RELEASE member"); err != nil {
			w.abort()
			<-w.turn
			return errors.Join(errLostGroup, err)
		}
	}
	g.size++
	if w.waiting.Load() == 0 || g.size >= maxGroup {
		err := w.finish()
		<-w.turn
		return err
	}
	<-w.turn // others wait: let them join, and commit unless one of them does
	select {
	case <-g.done:
		return g.err
	case w.turn <- struct{}{}:
	}
	if w.group == g {
		_ = w.finish() // g.err has the result
	}
	<-w.turn
	return g.err
}

func (t *sqliteWrite) rollback() {
	defer t.done()
	w := t.w
	defer func() { <-w.turn }()
	if t.first {
		w.group = nil
		w.undo()
		return
	}
	if w.do("ROLLBACK TO member") != nil || w.do("RELEASE member") != nil {
		w.abort()
	}
}
