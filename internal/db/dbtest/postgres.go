package dbtest

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/errtest"
	"github.com/gatehouse-dev/gatehouse/internal/freeport"
)

// oldTests is the age, in seconds, at which databases of killed tests are removed.
const oldTests = 3600

// postgresCopy creates a database from the template and returns its address.
func postgresCopy(t testing.TB) string {
	t.Helper()
	admin := Server(t)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	template := "gh_tmpl_" + digest(t)
	withFileLock(t, "template", func() { makeTemplate(ctx, t, admin, template) })
	random := make([]byte, 6)
	_, _ = rand.Read(random) // never fails
	name := fmt.Sprintf("gh_test_%d_%s", time.Now().Unix(), hex.EncodeToString(random))
	statement(ctx, t, admin, "CREATE DATABASE "+name+" TEMPLATE "+template+" STRATEGY FILE_COPY")
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		statement(ctx, t, admin, "DROP DATABASE IF EXISTS "+name+" WITH (FORCE)")
	})
	return database(t, admin, name)
}

// makeTemplate creates the template unless it exists. Before that, it removes old test databases.
func makeTemplate(ctx context.Context, t testing.TB, admin, template string) {
	t.Helper()
	c := connect(ctx, t, admin)
	defer c.Close(ctx)
	rows, err := c.Query(ctx, `SELECT datname FROM pg_database WHERE datname LIKE 'gh\_%'`)
	errtest.Must(t, err)
	names, err := pgx.CollectRows(rows, pgx.RowTo[string])
	errtest.Must(t, err)
	if slices.Contains(names, template) {
		return
	}
	for _, name := range names {
		stamp, rest, _ := strings.Cut(strings.TrimPrefix(name, "gh_test_"), "_")
		made, err := strconv.ParseInt(stamp, 10, 64)
		if rest != "" && err == nil && time.Now().Unix()-made > oldTests {
			if _, err := c.Exec(ctx, "DROP DATABASE IF EXISTS "+name+" WITH (FORCE)"); err != nil {
				t.Logf("drop the old test database %s: %v", name, err)
			}
		}
	}
	work := template + "_work"
	for _, sql := range []string{"DROP DATABASE IF EXISTS " + work + " WITH (FORCE)", "CREATE DATABASE " + work} {
		errtest.Must(t, errtest.Of(c.Exec(ctx, sql)))
	}
	fill(t, db.Config{URL: database(t, admin, work)})
	errtest.Must(t, errtest.Of(c.Exec(ctx, "ALTER DATABASE "+work+" RENAME TO "+template)))
}

func connect(ctx context.Context, t testing.TB, address string) *pgx.Conn {
	t.Helper()
	c, err := pgx.Connect(ctx, address)
	errtest.Must(t, err)
	return c
}

func statement(ctx context.Context, t testing.TB, address, sql string) {
	t.Helper()
	c := connect(ctx, t, address)
	defer c.Close(ctx)
	if _, err := c.Exec(ctx, sql); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
}

// database returns the address of another database of the same server.
func database(t testing.TB, admin, name string) string {
	t.Helper()
	u, err := url.Parse(admin)
	errtest.Must(t, err)
	u.Path = "/" + name
	return u.String()
}

// Server returns the address of a PostgreSQL server. Its login may create databases and roles. If
// there is no server, Server skips the test, or fails it if one is required.
func Server(t testing.TB) string {
	t.Helper()
	if address := os.Getenv("GATEHOUSE_TEST_DATABASE_URL"); address != "" {
		return address
	}
	var address string
	var err error
	withFileLock(t, "postgres", func() { address, err = sharedServer(t) })
	if err == nil {
		return address
	}
	if required() {
		t.Fatalf("PostgreSQL is required: %v", err)
	}
	t.Skipf("not tested on PostgreSQL: %v", err)
	return ""
}

// sharedServer returns the address of the machine's test server, and starts it if necessary.
func sharedServer(t testing.TB) (string, error) {
	dir := filepath.Join(shared(t), "postgres")
	addressFile := filepath.Join(shared(t), "postgres.address")
	if b, err := os.ReadFile(addressFile); err == nil {
		if err := answers(string(b), time.Second); err == nil {
			return string(b), nil
		}
		// Wait for a slow server: replacing it would break all other tests.
		if listens(string(b)) && answers(string(b), time.Minute) == nil {
			return string(b), nil
		}
	}
	bin, err := binaries()
	if err != nil {
		return "", err
	}
	owner, err := serverUser()
	if err != nil {
		return "", err
	}
	if _, err := os.Stat(filepath.Join(dir, "postmaster.opts")); err != nil {
		if err := initServer(bin, dir, owner); err != nil {
			return "", err
		}
	}
	_, port, err := net.SplitHostPort(freeport.Addr(t))
	if err != nil {
		return "", err
	}
	// No durability: test data need not survive anything.
	opts := fmt.Sprintf("-F -p %s -c listen_addresses=127.0.0.1 -c unix_socket_directories= -c max_connections=400 "+
		"-c synchronous_commit=off -c full_page_writes=off -c autovacuum=off -c shared_buffers=64MB -c max_wal_size=256MB", port)
	_ = as(exec.Command(filepath.Join(bin, "pg_ctl"), "-D", dir, "-m", "immediate", "stop"), owner).Run() // usually none runs
	start := as(exec.Command(filepath.Join(bin, "pg_ctl"), "-D", dir, "-w", "-l", filepath.Join(dir, "log"), "-o", opts, "start"), owner)
	if err := start.Run(); err != nil {
		return "", fmt.Errorf("pg_ctl start (see %s): %w", filepath.Join(dir, "log"), err)
	}
	address := fmt.Sprintf("postgres://postgres@127.0.0.1:%s/postgres?sslmode=disable", port)
	if err := answers(address, 10*time.Second); err != nil {
		return "", err
	}
	return address, os.WriteFile(addressFile, []byte(address), 0o644)
}

func initServer(bin, dir string, owner *syscall.Credential) error {
	if err := os.RemoveAll(dir); err != nil {
		return err
	}
	if err := os.Mkdir(dir, 0o700); err != nil {
		return err
	}
	if owner != nil {
		if err := os.Chown(dir, int(owner.Uid), int(owner.Gid)); err != nil {
			return err
		}
	}
	out, err := as(exec.Command(filepath.Join(bin, "initdb"), "-D", dir, "-U", "postgres", "-A", "trust", "-E", "UTF8", "--no-sync", "--locale=C"), owner).CombinedOutput()
	if err != nil {
		return fmt.Errorf("initdb: %w: %s", err, out)
	}
	return nil
}

// binaries returns the folder of PostgreSQL's programs.
func binaries() (string, error) {
	if path, err := exec.LookPath("initdb"); err == nil {
		return filepath.Dir(path), nil
	}
	found, err := filepath.Glob("/usr/lib/postgresql/*/bin/initdb")
	if err != nil || len(found) == 0 {
		return "", errors.New("no GATEHOUSE_TEST_DATABASE_URL and no initdb on PATH or in /usr/lib/postgresql")
	}
	return filepath.Dir(found[len(found)-1]), nil
}

// serverUser returns the user of the server; nil for the current user. PostgreSQL refuses to run as
// root.
func serverUser() (*syscall.Credential, error) {
	if os.Getuid() != 0 {
		return nil, nil
	}
	u, err := user.Lookup("postgres")
	if err != nil {
		return nil, fmt.Errorf("root cannot run PostgreSQL: %w", err)
	}
	uid, err := strconv.ParseUint(u.Uid, 10, 32)
	if err != nil {
		return nil, err
	}
	gid, err := strconv.ParseUint(u.Gid, 10, 32)
	return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}, err
}

// as makes a command run as another user and in a new session, so that the server outlives the test.
func as(c *exec.Cmd, owner *syscall.Credential) *exec.Cmd {
	c.SysProcAttr = &syscall.SysProcAttr{Credential: owner, Setsid: true}
	c.Dir = "/"
	return c
}

// listens reports whether a server listens at the address. A slow answer counts: only a refused
// connection means that no server is there.
func listens(address string) bool {
	u, err := url.Parse(address)
	if err != nil {
		return false
	}
	c, err := net.DialTimeout("tcp", u.Host, 30*time.Second)
	if err != nil {
		late, ok := errors.AsType[net.Error](err)
		return ok && late.Timeout()
	}
	_ = c.Close()
	return true
}

// answers waits until the server accepts connections. If within is a second or less, a refused
// connection is an error at once.
func answers(address string, within time.Duration) error {
	ctx, cancel := context.WithTimeout(context.Background(), within)
	defer cancel()
	for {
		c, err := pgx.Connect(ctx, address)
		if err == nil {
			return c.Close(ctx)
		}
		if _, ok := errors.AsType[*net.OpError](err); ctx.Err() != nil || (ok && within <= time.Second) {
			return err
		}
	}
}
