// Package dbtest provides tests with a store of their own on each backend: a folder for SQLite, and
// a database for PostgreSQL, on a server that all tests of the machine share. Both are copies of a
// migrated template with the tenants "default" and "t2", so a store takes only some tens of
// milliseconds.
//
// The PostgreSQL server is that of GATEHOUSE_TEST_DATABASE_URL (a login that may create databases
// and roles). Otherwise it is started from the binaries on PATH or in /usr/lib/postgresql, and
// keeps running for the next test run. Without either, PostgreSQL tests are skipped, but fail if
// CI=true or GATEHOUSE_TEST_REQUIRE=all.
package dbtest

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/errtest"
	"github.com/gatehouse-dev/gatehouse/internal/fulltest"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

// The backends.
const (
	SQLite   = "sqlite"
	Postgres = "postgres"
)

// Second is the second tenant, besides scope.DefaultTenant.
const Second scope.TenantID = "t2"

// Each runs test on every backend, as a subtest with a new store; in the inner loop only on SQLite.
func Each(t *testing.T, test func(t *testing.T, c *db.Cluster)) {
	t.Helper()
	for _, backend := range Backends() {
		t.Run(backend, func(t *testing.T) { test(t, Open(t, backend)) })
	}
}

// Backends returns the backends for the test of a service: only SQLite in the inner loop.
func Backends() []string {
	if fulltest.Inner() {
		return []string{SQLite}
	}
	return []string{SQLite, Postgres}
}

// Both runs test on every backend, also in the inner loop, because the backends differ.
func Both(t *testing.T, test func(t *testing.T, c *db.Cluster)) {
	t.Helper()
	for _, backend := range []string{SQLite, Postgres} {
		t.Run(backend, func(t *testing.T) { test(t, Open(t, backend)) })
	}
}

// Open opens a new store, which is removed after the test.
func Open(t testing.TB, backend string) *db.Cluster {
	t.Helper()
	return OpenConfig(t, Config(t, backend))
}

// OpenConfig opens another replica on the store of a Config.
func OpenConfig(t testing.TB, cfg db.Config) *db.Cluster {
	t.Helper()
	c, err := db.Open(context.Background(), cfg)
	if err != nil {
		t.Fatalf("open the store: %v", err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Errorf("close the store: %v", err)
		}
	})
	return c
}

// Config creates a new store, which is removed after the test, without opening it.
func Config(t testing.TB, backend string) db.Config {
	t.Helper()
	if backend == SQLite {
		return db.Config{Dir: sqliteCopy(t)}
	}
	return db.Config{URL: postgresCopy(t), MaxConns: 8}
}

// required reports whether a missing server fails the tests.
func required() bool {
	return os.Getenv("CI") == "true" || os.Getenv("GATEHOUSE_TEST_REQUIRE") == "all"
}

// shared returns the folder that the test processes of this user share.
func shared(t testing.TB) string {
	t.Helper()
	dir := filepath.Join(os.TempDir(), fmt.Sprintf("gatehouse-test-%d", os.Getuid()))
	errtest.Must(t, os.MkdirAll(dir, 0o755))
	return dir
}

// withFileLock runs f while it holds the file lock of a name, which all test processes share.
func withFileLock(t testing.TB, name string, f func()) {
	t.Helper()
	lock, err := os.OpenFile(filepath.Join(shared(t), name+".lock"), os.O_CREATE|os.O_RDWR, 0o644)
	errtest.Must(t, err)
	defer lock.Close()
	errtest.Must(t, syscall.Flock(int(lock.Fd()), syscall.LOCK_EX))
	f()
}

// digest returns the name of the template of the current migrations.
func digest(t testing.TB) string {
	t.Helper()
	h := sha256.New()
	err := fs.WalkDir(db.Migrations(), ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := fs.ReadFile(db.Migrations(), path)
		fmt.Fprintf(h, "%s %d %s", path, len(text), text)
		return err
	})
	errtest.Must(t, err)
	return hex.EncodeToString(h.Sum(nil)[:6])
}

// fill creates a template's schema and tenants.
func fill(t testing.TB, cfg db.Config) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	c, err := db.Open(ctx, cfg)
	if err != nil {
		t.Fatalf("make the template: %v", err)
	}
	defer c.Close()
	for _, id := range []scope.TenantID{scope.DefaultTenant, Second} {
		if err := c.CreateTenant(ctx, id); err != nil {
			t.Fatalf("make the template's tenant %s: %v", id, err)
		}
	}
}

// sqliteCopy copies the template, which it creates if necessary, into a folder of the test.
func sqliteCopy(t testing.TB) string {
	t.Helper()
	template := filepath.Join(shared(t), "sqlite-"+digest(t))
	if _, err := os.Stat(template); err != nil {
		withFileLock(t, "sqlite", func() {
			if _, err := os.Stat(template); err == nil {
				return
			}
			work, err := os.MkdirTemp(shared(t), "work-")
			errtest.Must(t, err)
			fill(t, db.Config{Dir: work})
			errtest.Must(t, os.Rename(work, template))
		})
	}
	dir := t.TempDir()
	errtest.Must(t, os.CopyFS(dir, os.DirFS(template)))
	return dir
}
