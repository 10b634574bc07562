package db_test

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/db/dbtest"
	"github.com/gatehouse-dev/gatehouse/internal/errtest"
	"github.com/gatehouse-dev/gatehouse/internal/fault"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

// admin runs statements as the server's superuser, on the database of an address.
func admin(t testing.TB, address string, statements ...string) {
	t.Helper()
	c, err := pgx.Connect(context.Background(), address)
	errtest.Must(t, err)
	defer c.Close(context.Background())
	for _, sql := range statements {
		if _, err := c.Exec(context.Background(), sql); err != nil {
			t.Fatalf("%s: %v", sql, err)
		}
	}
}

// emptyDatabase creates an empty database. Its owner may create roles but is not a superuser.
func emptyDatabase(t testing.TB) string {
	t.Helper()
	server := dbtest.Server(t)
	name := fmt.Sprintf("gh_test_%d_empty_%d", time.Now().Unix(), time.Now().UnixNano()%1e6)
	login := name + "_app"
	admin(t, server, "CREATE ROLE "+login+" LOGIN CREATEROLE NOINHERIT", "CREATE DATABASE "+name+" OWNER "+login)
	u, err := url.Parse(server)
	errtest.Must(t, err)
	u.Path, u.User = "/"+name, url.User(login)
	address := u.String()
	t.Cleanup(func() {
		u.User = nil
		var roles []string
		c, err := pgx.Connect(context.Background(), server)
		errtest.Must(t, err)
		defer c.Close(context.Background())
		rows, err := c.Query(context.Background(), `SELECT quote_ident(r.rolname) FROM pg_auth_members m
			JOIN pg_roles r ON r.oid = m.roleid JOIN pg_roles l ON l.oid = m.member WHERE l.rolname = $1`, login)
		if err == nil {
			roles, err = pgx.CollectRows(rows, pgx.RowTo[string])
		}
		errtest.Must(t, err)
		statements := []string{"DROP DATABASE " + name + " WITH (FORCE)"}
		for _, r := range append(roles, login) {
			statements = append(statements, "DROP ROLE "+r)
		}
		admin(t, server, statements...)
	})
	return address
}

// TestReplicasStartAtOnce: several replicas open an empty database and create the same tenants at
// the same time.
func TestReplicasStartAtOnce(t *testing.T) {
	t.Parallel()
	address := emptyDatabase(t)
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			ctx := context.Background()
			c, err := db.Open(ctx, db.Config{URL: address, MaxConns: 5})
			if err != nil {
				t.Error(err)
				return
			}
			defer c.Close()
			for _, id := range []scope.TenantID{"default", "t2"} {
				if err := c.CreateTenant(ctx, id); err != nil && !fault.Is(err, fault.Conflict) {
					t.Error(err)
				}
				if _, err := c.Tenant(ctx, id); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
}

// TestSchemasAreClosed: with a role for each tenant, even a qualified name does not reach the
// tables of another tenant or the system, whether or not the login is a superuser.
func TestSchemasAreClosed(t *testing.T) {
	for name, address := range map[string]func() string{
		"superuser": func() string { return dbtest.Config(t, dbtest.Postgres).URL },
		"login":     func() string { return emptyDatabase(t) },
	} {
		t.Run(name, func(t *testing.T) {
			ctx := context.Background()
			c := dbtest.OpenConfig(t, db.Config{URL: address(), MaxConns: 2})
			for _, id := range []scope.TenantID{"default", "t2"} {
				if err := c.CreateTenant(ctx, id); err != nil && !fault.Is(err, fault.Conflict) {
					t.Fatal(err)
				}
				put(t, tenant(t, c, id), "same", "of "+string(id))
			}
			reach := func(sql string) error {
				return tenant(t, c, "default").Read(ctx, func(tx *db.Tx) error {
					_, err := db.One[string](ctx, tx, sql)
					return err
				})
			}
			if err := reach(`SELECT value FROM t_default.settings`); err != nil {
				t.Errorf("the tenant's own table: %v", err)
			}
			for _, sql := range []string{`SELECT value FROM t_t2.settings`, `SELECT id FROM gatehouse.tenants`, `SELECT digest FROM gatehouse.credentials`} {
				err := reach(sql)
				if pg, ok := errors.AsType[*pgconn.PgError](err); !ok || pg.Code != "42501" {
					t.Errorf("%s: got %v, want the error 42501", sql, err)
				}
			}
		})
	}
}

// TestSharedRole: without roles, schemas separate tenants. Ids that PostgreSQL would truncate stay
// different, as they do with roles.
func TestSharedRole(t *testing.T) {
	for _, shared := range []bool{true, false} {
		t.Run(fmt.Sprint(shared), func(t *testing.T) {
			ctx := context.Background()
			c := dbtest.OpenConfig(t, db.Config{URL: emptyDatabase(t), SharedRole: shared, MaxConns: 2})
			for _, id := range []scope.TenantID{"default", "t2", "a-tenant-with-hyphens", scope.TenantID(strings.Repeat("l", 63)), scope.TenantID(strings.Repeat("l", 62) + "m")} {
				errtest.Must(t, c.CreateTenant(ctx, id))
				put(t, tenant(t, c, id), "same", string(id))
				if got := settings(t, tenant(t, c, id)); len(got) != 1 || got[0].Value != string(id) {
					t.Errorf("settings of %s = %v, want its own", id, got)
				}
			}
			errtest.Must(t, c.DropTenant(ctx, "t2"))
		})
	}
}

// TestServerRestart: after all connections were lost, the next transactions succeed, and watchers
// are notified that changes may have been missed.
func TestServerRestart(t *testing.T) {
	ctx := context.Background()
	cfg := dbtest.Config(t, dbtest.Postgres)
	c := dbtest.OpenConfig(t, cfg)
	d := tenant(t, c, "default")
	var wg sync.WaitGroup
	for range 4 { // fill the pool
		wg.Go(func() { settings(t, d) })
	}
	wg.Wait()
	notified := make(chan string, 10)
	c.Watch(func(id scope.TenantID, name string) { notified <- string(id) + "/" + name })
	admin(t, cfg.URL, `SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()`)
	if got := wait(t, notified); got != "/" {
		t.Errorf("notification after the loss = %q, want /", got)
	}
	for i := range 6 {
		put(t, d, fmt.Sprint(i), "x")
	}
	other := dbtest.OpenConfig(t, cfg)
	if err := tenant(t, other, "default").Write(ctx, func(tx *db.Tx) error {
		_, err := tx.Bump(ctx, "again")
		return err
	}); err != nil {
		t.Fatal(err)
	}
	if got := wait(t, notified); got != "default/again" {
		t.Errorf("notification of another replica = %q, want default/again", got)
	}
}

// TestDeadlock: two transactions that deadlock both succeed, one of them at its second run.
func TestDeadlock(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	d := tenant(t, dbtest.Open(t, dbtest.Postgres), "default")
	put(t, d, "a", "0")
	put(t, d, "b", "0")
	var wg, both sync.WaitGroup
	both.Add(2)
	for _, order := range [][]string{{"a", "b"}, {"b", "a"}} {
		wg.Go(func() {
			first := true
			err := d.Write(ctx, func(tx *db.Tx) error {
				for i, name := range order {
					if _, err := tx.Exec(ctx, `UPDATE settings SET value = value || 'x' WHERE name = $1`, name); err != nil {
						return err
					}
					if first && i == 0 {
						first = false
						both.Done()
						both.Wait()
					}
				}
				return nil
			})
			if err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	for _, s := range settings(t, d) {
		if s.Value != "0xx" {
			t.Errorf("setting = %+v, want 0xx", s)
		}
	}
}

// TestUnreachableServer: the error of a server that cannot be reached is unavailable, and it does not show
// the password or the address.
func TestUnreachableServer(t *testing.T) {
	start := time.Now()
	_, err := db.Open(context.Background(), db.Config{URL: "postgres://user:topsecret@127.0.0.1:1/x"})
	f, ok := errors.AsType[*fault.Error](err)
	if !ok || f.Kind != fault.Unavailable || f.RetryAfter == 0 {
		t.Fatalf("db.Open of a closed port = %v, want unavailable with a time to retry", err)
	}
	if strings.Contains(err.Error(), "topsecret") || strings.Contains(f.Message, "127.0.0.1") || time.Since(start) > 2*time.Second {
		t.Errorf("db.Open of a closed port = %v after %v, want neither password nor address, within 2 s", err, time.Since(start))
	}
	if _, err := db.Open(context.Background(), db.Config{URL: "postgres://user:topsecret@:%%"}); err == nil || strings.Contains(err.Error(), "topsecret") {
		t.Errorf("db.Open of a broken address = %v, want an error without the password", err)
	}
}

// TestPoolExhausted: a caller for whom no connection is free gets an error within two seconds.
func TestPoolExhausted(t *testing.T) {
	ctx := context.Background()
	cfg := dbtest.Config(t, dbtest.Postgres)
	cfg.MaxConns = 1
	d := tenant(t, dbtest.OpenConfig(t, cfg), "default")
	err := d.Read(ctx, func(*db.Tx) error {
		start := time.Now()
		err := d.Read(ctx, func(*db.Tx) error { return nil })
		if !fault.Is(err, fault.Unavailable) || time.Since(start) > 2*time.Second {
			t.Errorf("Read without a free connection: got %v after %v, want unavailable within 2 s", err, time.Since(start))
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

// TestDropDuringTransaction: a tenant is dropped although a transaction uses its tables, in
// whatever order.
func TestDropDuringTransaction(t *testing.T) {
	ctx := context.Background()
	c := dbtest.Open(t, dbtest.Postgres)
	lock := func(tx *db.Tx, table string) error {
		_, err := tx.Exec(ctx, "LOCK TABLE "+table+" IN ROW SHARE MODE")
		return err
	}
	for id, tables := range map[scope.TenantID][2]string{"one": {"bouncers", "bridge_presence"}, "other": {"bridge_presence", "bouncers"}} {
		errtest.Must(t, c.CreateTenant(ctx, id))
		dropped := make(chan error, 1)
		var once sync.Once
		// The transaction may be the one that loses; then its tables are gone.
		_ = tenant(t, c, id).Write(ctx, func(tx *db.Tx) error {
			if err := lock(tx, tables[0]); err != nil {
				return err
			}
			once.Do(func() { go func() { dropped <- c.DropTenant(ctx, id) }() })
			waitsForLock(t, c)
			return lock(tx, tables[1])
		})
		if err := <-dropped; err != nil {
			t.Errorf("DropTenant of %s: %v", id, err)
		}
		if _, err := c.Tenant(ctx, id); !fault.Is(err, fault.NotFound) {
			t.Errorf("Tenant %s after the drop: got %v, want not found", id, err)
		}
	}
}

// waitsForLock waits until a session waits for an exclusive lock of a table.
func waitsForLock(t *testing.T, c *db.Cluster) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	for waiting := int64(0); waiting == 0; {
		err := c.System().Read(ctx, func(tx *db.Tx) (err error) {
			waiting, err = db.One[int64](ctx, tx, `SELECT COUNT(*) FROM pg_locks WHERE NOT granted AND mode = 'AccessExclusiveLock'`)
			return err
		})
		if err != nil {
			t.Error(err)
			return
		}
	}
}
