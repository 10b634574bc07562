package tenancy_test

import (
	"bytes"
	"context"
	"database/sql"
	"fmt"
	"io/fs"
	"maps"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
	_ "modernc.org/sqlite"

	"github.com/gatehouse-dev/gatehouse/internal/app/apptest"
	"github.com/gatehouse-dev/gatehouse/internal/cache/cachetest"
	"github.com/gatehouse-dev/gatehouse/internal/db/dbtest"
	"github.com/gatehouse-dev/gatehouse/internal/errtest"
)

// purgeMark is in everything that the test stores for the tenant to be purged, and in its name and
// id.
const purgeMark = "zebrafinch"

// systemTables are the tables of the system store, each with the columns that name a tenant; none
// for tables without tenants' rows. A new table must be added here.
var systemTables = map[string][]string{
	"tenants": nil, "retired_tenants": nil, "deployment": nil, // tenants has the tenant's own row, retired_tenants its id, which stays
	"credentials": {"tenant"}, "tenant_intents": {"tenant"}, "domain_routes": {"tenant"}, "provisionings": {"tenant"},
	"acme_certificates": {"tenant"}, "acme_orders": {"tenant"}, "deployments": {"tenant"}, "replica_alerts": {"tenant"},
	"leases": nil, "revisions": nil, "settings": nil, "signing_keys": nil, "acme_accounts": nil, "goose_db_version": nil,
}

// TestPurgeLeavesNothing uses a tenant, fills each table of its store and each system table that
// names tenants, and purges it. Then no table, file, schema, role or key of Redis may have its id,
// its name or its data.
func TestPurgeLeavesNothing(t *testing.T) {
	for _, backend := range dbtest.Backends() {
		t.Run(backend, func(t *testing.T) {
			redis := cachetest.Start(t)
			s := apptest.StartServer(t, backend, "GATEHOUSE_REDIS_URL="+redis.URL(), "GATEHOUSE_RATE_LIMIT=plan", "GATEHOUSE_BASE_DOMAIN=gatehouse.test")
			id := useTenant(t, s)
			stores := openStores(t, s, id)
			stores.fillTenant(t, id)
			stores.fillSystem(t, id)
			if found := append(stores.findMark(t), redisKeys(t, redis.URL())...); len(found) < 80 || !slices.ContainsFunc(found, func(at string) bool { return strings.HasPrefix(at, "redis ") }) {
				t.Fatalf("before the purge, the tenant is in %d places, want at least 80 with Redis: %v", len(found), found)
			}
			stores.close(t)
			s.Admin.Do(t, "DELETE", "/tenants/"+id+"?hard_delete=true", nil).Want(200)
			// Decisions that wait in the spool find no store, and then leave the spool.
			apptest.Eventually(t, 2*time.Minute, func() error {
				left := openStores(t, s, "")
				defer left.close(t)
				found := append(left.findMark(t), redisKeys(t, redis.URL())...)
				found = slices.DeleteFunc(append(found, left.findNames(t)...), expectedAfterPurge)
				if len(found) > 0 {
					return fmt.Errorf("the purge left %q", found)
				}
				return nil
			})
		})
	}
}

// TestPurgeReachesReplicas checks that a purge also deletes a tenant's files of other replicas: of
// one that runs and of one that starts later.
func TestPurgeReachesReplicas(t *testing.T) {
	for _, backend := range dbtest.Backends() {
		if backend == "sqlite" {
			continue // SQLite has no replicas
		}
		s := apptest.StartServer(t, backend, "GATEHOUSE_BASE_DOMAIN=gatehouse.test")
		other, late := s.Replica(t, "GATEHOUSE_BASE_DOMAIN=gatehouse.test"), s.Replica(t, "GATEHOUSE_BASE_DOMAIN=gatehouse.test")
		s.Admin.Do(t, "POST", "/tenants", body{"name": purgeMark}).Want(201)
		key := other.WithKey(s.Admin.Do(t, "POST", "/tenants/"+purgeMark+"/api-keys", body{"name": "k", "scopes": []string{"decisions:read"}}).Want(201).Text("key"))
		key.Do(t, "POST", "/decisions/evaluate", body{"user": body{"id": "u"}, "resource": body{"type": "api", "path": "/x"}}).Want(200)
		aside := filepath.Join(other.Dir, "set-aside")
		errtest.Must(t, os.MkdirAll(aside, 0o700))
		errtest.Must(t, os.WriteFile(filepath.Join(aside, purgeMark+".bouncers.jsonl"), []byte("{}\n"), 0o600))
		if left := filesWith(t, other.Dir, purgeMark); len(left) < 2 {
			t.Fatalf("before the purge, the other replica has the tenant's files %q, want at least 2", left)
		}
		there := late.WithKey(key.APIKey)
		there.Do(t, "POST", "/decisions/evaluate", body{"user": body{"id": "u"}, "resource": body{"type": "api", "path": "/x"}}).Want(200)
		late.Kill()
		if left := filesWith(t, late.Dir, purgeMark); len(left) == 0 {
			t.Fatal("the killed replica has no files of the tenant, want some")
		}
		s.Admin.Do(t, "DELETE", "/tenants/"+purgeMark+"?hard_delete=true", nil).Want(200)
		wantPurged := func(replica string, dir string) {
			t.Helper()
			apptest.Eventually(t, time.Minute, func() error {
				if left := filesWith(t, dir, purgeMark); len(left) > 0 {
					return fmt.Errorf("the purge left %q on %s", left, replica)
				}
				return nil
			})
		}
		wantPurged("the other replica", other.Dir)
		late.Start()
		wantPurged("the replica that started later", late.Dir)
	}
}

// filesWith returns the files below a folder whose name or content has a text.
func filesWith(t *testing.T, dir, text string) (found []string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return nil // the file was deleted meanwhile
		}
		data, err := os.ReadFile(path)
		if err == nil && (strings.Contains(path, text) || bytes.Contains(data, []byte(text))) {
			found = append(found, path)
		}
		return nil
	})
	errtest.Must(t, err)
	return found
}

// expectedAfterPurge reports whether a place may name the purged tenant: the list of used ids, and
// the platform administrator's own log.
func expectedAfterPurge(at string) bool {
	return at == "system retired_tenants" || at == "default audit_events"
}

// useTenant creates a tenant with a vendor's call and uses it.
func useTenant(t *testing.T, s *apptest.Server) (id string) {
	t.Helper()
	_, vendor := newVendor(t, s, body{"name": "Widgets"})
	made := vendor.With("Idempotency-Key", "order-1").Do(t, "POST", "/tenants", body{
		"name": "The " + purgeMark, "administrator": body{"email": purgeMark + "@" + purgeMark + ".example", "username": purgeMark},
		"api_keys": []body{{"name": purgeMark, "scopes": []string{"policies:write", "decisions:read", "audit:read"}}},
		"bouncer":  body{"name": purgeMark, "hostname": "edge." + purgeMark + ".example", "port": 8443, "environment": "production"},
	}).Want(201)
	id = made.Text("tenant", "id")
	key := s.WithKey(made.Text("api_keys", "0", "key"))
	apptest.Activate(t, key, purgeMark, "production", "package "+purgeMark+"\n\nallow := true\n", nil)
	for range 3 {
		key.Do(t, "POST", "/decisions/evaluate", body{"user": body{"id": purgeMark}, "resource": body{"type": "api", "path": "/" + purgeMark}}).Want(200)
	}
	s.Admin.With("Idempotency-Key", "again").Do(t, "PUT", "/tenants/"+id, body{"name": "The great " + purgeMark}).Want(200)
	return id
}

// namedStore is one database of the server.
type namedStore struct {
	name   string // system, or the tenant's id
	db     *sql.DB
	tables []string
}

// stores are all databases of a server.
type stores struct {
	s    *apptest.Server
	list []namedStore
}

// openStores opens the system store, that of the default tenant, and that of the tenant id; "" for
// none.
func openStores(t *testing.T, s *apptest.Server, id string) *stores {
	t.Helper()
	out := &stores{s: s}
	for _, name := range []string{"system", "default", id} {
		if name == "" {
			continue
		}
		var store namedStore
		if address := s.DatabaseURL(); address != "" {
			store = openSchema(t, address, name)
		} else {
			store = openFile(t, s.Dir, name)
		}
		if len(store.tables) == 0 {
			t.Fatalf("the store of %s has no tables, want some", name)
		}
		out.list = append(out.list, store)
	}
	return out
}

func openFile(t *testing.T, dir, name string) namedStore {
	t.Helper()
	file := filepath.Join(dir, "tenants", name+".db")
	if name == "system" {
		file = filepath.Join(dir, "system.db")
	}
	conn, err := sql.Open("sqlite", "file:"+file+"?mode=rw&_pragma=busy_timeout(5000)")
	errtest.Must(t, err)
	return namedStore{name, conn, readColumn(t, conn, "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%'")}
}

func openSchema(t *testing.T, address, name string) namedStore {
	t.Helper()
	cfg, err := pgx.ParseConfig(address)
	errtest.Must(t, err)
	conn := stdlib.OpenDB(*cfg)
	schemas := readColumn(t, conn, "SELECT nspname FROM pg_namespace")
	for _, schema := range schemas {
		tables := readColumn(t, conn, "SELECT tablename FROM pg_tables WHERE schemaname = '"+schema+"'")
		home := schema == "t_"+name || strings.TrimPrefix(schema, "t_") == name
		if name == "system" {
			home = slices.Contains(tables, "retired_tenants")
		}
		if home {
			conn.SetMaxOpenConns(1)
			errtest.Must(t, errtest.Of(conn.ExecContext(t.Context(), `SET search_path TO "`+schema+`"`)))
			return namedStore{name, conn, tables}
		}
	}
	t.Fatalf("the database has the schemas %v, want one of %s", schemas, name)
	return namedStore{}
}

func (s *stores) close(t *testing.T) {
	t.Helper()
	for _, store := range s.list {
		if err := store.db.Close(); err != nil {
			t.Error(err)
		}
	}
}

// readColumn returns the first column of the rows as texts.
func readColumn(t *testing.T, conn *sql.DB, query string) (out []string) {
	t.Helper()
	rows, err := conn.QueryContext(t.Context(), query)
	if err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	defer rows.Close()
	for rows.Next() {
		var text sql.NullString
		errtest.Must(t, rows.Scan(&text))
		out = append(out, text.String)
	}
	errtest.Must(t, rows.Err())
	return out
}

// columns returns the columns of a table with their types, in lower case.
func (n namedStore) columns(t *testing.T, table string) map[string]string {
	t.Helper()
	query := "SELECT name || ' ' || type FROM pragma_table_info('" + table + "')"
	if _, file := n.db.Driver().(*stdlib.Driver); file {
		query = "SELECT column_name || ' ' || data_type FROM information_schema.columns WHERE table_schema = current_schema() AND table_name = '" + table + "'"
	}
	out := map[string]string{}
	for _, line := range readColumn(t, n.db, query) {
		name, kind, _ := strings.Cut(line, " ")
		out[name] = strings.ToLower(kind)
	}
	return out
}

// insert adds a row with the mark to a table. values override what the types suggest.
func (n namedStore) insert(t *testing.T, table string, values map[string]string) {
	t.Helper()
	columns := n.columns(t, table)
	names := slices.Sorted(maps.Keys(columns))
	var texts []string
	for _, name := range names {
		kind := columns[name]
		value, given := values[name]
		switch {
		case given:
		case strings.Contains(kind, "text"):
			value = "'" + purgeMark + "'"
		case kind == "blob":
			value = "CAST('" + purgeMark + "' AS BLOB)"
		case kind == "bytea":
			value = "'" + purgeMark + "'::bytea"
		case kind == "boolean":
			value = "FALSE"
		default:
			value = "987654321"
		}
		texts = append(texts, value)
	}
	query := `INSERT INTO "` + table + `" ("` + strings.Join(names, `", "`) + `") VALUES (` + strings.Join(texts, ", ") + ")"
	if _, err := n.db.ExecContext(t.Context(), query); err != nil {
		t.Errorf("%s: %v", query, err)
	}
}

// fillTenant adds a row to each table of the tenant's store.
func (s *stores) fillTenant(t *testing.T, id string) {
	t.Helper()
	for _, store := range s.list {
		if store.name != id {
			continue
		}
		for _, table := range store.tables {
			if table != "goose_db_version" && table != "user_names" { // user_names has the names of the administrator
				store.insert(t, table, nil)
			}
		}
	}
}

// fillSystem adds a row of the tenant to each system table that has rows of tenants.
func (s *stores) fillSystem(t *testing.T, id string) {
	t.Helper()
	system := s.list[0]
	for _, table := range system.tables {
		columns, known := systemTables[table]
		if !known {
			t.Errorf("the system store has the table %s, which systemTables lacks", table)
		}
		if len(columns) == 0 {
			for name := range system.columns(t, table) {
				if strings.Contains(name, "tenant") {
					t.Errorf("the column %s.%s names tenants, but systemTables lacks it", table, name)
				}
			}
			continue
		}
		values := map[string]string{}
		for _, name := range columns {
			values[name] = "'" + id + "'"
		}
		switch table {
		case "tenant_intents": // one that is already recorded
			values["home"], values["telling"] = "'"+id+"'", `'{"type":"TENANT_UPDATED","name":"`+purgeMark+`","changes":{},"actor":{},"request_id":""}'`
		case "deployments": // one that failed and left nothing
			values["source"], values["target"], values["phase"], values["completed_at"] = "''", "''", "'failed'", "1"
		}
		system.insert(t, table, values)
	}
}

// findMark returns the tables and files that have the mark: "<store> <table>", "file <path>" and
// "in file <path>".
func (s *stores) findMark(t *testing.T) (found []string) {
	t.Helper()
	for _, store := range s.list {
		for _, table := range store.tables {
			var texts []string
			for name, kind := range store.columns(t, table) {
				switch kind {
				case "bytea":
					texts = append(texts, `coalesce(encode("`+name+`", 'escape'), '')`)
				default:
					texts = append(texts, `coalesce(CAST("`+name+`" AS TEXT), '')`)
				}
			}
			all := strings.Join(texts, " || ' ' || ")
			if rows := readColumn(t, store.db, `SELECT 1 FROM "`+table+`" WHERE lower(`+all+`) LIKE '%`+purgeMark+`%' LIMIT 1`); len(rows) > 0 {
				found = append(found, store.name+" "+table)
			}
		}
	}
	err := filepath.WalkDir(s.s.Dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return nil //nolint:nilerr // the file was deleted meanwhile
		}
		name, _ := filepath.Rel(s.s.Dir, path)
		if strings.Contains(name, purgeMark) {
			found = append(found, "file "+name)
		}
		if d.IsDir() || strings.Contains(name, ".db") { // the tables of the databases are read above
			return nil
		}
		text, err := os.ReadFile(path)
		if err == nil && bytes.Contains(bytes.ToLower(text), []byte(purgeMark)) {
			found = append(found, "in file "+name)
		}
		return nil
	})
	errtest.Must(t, err)
	return found
}

// findNames returns the schemas and roles of PostgreSQL that are named for the tenant.
func (s *stores) findNames(t *testing.T) (found []string) {
	t.Helper()
	if s.s.DatabaseURL() == "" {
		return nil
	}
	for _, query := range []string{"SELECT 'schema ' || nspname FROM pg_namespace", "SELECT 'role ' || rolname FROM pg_roles"} {
		for _, name := range readColumn(t, s.list[0].db, query) {
			if strings.Contains(name, purgeMark) {
				found = append(found, name)
			}
		}
	}
	return found
}

// redisKeys returns the keys of Redis that name the tenant.
func redisKeys(t *testing.T, address string) (found []string) {
	t.Helper()
	u, err := url.Parse(address)
	errtest.Must(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", u.Host)
	errtest.Must(t, err)
	defer conn.Close()
	errtest.Must(t, errtest.Of(conn.Write([]byte("KEYS *"+purgeMark+"*\r\nQUIT\r\n"))))
	var text bytes.Buffer
	errtest.Must(t, errtest.Of(text.ReadFrom(conn)))
	for line := range strings.Lines(text.String()) {
		if strings.Contains(line, purgeMark) {
			found = append(found, "redis "+strings.TrimSpace(line))
		}
	}
	return found
}
