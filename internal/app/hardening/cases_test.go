package hardening_test

import (
	"bytes"
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	_ "modernc.org/sqlite"

	"github.com/gatehouse-dev/gatehouse/internal/app/apptest"
	"github.com/gatehouse-dev/gatehouse/internal/db/dbtest"
	"github.com/gatehouse-dev/gatehouse/internal/dnstest"
	"github.com/gatehouse-dev/gatehouse/internal/errtest"
)

// baseDomain is the domain whose subdomains are tenants of the server under test.
const baseDomain = "gatehouse.test"

// TestHardening runs the abuse cases against the program. Their names begin with an area: T
// tenants, E environments and scopes, B bouncers, A credentials, R hostile Rego, I input, C
// concurrency, D the decision cache. One server for each backend serves all of them, and each case
// creates its own objects. Cases about all operations take these from the served document, so a new
// operation is tested from its first day.
func TestHardening(t *testing.T) {
	for _, backend := range []string{dbtest.SQLite, dbtest.Postgres} {
		t.Run(backend, func(t *testing.T) {
			dns := dnstest.Start(t)
			r := newFixture(t, apptest.StartServer(t, backend, "GATEHOUSE_BASE_DOMAIN="+baseDomain, "GATEHOUSE_DNS_SERVER="+dns.Addr))
			r.dns = dns
			for _, group := range [][]hardeningCase{tenantCases, scopeCases, bouncerCases, credentialCases, regoCases, growthCases, inputCases, cacheCases, concurrencyCases} {
				for _, c := range group {
					t.Run(c.name, func(t *testing.T) { c.run(t, r) })
				}
			}
			if code, ended := r.s.Exited(); ended {
				t.Errorf("the server ended with %d, want it to run:\n%s", code, r.s.Log)
			}
			if log := r.s.Log.String(); strings.Contains(log, "panic") || strings.Contains(log, "DATA RACE") {
				t.Errorf("the server's log has a panic or a race:\n%s", log)
			}
		})
	}
}

type hardeningCase struct {
	name string
	run  func(t *testing.T, r *fixture)
}

// fixture is a server with two tenants that know nothing of each other.
type fixture struct {
	s           *apptest.Server
	ops         []operation
	alpha, beta *party
	serial      int
	narrowest   *apptest.Client
	dns         *dnstest.Server
	mark        string // prefix of new names
	// reporting has the tenants whose bouncers are connected. The server stores their reports later.
	reporting map[string]bool
}

// party is a tenant with its administrator and a key that has every scope.
type party struct {
	id    string
	admin *apptest.Client // a person
	key   *apptest.Client // an API key that is valid in both environments
	// Ids of objects in this tenant. policy, resource and bouncer are in sandbox, and the other
	// tenant has no such ids.
	policy, resource, bouncer int64
	scenario, simulation      int64
	webhook, agent            int64
	source, sync, integration int64
	user, keyID               string
}

// operation is one operation of the served document.
type operation struct {
	id, method, path, permission string
	also                         string   // a second permission that it needs
	reach                        string   // how far a credential of one environment reaches
	callers                      []string // kinds of callers; empty: people, keys and bouncers
	public                       bool
	optional                     bool // needs no credential
	bearer                       bool // takes its credential only as a bearer token
	token                        bool // takes access tokens, but no API keys
	body                         bool
	media                        []string
	params                       []parameter
}

type parameter struct {
	Ref  string `json:"$ref"`
	Name string `json:"name"`
	In   string `json:"in"`
	Must bool   `json:"required"`
	Sch  struct {
		Type    string   `json:"type"`
		Maximum *float64 `json:"maximum"`
		Enum    []string `json:"enum"`
	} `json:"schema"`
}

func newFixture(t *testing.T, s *apptest.Server) *fixture {
	t.Helper()
	r := &fixture{s: s, ops: operations(t, s, "/openapi.json", 40), reporting: map[string]bool{}}
	r.alpha, r.beta = r.tenant(t, "Alpha"), r.tenant(t, "Beta")
	// Beta gets more objects, so only beta has the ids of the last ones.
	for range 4 {
		r.addObjects(t, r.beta)
	}
	r.addObjects(t, r.alpha)
	return r
}

// operations reads the operations of a served document, at least the given number.
func operations(t *testing.T, s *apptest.Server, document string, least int) []operation {
	t.Helper()
	var doc struct {
		Paths map[string]map[string]struct {
			ID          string                `json:"operationId"`
			Permission  string                `json:"x-permission"`
			Also        string                `json:"x-permission-also"`
			Reach       string                `json:"x-environment"`
			Callers     []string              `json:"x-callers"`
			Security    []map[string][]string `json:"security"`
			Parameters  []parameter           `json:"parameters"`
			RequestBody struct {
				Content map[string]json.RawMessage `json:"content"`
			} `json:"requestBody"`
		} `json:"paths"`
		Components struct {
			Parameters map[string]parameter `json:"parameters"`
		} `json:"components"`
	}
	(&apptest.Client{Base: s.URL}).Do(t, "GET", document, nil).Want(200).Into(&doc)
	var out []operation
	for _, path := range slices.Sorted(maps.Keys(doc.Paths)) {
		for _, method := range slices.Sorted(maps.Keys(doc.Paths[path])) {
			d := doc.Paths[path][method]
			if d.ID == "" {
				continue
			}
			op := operation{
				id: d.ID, method: strings.ToUpper(method), path: path, permission: d.Permission, also: d.Also, reach: d.Reach, callers: d.Callers,
				public: len(d.Security) == 0, media: slices.Sorted(maps.Keys(d.RequestBody.Content)),
			}
			op.body = len(op.media) > 0
			op.bearer = len(d.Security) > 0
			for _, alternative := range d.Security {
				op.optional = op.optional || len(alternative) == 0
				_, key := alternative["apiKey"]
				op.bearer = op.bearer && !key
				_, token := alternative["token"]
				op.token = op.token || token
			}
			for _, p := range d.Parameters {
				if p.Ref != "" {
					p = doc.Components.Parameters[p.Ref[strings.LastIndex(p.Ref, "/")+1:]]
				}
				op.params = append(op.params, p)
			}
			out = append(out, op)
		}
	}
	if len(out) < least {
		t.Fatalf("GET %s has %d operations, want at least %d", document, len(out), least)
	}
	return out
}

// directory reports whether the operation takes only the token of a tenant's directory.
func (op operation) directory() bool { return strings.HasPrefix(op.path, "/scim/") }

// platform reports whether only platform administrators may call the operation.
func (op operation) platform() bool { return slices.Contains(op.callers, "platform_admin") }

// takes reports whether callers of the kind may call the operation.
func (op operation) takes(kind string) bool {
	return len(op.callers) == 0 || slices.Contains(op.callers, kind)
}

// withSecurity returns the operations that need a credential.
func (r *fixture) withSecurity() []operation {
	return slices.DeleteFunc(slices.Clone(r.ops), func(op operation) bool { return op.public || op.optional })
}

// unsupported returns the status for a media type that the operation does not take. AuthZEN has no
// 415, but requests for access are not part of it.
func (op operation) unsupported() int {
	if strings.HasPrefix(op.path, "/access/v1/") && !strings.HasPrefix(op.path, "/access/v1/requests") {
		return 400
	}
	return 415
}

// bridge reports whether the operation takes bouncers' tokens.
func (op operation) bridge() bool { return strings.HasPrefix(op.path, "/api/v1/bridge/") }

// pathWith returns the operation's path with the values of its parameters, and with "1" for an
// empty value.
func (op operation) pathWith(value func(param string) string) string {
	path := op.path
	for _, p := range op.params {
		if p.In == "path" {
			v := value(p.Name)
			if v == "" {
				v = "1"
			}
			path = strings.ReplaceAll(path, "{"+p.Name+"}", v)
		}
	}
	return path
}

// requiredQuery returns the required query parameters, with the question mark.
func (op operation) requiredQuery() string {
	out := ""
	for _, p := range op.params {
		if p.In == "query" && p.Must && len(p.Sch.Enum) > 0 {
			out += "&" + p.Name + "=" + p.Sch.Enum[0]
		}
	}
	return strings.Replace(out, "&", "?", 1)
}

// requiredHeaders returns lines with the required header fields.
func (op operation) requiredHeaders() string {
	out := ""
	for _, p := range op.params {
		if p.In == "header" && p.Must {
			out += p.Name + ": 1\r\n"
		}
	}
	return out
}

// send calls the operation with an empty object if it takes a body. This is enough for a refusal,
// and too little for a change.
func (op operation) send(t *testing.T, c *apptest.Client, path string) *apptest.Response {
	t.Helper()
	root := *op.withCredential(c)
	root.Base = strings.TrimSuffix(c.Base, "/api/v1")
	var body any
	if op.body {
		body = []byte("{}")
	}
	return root.Do(t, op.method, path, body)
}

// tenant creates a tenant with an administrator and a key.
func (r *fixture) tenant(t *testing.T, name string) *party {
	t.Helper()
	made := r.s.Admin.Do(t, "POST", "/tenants", body{"name": name}).Want(201)
	id := made.Text("id")
	r.s.Admin.With("X-Tenant-ID", id).Do(t, "POST", "/users", body{
		"username": "root", "email": "root@" + id + ".example", "password": apptest.Password, "roles": []string{"admin"},
	}).Want(201)
	p := &party{id: id, admin: r.s.LoginTo(t, id, "root", apptest.Password)}
	p.keyID, p.key = r.key(t, p, body{"name": "all", "scopes": everyScope()})
	directory := p.admin.Do(t, "POST", "/tenants/"+id+"/scim/tokens", body{"name": "directory"}).Want(201).Text("token")
	directories.Store(p.admin.Bearer, directory)
	directories.Store(p.key.APIKey, directory)
	return p
}

// within returns a copy of p whose clients wait at most limit for an answer.
func (p *party) within(limit time.Duration) *party {
	cp := *p
	cp.admin, cp.key = p.admin.Within(limit), p.key.Within(limit)
	return &cp
}

// key creates a key of the tenant.
func (r *fixture) key(t *testing.T, p *party, draft body) (id string, c *apptest.Client) {
	t.Helper()
	made := p.admin.Do(t, "POST", "/tenants/"+p.id+"/api-keys", draft).Want(201)
	id = made.Text("id")
	c = r.s.WithKey(made.Text("key"))
	tokenOf(c) // now, because it writes a session
	return id, c
}

// newPerson creates a person and signs them in.
func (r *fixture) newPerson(t *testing.T, p *party, roles ...string) (id string, c *apptest.Client) {
	t.Helper()
	name := r.name("person")
	id = p.admin.Do(t, "POST", "/users", body{
		"username": name, "email": name + "@example.com", "password": apptest.Password, "roles": roles,
	}).Want(201).Text("id")
	return id, r.s.LoginTo(t, p.id, name, apptest.Password)
}

// addObjects creates one more of each kind of object in a tenant.
func (r *fixture) addObjects(t *testing.T, p *party) {
	t.Helper()
	p.resource = p.admin.Do(t, "POST", "/resources", body{"name": r.name("resource"), "type": "api", "path": "/" + r.name("path"), "environment": "sandbox"}).Want(201).ID()
	p.bouncer = p.admin.Do(t, "POST", "/bouncers", body{"name": r.name("bouncer"), "hostname": "edge.example", "port": 8443, "environment": "sandbox"}).Want(201).ID()
	p.policy = r.newControl(t, p, body{"resource_id": p.resource})
	p.user, _ = r.newPerson(t, p, "viewer")
	p.scenario = p.admin.Do(t, "POST", "/pis/scenarios", body{"policy_id": p.policy, "name": r.name("scenario")}).Want(201).ID()
	p.webhook = p.admin.Do(t, "POST", "/webhooks", body{
		"name": r.name("webhook"), "url": "https://webhook.invalid/", "events": []string{"policy.created"}, "enabled": false,
	}).Want(201).ID()
	p.agent = p.admin.Do(t, "POST", "/ai-agents", body{"name": r.name("agent"), "type": "llm"}).Want(201).ID()
	p.source = p.admin.Do(t, "POST", "/pip/connections", body{
		"name": r.name("source"), "provider": "http_json", "sync_enabled": false, "configuration": body{"url": "https://source.invalid/"},
	}).Want(201).ID()
	p.integration = p.admin.Do(t, "POST", "/integrations", body{
		"name": r.name("integration"), "kind": "webhook", "endpoint": "https://integration.invalid/", "credential": body{"hmac_secret": "integration-secret"}, "enabled": false,
	}).Want(201).ID()
	sync, _ := p.admin.Do(t, "POST", fmt.Sprintf("/pip/connections/%d/trigger-sync", p.source), nil).Want(202).Get("sync_job_id").(float64)
	p.sync = int64(sync)
	run, _ := p.admin.Do(t, "POST", fmt.Sprintf("/pis/policies/%d/simulate?environment=sandbox", p.policy), body{"scenario_id": p.scenario}).Want(200).Get("simulation_id").(float64)
	p.simulation = int64(run)
}

// newControl creates a control in the tenant's sandbox. members override the defaults.
func (r *fixture) newControl(t *testing.T, p *party, members body) int64 {
	t.Helper()
	full := body{"name": r.name("control"), "rego_code": "package p\n\nallow := true\n", "environment": "sandbox"}
	maps.Copy(full, members)
	return p.admin.Do(t, "POST", "/policies", full).Want(201).ID()
}

// name returns a name that nothing else has.
func (r *fixture) name(kind string) string {
	r.serial++
	return fmt.Sprintf("%s%s-%d", r.mark, kind, r.serial)
}

// valueOf returns the value of a path parameter that exists in the tenant.
func (p *party) valueOf(param string) string {
	switch param {
	case "tenant_id":
		return p.id
	case "policy_id":
		return fmt.Sprint(p.policy)
	case "resource_id":
		return fmt.Sprint(p.resource)
	case "bouncer_id", "pep_id":
		return fmt.Sprint(p.bouncer)
	case "webhook_id":
		return fmt.Sprint(p.webhook)
	case "integration_id":
		return fmt.Sprint(p.integration)
	case "connection_id":
		return fmt.Sprint(p.source)
	case "sync_job_id":
		return fmt.Sprint(p.sync)
	case "agent_id":
		return fmt.Sprint(p.agent)
	case "scenario_id":
		return fmt.Sprint(p.scenario)
	case "simulation_id":
		return fmt.Sprint(p.simulation)
	case "user_id":
		return p.user
	case "key_id":
		return p.keyID
	case "environment":
		return "sandbox"
	}
	return ""
}

// unused returns a value of a path parameter that never existed, in a tenant that exists.
func (p *party) unused(param string) string {
	switch param {
	case "tenant_id":
		return p.id
	case "environment":
		return "sandbox"
	case "user_id", "key_id":
		return "never-used-id"
	case "version":
		return "1"
	}
	return "987654321"
}

// everyScope returns all scopes.
func everyScope() []string {
	var out []string
	for _, area := range []string{
		"policies", "resources", "decisions", "audit", "users", "agents", "bouncers", "pip", "webhooks",
		"notifications", "integrations", "telemetry", "simulator", "tenants", "billing", "dashboard", "editor",
	} {
		out = append(out, area+":read", area+":write")
	}
	return out
}

// checkRefusal checks the form of a refusal: small JSON in the shape of its area, with a request id
// and without internals.
func checkRefusal(t *testing.T, res *apptest.Response, what string) {
	t.Helper()
	var text string
	if json.Unmarshal(res.Body, &text) == nil && text != "" && (strings.Contains(what, "authzen-") || strings.Contains(what, "/access/v1/")) {
		res = &apptest.Response{Status: res.Status, Header: res.Header, Body: []byte(`{"detail":` + string(res.Body) + `}`)} // an error of AuthZEN is a text
	}
	var shape map[string]any
	if err := json.Unmarshal(res.Body, &shape); err != nil || !isJSON(res.Header.Get("Content-Type")) {
		t.Errorf("%s: the refusal is not JSON: %s", what, res.Body)
		return
	}
	// Errors of OPA's protocol have code and message.
	if shape["error"] == nil && shape["detail"] == nil && shape["success"] != false && shape["code"] == nil {
		t.Errorf("%s: the refusal has an unknown shape: %s", what, res.Body)
	}
	if len(res.Body) > 2048 {
		t.Errorf("%s: the refusal has %d bytes, want at most 2048", what, len(res.Body))
	}
	for _, inside := range []string{"goroutine ", ".go:", "SELECT ", "INSERT ", "pq:", "SQLSTATE", "sqlite", "/work/", "/tmp/", "/home/"} {
		if bytes.Contains(res.Body, []byte(inside)) {
			t.Errorf("%s: the refusal shows %q: %s", what, inside, res.Body)
		}
	}
	if res.Header.Get("X-Request-ID") == "" {
		t.Errorf("%s: the refusal has no X-Request-ID", what)
	}
}

// isJSON reports whether a media type is one of our refusals. SCIM has its own.
func isJSON(media string) bool {
	return strings.HasPrefix(media, "application/json") || media == "application/scim+json"
}

// withRequestID returns the client with a fixed request id, so that answers can be compared byte
// for byte.
func withRequestID(c *apptest.Client) *apptest.Client { return c.With("X-Request-ID", "hardening") }

// wantUnchanged runs f and checks that no row of any tenant changed.
func (r *fixture) wantUnchanged(t *testing.T, f func()) {
	t.Helper()
	before := r.rows(t)
	f()
	after := r.rows(t)
	for name, digest := range after {
		i := strings.LastIndexAny(name, "/.")
		tenant, table := strings.NewReplacer(".db", "", `"`, "", "t_", "").Replace(name[:i]), name[i+1:]
		if before[name] != digest && !(r.reporting[tenant] && slices.Contains([]string{"bouncers", "bouncer_sync", "events"}, table)) {
			t.Errorf("a refused request changed %s", name)
		}
	}
}

// changing are tables that change with time, with a read, or when earlier decisions are shipped.
var changing = []string{"leases", "jobs", "event_cursors", "bridge_presence", "audit_chains", "decisions", "decision_counts", "decision_rollups", "anomalies", "decision_seen", "policy_counters", "goose_db_version", "login_attempts", "login_places", "replay_inputs", "api_calls"}

// rows returns digests of all rows, by tenant and table.
func (r *fixture) rows(t *testing.T) map[string]string {
	t.Helper()
	if address := r.s.DatabaseURL(); address != "" {
		return postgresRows(t, address)
	}
	out := map[string]string{}
	files, err := filepath.Glob(filepath.Join(r.s.Dir, "tenants", "*.db"))
	errtest.Must(t, err)
	for _, file := range append(files, filepath.Join(r.s.Dir, "system.db")) {
		store, err := sql.Open("sqlite", "file:"+file+"?mode=ro&_pragma=busy_timeout(5000)")
		errtest.Must(t, err)
		for _, table := range texts(t, store, "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%'") {
			if !slices.Contains(changing, table) {
				columns := slices.DeleteFunc(texts(t, store, "SELECT name FROM pragma_table_info('"+table+"')"), changesByItself)
				out[filepath.Base(file)+"/"+table] = digest(texts(t, store, `SELECT quote("`+strings.Join(columns, `") || quote("`)+`") FROM "`+table+`" ORDER BY 1`))
			}
		}
		errtest.Must(t, store.Close())
	}
	return out
}

// changesByItself reports whether a read may change the column.
func changesByItself(column string) bool {
	return strings.HasPrefix(column, "last_") || column == "used_at" || column == "sealed"
}

func digest(rows []string) string {
	sum := sha256.Sum256([]byte(strings.Join(rows, "\n")))
	return hex.EncodeToString(sum[:])
}

func texts(t *testing.T, store *sql.DB, query string) []string {
	t.Helper()
	rows, err := store.QueryContext(t.Context(), query)
	errtest.Must(t, err)
	defer rows.Close()
	var out []string
	for rows.Next() {
		var s string
		errtest.Must(t, rows.Scan(&s))
		out = append(out, s)
	}
	errtest.Must(t, rows.Err())
	return out
}

func postgresRows(t *testing.T, address string) map[string]string {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), address)
	errtest.Must(t, err)
	defer conn.Close(t.Context())
	out := map[string]string{}
	for _, name := range apptest.Tables(t, conn) {
		if slices.Contains(changing, name[strings.LastIndex(name, ".")+1:]) {
			continue
		}
		var sum *string
		query := `SELECT md5(string_agg(x, ',' ORDER BY x)) FROM (SELECT (to_jsonb(r) - 'last_used_at' - 'last_login_at' - 'last_heartbeat' - 'used_at' - 'sealed')::text AS x FROM ` + name + ` r) rows`
		if err := conn.QueryRow(t.Context(), query).Scan(&sum); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if sum != nil {
			out[name] = *sum
		}
	}
	return out
}

// do sends a request and checks the status, and the form of a refusal.
func (r *fixture) do(t *testing.T, c *apptest.Client, method, path string, want int, in any) *apptest.Response {
	t.Helper()
	res := c.Do(t, method, path, in)
	if res.Status != want {
		t.Errorf("%s %s = %d, want %d: %.300s", method, path, res.Status, want, res.Body)
	}
	if res.Status >= http.StatusBadRequest {
		checkRefusal(t, res, method+" "+path)
	}
	return res
}
