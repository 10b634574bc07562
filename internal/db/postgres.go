package db

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/gatehouse-dev/gatehouse/internal/db/listen"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

const (
	systemSchema   = "gatehouse"
	acquireTimeout = 900 * time.Millisecond // a store that is down is reported within a second
	commitTimeout  = 5 * time.Second
	// answerTimeout limits one statement. It is longer than lock_timeout. It detects a server that
	// hangs, because such a server keeps its connections open.
	answerTimeout  = 12 * time.Second
	migrateTimeout = time.Minute
)

// pgBackend has a schema for each tenant. If the login may create roles, each schema is owned by its
// own role, which has no other rights. A connection is bound to one schema and role when it is
// acquired from the pool.
type pgBackend struct {
	pool     *pgxpool.Pool
	instance string // distinguishes our own announcements from those of other replicas
	// deployment is a random part of role names, because all databases of a server share roles. It
	// is generated once for each database. It is empty if tenants have no roles.
	deployment string
	// prefix precedes the tenant in names of schemas and roles: the region's name, so that regions
	// may share a database. It is empty in the deployment's own store.
	prefix   string
	listener *listen.Listener
	shared   bool // pool and listener are another backend's
	// epoch counts roles that were created or dropped. A connection that has set a role cannot use
	// a new role of the same name, so after a change of epoch it sets its role again.
	epoch *atomic.Int64
}

// bindingKey is the context key of a binding. A connection has its binding under "bound".
type bindingKey struct{}

// binding is the schema and role of a connection, and so the tables that it reaches.
type binding struct {
	schema string
	role   string // empty: the login itself
	epoch  int64
}

// openPostgres opens the database of a region, or the deployment's own if region is empty.
func openPostgres(ctx context.Context, cfg Config, url, region string, onMessage func(string)) (backend, error) {
	pc, err := pgxpool.ParseConfig(url)
	if err != nil {
		return nil, errors.New("db: the database URL is not valid") // the cause contains the password
	}
	pc.MaxConns = int32(cfg.MaxConns)
	if pc.ConnConfig.ConnectTimeout == 0 || pc.ConnConfig.ConnectTimeout > 5*time.Second {
		pc.ConnConfig.ConnectTimeout = 5 * time.Second
	}
	pc.PrepareConn = prepareConn
	pc.AfterConnect = func(ctx context.Context, c *pgx.Conn) error {
		_, err := c.Exec(ctx, "SET idle_in_transaction_session_timeout = '"+readerSilence+"'; SET lock_timeout = '"+lockPatience+"'; SET timezone = 'UTC'")
		return err
	}
	pool, err := pgxpool.NewWithConfig(ctx, pc)
	if err != nil {
		return nil, unavailable(err)
	}
	b := &pgBackend{pool: pool, instance: uuid.NewString(), epoch: new(atomic.Int64)}
	if region != "" {
		b.prefix = region + "_"
	}
	if err := b.prepareDatabase(ctx, cfg); err != nil {
		pool.Close()
		return nil, translate(ctx, err)
	}
	b.listener, err = listen.Start(ctx, listen.Config{Conn: pc.ConnConfig.Copy(), Instance: b.instance, OnMessage: onMessage, Now: cfg.Now, Log: cfg.Logger})
	if err != nil {
		pool.Close()
		return nil, translate(ctx, errors.Join(errUnavailable, err))
	}
	return b, nil
}

// prepareConn binds a connection to the schema and role of the context. Without a binding it
// returns an error, so that no statement runs on the tables of the connection's last tenant.
func prepareConn(ctx context.Context, c *pgx.Conn) (bool, error) {
	want, ok := ctx.Value(bindingKey{}).(binding)
	if !ok {
		return true, errors.New("db: acquire a connection: the context has no tenant")
	}
	data := c.PgConn().CustomData()
	if have, ok := data["bound"].(binding); ok && have == want {
		return true, nil
	}
	delete(data, "bound")
	role := "RESET ROLE"
	if want.role != "" {
		role = "SET ROLE " + pgx.Identifier{want.role}.Sanitize()
	}
	text := role + "; SET search_path TO " + pgx.Identifier{want.schema}.Sanitize()
	if _, err := c.PgConn().Exec(ctx, text).ReadAll(); err != nil {
		if brokenConn(err) {
			return false, nil // the pool tries another connection
		}
		return false, err
	}
	data["bound"] = want
	return true, nil
}

// bind adds a store's binding to the context of Acquire.
func (b *pgBackend) bind(ctx context.Context, p part) context.Context {
	return context.WithValue(ctx, bindingKey{}, b.bindingOf(p))
}

func (b *pgBackend) bindingOf(p part) binding {
	if p.tenant == "" {
		return binding{schema: systemSchema}
	}
	out := binding{schema: identifier("t_"+b.prefix, p), epoch: b.epoch.Load()}
	if b.deployment != "" {
		out.role = identifier("gh_"+b.deployment+"_"+b.prefix, p)
	}
	return out
}

// unbind makes every connection set its role again before its next transaction.
func (b *pgBackend) unbind() { b.epoch.Add(1) }

// identifier returns the name of a part's schema or role. PostgreSQL truncates names at 63 bytes, so
// a long tenant id is shortened with a hash. Tenant ids have no underscore, so a shortened name
// cannot be that of another tenant.
func identifier(prefix string, p part) string {
	if p.generation == "" {
		return shorten(prefix, string(p.tenant), 63)
	}
	return generations(prefix, p.tenant) + p.generation
}

// generations returns the common prefix of the names of a tenant's generations.
func generations(prefix string, id scope.TenantID) string {
	return shorten(prefix, string(id), 63-2-2*generationBytes) + "_"
}

func shorten(prefix, name string, most int) string {
	if len(prefix)+len(name) <= most {
		return prefix + name
	}
	sum := sha256.Sum256([]byte(name))
	return prefix + name[:max(0, most-len(prefix)-17)] + "_" + hex.EncodeToString(sum[:8])
}

// parts finds the schemas of a tenant.
func (b *pgBackend) parts(ctx context.Context, id scope.TenantID) ([]part, error) {
	first, later := identifier("t_"+b.prefix, part{tenant: id}), generations("t_"+b.prefix, id)
	var out []part
	err := b.session(ctx, b.bindingOf(part{}), func(c *pgx.Conn) error {
		rows, err := c.Query(ctx, `SELECT nspname::TEXT FROM pg_namespace WHERE nspname = $1 OR starts_with(nspname::TEXT, $2) AND length(nspname::TEXT) = $3`,
			first, later, len(later)+1+2*generationBytes)
		if err != nil {
			return err
		}
		names, err := pgx.CollectRows(rows, pgx.RowTo[string])
		for _, name := range names {
			generation, is := strings.CutPrefix(name, later)
			switch {
			case name == first:
				out = append(out, part{tenant: id})
			case is && generation[0] == 'g':
				out = append(out, part{id, generation})
			}
		}
		return err
	})
	return out, translate(ctx, err)
}

// prepareDatabase creates the system schema. It sets deployment if tenants get roles.
func (b *pgBackend) prepareDatabase(ctx context.Context, cfg Config) error {
	ctx, cancel := context.WithTimeout(ctx, migrateTimeout)
	defer cancel()
	return b.session(ctx, binding{schema: systemSchema}, func(c *pgx.Conn) error {
		if err := checkVersion(ctx, c); err != nil {
			return err
		}
		return withAdvisoryLock(ctx, c, "db.prepare", func() error {
			_, err := c.Exec(ctx, `CREATE SCHEMA IF NOT EXISTS gatehouse;
				CREATE TABLE IF NOT EXISTS gatehouse.deployment (id TEXT NOT NULL PRIMARY KEY)`)
			if err != nil || cfg.SharedRole {
				return err
			}
			var mayCreateRoles bool
			err = c.QueryRow(ctx, `SELECT rolsuper OR rolcreaterole FROM pg_roles WHERE rolname = current_user`).Scan(&mayCreateRoles)
			if err != nil || !mayCreateRoles {
				return err
			}
			err = c.QueryRow(ctx, `SELECT id FROM gatehouse.deployment`).Scan(&b.deployment)
			if errors.Is(err, pgx.ErrNoRows) {
				b.deployment = hex.EncodeToString(sum64(uuid.NewString())[:4])
				_, err = c.Exec(ctx, `INSERT INTO gatehouse.deployment (id) VALUES ($1)`, b.deployment)
			}
			return err
		})
	})
}

// oldestServer is the oldest version of PostgreSQL that ends silent sessions (lockSession), as
// server_version_num writes it.
const oldestServer = 140000

func checkVersion(ctx context.Context, c *pgx.Conn) error {
	var version int
	err := c.QueryRow(ctx, `SELECT current_setting('server_version_num')::int`).Scan(&version)
	if err == nil && version < oldestServer {
		err = fmt.Errorf("db: PostgreSQL %d is too old: version %d or later is needed", version/10000, oldestServer/10000)
	}
	return err
}

// session runs f on one connection, outside of a transaction.
func (b *pgBackend) session(ctx context.Context, as binding, f func(*pgx.Conn) error) error {
	c, err := b.pool.Acquire(context.WithValue(ctx, bindingKey{}, as))
	if err != nil {
		return errors.Join(errUnavailable, err)
	}
	defer c.Release()
	return f(c.Conn())
}

func (b *pgBackend) name() string { return "postgres" }

// beginWrite begins a transaction that may hold locks, in one exchange with the server.
const beginWrite = `begin isolation level read committed read write; set local idle_in_transaction_session_timeout = '` + holderSilence + `'`

func (b *pgBackend) begin(ctx context.Context, p part, write bool) (txn, error) {
	opts := pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly}
	if write {
		opts = pgx.TxOptions{BeginQuery: beginWrite}
	}
	for try := 1; ; try++ {
		c, err := b.acquire(ctx, p)
		if err != nil {
			return nil, err
		}
		tx, err := beginTx(ctx, c, opts)
		if err == nil {
			return &pgTxn{conn: c, tx: tx, backend: b, tenant: p.tenant}, nil
		}
		c.Release()
		// The server may have restarted while the connection was idle: try another one.
		if try > int(b.pool.Config().MaxConns) || ctx.Err() != nil || !brokenConn(err) {
			return nil, err
		}
	}
}

// beginTx begins a transaction. The timeout is short, because only a server that hangs needs long.
func beginTx(ctx context.Context, c *pgxpool.Conn, opts pgx.TxOptions) (pgx.Tx, error) {
	short, cancel := context.WithTimeout(ctx, acquireTimeout)
	defer cancel()
	tx, err := c.BeginTx(short, opts)
	return tx, timeoutFault(ctx, short, err)
}

// timeoutFault marks err with errUnavailable if our own deadline has expired, and not the caller's.
func timeoutFault(caller, ours context.Context, err error) error {
	if err != nil && ours.Err() != nil && caller.Err() == nil {
		return errors.Join(errUnavailable, err)
	}
	return err
}

func (b *pgBackend) acquire(ctx context.Context, p part) (*pgxpool.Conn, error) {
	ctx, cancel := context.WithTimeout(b.bind(ctx, p), acquireTimeout)
	defer cancel()
	c, err := b.pool.Acquire(ctx)
	if err != nil {
		return nil, errors.Join(errUnavailable, err)
	}
	return c, nil
}

// stateOf returns the SQLSTATE of an error; empty if it is not from the server.
func stateOf(err error) string {
	if pg, ok := errors.AsType[*pgconn.PgError](err); ok {
		return pg.Code
	}
	return ""
}

// brokenConn reports whether err means that the connection was lost.
func brokenConn(err error) bool {
	if state := stateOf(err); state != "" {
		return state == "57P01"
	}
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || err.Error() == "conn closed"
}

func (b *pgBackend) provision(ctx context.Context, p part, check func() error) error {
	ctx, cancel := context.WithTimeout(ctx, migrateTimeout)
	defer cancel()
	t, err := b.begin(ctx, p, false)
	if err == nil {
		ok, err := upToDate(ctx, t, p.tenant)
		t.rollback()
		if ok || err != nil {
			return translate(ctx, err)
		}
	}
	// If begin failed because the role is missing, makeTenant creates it.
	if p.tenant != "" {
		there, err := b.exists(ctx, p)
		if err != nil {
			return err
		}
		if !there && check != nil {
			if err := check(); err != nil {
				return err
			}
		}
		if err := b.makeTenant(ctx, p); err != nil {
			return translate(ctx, err)
		}
	}
	pool := stdlib.OpenDBFromPool(b.pool)
	err = migrate(b.bind(ctx, p), pool, postgresDialect(), p.tenant, sessionLock{lockKey(p.tenant, "db.migrate")})
	return translate(ctx, errors.Join(err, pool.Close()))
}

// makeTenant creates the role and the schema of a tenant, unless they exist.
func (b *pgBackend) makeTenant(ctx context.Context, p part) error {
	as := b.bindingOf(p)
	schema, role := pgx.Identifier{as.schema}.Sanitize(), pgx.Identifier{as.role}.Sanitize()
	return b.session(ctx, b.bindingOf(part{}), func(c *pgx.Conn) error {
		return withAdvisoryLock(ctx, c, "db.tenant", func() error {
			if as.role == "" {
				_, err := c.Exec(ctx, "CREATE SCHEMA IF NOT EXISTS "+schema)
				return err
			}
			var known bool
			err := c.QueryRow(ctx, `SELECT EXISTS (SELECT FROM pg_roles WHERE rolname = $1)`, as.role).Scan(&known)
			if err != nil {
				return err
			}
			if !known {
				b.unbind()
				_, err := c.Exec(ctx, "CREATE ROLE "+role+" NOLOGIN NOINHERIT")
				if state := stateOf(err); err != nil && state != "42710" && state != "23505" { // a copy of this database created it first
					return err
				}
				if _, err := c.Exec(ctx, "GRANT "+role+" TO CURRENT_USER"); err != nil {
					return err
				}
			}
			_, err = c.Exec(ctx, "CREATE SCHEMA IF NOT EXISTS "+schema+" AUTHORIZATION "+role)
			return err
		})
	})
}

func (b *pgBackend) drop(ctx context.Context, p part, check func() error) error {
	ctx, cancel := context.WithTimeout(ctx, migrateTimeout)
	defer cancel()
	as := b.bindingOf(p)
	err := b.session(ctx, b.bindingOf(part{}), func(c *pgx.Conn) error {
		return withAdvisoryLock(ctx, c, "db.tenant", func() error {
			if check != nil {
				if err := check(); err != nil {
					return err
				}
			}
			// A transaction of the tenant may still run, and DROP SCHEMA may deadlock with it.
			return retryConflicts(ctx, func() error { return dropSchema(ctx, c, as) })
		})
	})
	b.unbind()
	return translate(ctx, err)
}

func (b *pgBackend) exists(ctx context.Context, p part) (found bool, err error) {
	err = b.session(ctx, b.bindingOf(part{}), func(c *pgx.Conn) error {
		return c.QueryRow(ctx, `SELECT EXISTS (SELECT FROM pg_namespace WHERE nspname = $1)`, b.bindingOf(p).schema).Scan(&found)
	})
	return found, translate(ctx, err)
}

// dropSchema drops a schema under its owner's role, and then the role.
func dropSchema(ctx context.Context, c *pgx.Conn, as binding) error {
	drop := "DROP SCHEMA IF EXISTS " + pgx.Identifier{as.schema}.Sanitize() + " CASCADE"
	if as.role == "" {
		_, err := c.Exec(ctx, drop)
		return err
	}
	var known bool
	err := c.QueryRow(ctx, `SELECT EXISTS (SELECT FROM pg_roles WHERE rolname = $1)`, as.role).Scan(&known)
	if err != nil || !known {
		return err
	}
	role := pgx.Identifier{as.role}.Sanitize()
	if _, err = c.Exec(ctx, "BEGIN; SET LOCAL ROLE "+role+"; "+drop+"; COMMIT"); err != nil {
		_, rollback := c.Exec(ctx, "ROLLBACK")
		return errors.Join(err, rollback)
	}
	_, err = c.Exec(ctx, "DROP ROLE "+role)
	if stateOf(err) == "2BP01" {
		return nil // a copy of this database on the same server still uses the role
	}
	return err
}

func (b *pgBackend) sizeQuery() string {
	return `SELECT COALESCE(SUM(pg_total_relation_size(oid)), 0)::BIGINT FROM pg_class
		WHERE relnamespace = (SELECT oid FROM pg_namespace WHERE nspname = current_schema()) AND relkind IN ('r', 'm')`
}

func (b *pgBackend) ping(ctx context.Context) error { return pingSystem(ctx, b) }

func (b *pgBackend) connections() int { return int(b.pool.Stat().TotalConns()) }

// inRegion returns a backend for a region inside the same database. The prefix "own_" keeps it apart
// from configured regions.
func (b *pgBackend) inRegion(region string) *pgBackend {
	out := *b
	out.prefix, out.shared = "own_"+region+"_", true
	return &out
}

func (b *pgBackend) close() error {
	if b.shared {
		return nil
	}
	b.listener.Stop()
	b.pool.Close()
	return nil
}

// pgTxn is one transaction.
type pgTxn struct {
	conn    *pgxpool.Conn
	tx      pgx.Tx
	backend *pgBackend
	tenant  scope.TenantID
}

func (t *pgTxn) exec(ctx context.Context, sql string, args []any) (int64, error) {
	short, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	tag, err := t.tx.Exec(short, sql, args...)
	return tag.RowsAffected(), timeoutFault(ctx, short, err)
}

func (t *pgTxn) query(ctx context.Context, sql string, args []any) (cursor, error) {
	ours, cancel := context.WithCancel(ctx)
	c := &pgCursor{caller: ctx, ours: ours, cancel: cancel}
	c.timer = time.AfterFunc(answerTimeout, cancel)
	rows, err := t.tx.Query(ours, sql, args...)
	c.timer.Stop()
	if err != nil {
		cancel()
		return nil, timeoutFault(ctx, ours, err)
	}
	c.rows = rows
	return c, nil
}

func (t *pgTxn) lock(ctx context.Context, name string) error {
	_, err := t.exec(ctx, `SELECT pg_advisory_xact_lock($1)`, []any{lockKey(t.tenant, name)})
	return err
}

func (t *pgTxn) announce(ctx context.Context, payload string) error {
	_, err := t.exec(ctx, `SELECT pg_notify($1, $2)`, []any{listen.Channel, t.backend.instance + "\n" + payload})
	return err
}

// commit ignores the cancellation of ctx: the outcome of a cancelled commit would be unknown.
func (t *pgTxn) commit(ctx context.Context) error {
	defer t.conn.Release()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), commitTimeout)
	defer cancel()
	if err := t.tx.Commit(ctx); err != nil {
		return fmt.Errorf("commit: %w", timeoutFault(context.Background(), ctx, err))
	}
	return nil
}

func (t *pgTxn) rollback() {
	defer t.conn.Release() // a connection that does not become idle again is discarded
	ctx, cancel := context.WithTimeout(context.Background(), acquireTimeout)
	defer cancel()
	_ = t.tx.Rollback(ctx)
}

// pgCursor walks a result.
type pgCursor struct {
	rows  pgx.Rows
	names []string
	// timer cancels ours if the server does not send the next row in time. It is stopped while the
	// caller works on a row.
	caller, ours context.Context
	cancel       context.CancelFunc
	timer        *time.Timer
}

func (c *pgCursor) columns() []string {
	if c.names == nil {
		for _, d := range c.rows.FieldDescriptions() {
			c.names = append(c.names, d.Name)
		}
	}
	return c.names
}

func (c *pgCursor) next(context.Context) ([]any, error) {
	c.timer.Reset(answerTimeout)
	more := c.rows.Next()
	c.timer.Stop()
	if !more {
		return nil, timeoutFault(c.caller, c.ours, c.rows.Err())
	}
	return c.rows.Values()
}

func (c *pgCursor) close() error {
	c.timer.Reset(answerTimeout) // Close reads the remaining rows
	c.rows.Close()
	c.timer.Stop()
	defer c.cancel()
	return timeoutFault(c.caller, c.ours, c.rows.Err())
}
