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

	"github.com/jackc/pgx/v5"
	_ "modernc.org/sqlite"

	"github.com/gatehouse-dev/gatehouse/internal/app/apptest"
	"github.com/gatehouse-dev/gatehouse/internal/db/dbtest"
	"github.com/gatehouse-dev/gatehouse/internal/dnstest"
)

// baseDomain is the domain whose subdomains are tenants of the server under test.
const baseDomain = "gatehouse.test"

// TestHardening holds the running server to the abuse cases, named
// by area: T tenants, E environments and scopes, A credentials, R
// hostile Rego, I input, C concurrency, D the decision cache. One server a
// backend serves all of them; each case brings its own objects. What goes over
// all operations takes them from the served document, so that a new operation
// is held to the same cases from its first day.
func TestHardening(t *testing.T) {
	for _, backend := range []string{dbtest.SQLite, dbtest.Postgres} {
		t.Run(backend, func(t *testing.T) {
			dns := dnstest.Start(t)
			r := newRig(t, apptest.StartServer(t, backend, "GATEHOUSE_BASE_DOMAIN="+baseDomain, "GATEHOUSE_DNS_SERVER="+dns.Addr))
			r.dns = dns
			for _, group := range [][]hardeningCase{tenantCases, scopeCases, bouncerCases, credentialCases, regoCases, growthCases, inputCases, cacheCases, concurrencyCases} {
				for _, c := range group {
					t.Run(c.name, func(t *testing.T) { c.run(t, r) })
				}
			}
			if code, ended := r.s.Exited(); ended {
				t.Errorf("the server ended with %d:\n%s", code, r.s.Log)
			}
			if log := r.s.Log.String(); strings.Contains(log, "panic") || strings.Contains(log, "DATA RACE") {
				t.Errorf("the server's log:\n%s", log)
			}
		})
	}
}

type hardeningCase struct {
	name string
	run  func(t *testing.T, r *rig)
}

// rig is a server with two tenants that know nothing of each other.
type rig struct {
	s           *apptest.Server
	ops         []operation
	alpha, beta *party
	serial      int
	narrowest   *apptest.Client
	dns         *dnstest.Server
	mark        string // begins all names that are made meanwhile
	// reporting are tenants with bouncers that are in touch: what these tell is
	// written a while later.
	reporting map[string]bool
}

// party is a tenant with its administrator and a key that may do everything.
type party struct {
	id    string
	admin *apptest.Client // a person
	key   *apptest.Client // an API key good for both environments
	// Ids of objects that exist in this tenant; policy, resource and bouncer are
	// in sandbox, and so numbered that the other tenant has no such id.
	policy, resource, bouncer int64
	scenario, simulation      int64
	webhook, agent            int64
	source, sync, integration int64
	user, keyID               string
}

// operation is one operation of the served document.
type operation struct {
	id, method, path, permission string
	also                         string   // what it needs besides
	reach                        string   // what a credential of one environment may do with it
	callers                      []string // whom it is for; empty: people, keys and bouncers
	public                       bool
	optional                     bool // may be called without a credential
	bearer                       bool // takes its credential as a bearer token only
	token                        bool // takes access tokens, and no API keys
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

func newRig(t *testing.T, s *apptest.Server) *rig {
	t.Helper()
	r := &rig{s: s, ops: operations(t, s, "/openapi.json", 40), reporting: map[string]bool{}}
	r.alpha, r.beta = r.tenant(t, "Alpha"), r.tenant(t, "Beta")
	// Beta's own objects come after some others, so that their ids are beta's alone.
	for range 4 {
		r.fill(t, r.beta)
	}
	r.fill(t, r.alpha)
	return r
}

// operations reads a served document, which must have at least so many.
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
		t.Fatalf("the document has only %d operations", len(out))
	}
	return out
}

// directory says whether the operation takes the key of a tenant's directory, and no other.
func (op operation) directory() bool { return strings.HasPrefix(op.path, "/scim/") }

// platform says whether the operation is for platform administrators alone.
func (op operation) platform() bool { return slices.Contains(op.callers, "platform_admin") }

// takes says whether the operation is for a kind of caller.
func (op operation) takes(kind string) bool {
	return len(op.callers) == 0 || slices.Contains(op.callers, kind)
}

// secured are the operations that want a credential.
func (r *rig) secured() []operation {
	return slices.DeleteFunc(slices.Clone(r.ops), func(op operation) bool { return op.public || op.optional })
}

// unsupported is the status of a body in a form that is not taken. AuthZEN has no 415;
// requests for access are not part of it.
func (op operation) unsupported() int {
	if strings.HasPrefix(op.path, "/access/v1/") && !strings.HasPrefix(op.path, "/access/v1/requests") {
		return 400
	}
	return 415
}

// bridge says whether the operation is for bouncers' tokens.
func (op operation) bridge() bool { return strings.HasPrefix(op.path, "/api/v1/bridge/") }

// at is the operation's path with its parameters filled in by value, which
// answers "" for what it does not know; "1" stands for those.
func (op operation) at(value func(param string) string) string {
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

// query is what the operation wants in the query, with its question mark.
func (op operation) query() string {
	out := ""
	for _, p := range op.params {
		if p.In == "query" && p.Must && len(p.Sch.Enum) > 0 {
			out += "&" + p.Name + "=" + p.Sch.Enum[0]
		}
	}
	return strings.Replace(out, "&", "?", 1)
}

// headers are lines with the fields that the operation wants beside a credential.
func (op operation) headers() string {
	out := ""
	for _, p := range op.params {
		if p.In == "header" && p.Must {
			out += p.Name + ": 1\r\n"
		}
	}
	return out
}

// send calls the operation with an empty object where it takes a body: enough
// to be refused by whoever must, too little to change anything.
func (op operation) send(t *testing.T, c *apptest.Client, path string) *apptest.Response {
	t.Helper()
	root := *op.shown(c)
	root.Base = strings.TrimSuffix(c.Base, "/api/v1")
	var body any
	if op.body {
		body = []byte("{}")
	}
	return root.Do(t, op.method, path, body)
}

// tenant makes a tenant with an administrator and a key.
func (r *rig) tenant(t *testing.T, name string) *party {
	t.Helper()
	made := r.s.Admin.Do(t, "POST", "/tenants", body{"name": name}).Want(201)
	id, _ := made.Get("id").(string)
	r.s.Admin.With("X-Tenant-ID", id).Do(t, "POST", "/users", body{
		"username": "root", "email": "root@" + id + ".example", "password": apptest.Password, "roles": []string{"admin"},
	}).Want(201)
	p := &party{id: id, admin: r.login(t, id, "root", apptest.Password)}
	p.keyID, p.key = r.key(t, p, body{"name": "all", "scopes": everyScope()})
	directory, _ := p.admin.Do(t, "POST", "/tenants/"+id+"/scim/tokens", body{"name": "directory"}).Want(201).Get("token").(string)
	directories.Store(p.admin.Bearer, directory)
	directories.Store(p.key.APIKey, directory)
	return p
}

// login signs a person of a tenant in.
func (r *rig) login(t *testing.T, tenant, username, password string) *apptest.Client {
	t.Helper()
	c := r.s.Anonymous()
	token, _ := c.With("X-Tenant-ID", tenant).Do(t, "POST", "/auth/login", body{"username": username, "password": password}).Want(200).Get("access_token").(string)
	c.Bearer = token
	return c
}

// key makes a key of the tenant's own.
func (r *rig) key(t *testing.T, p *party, draft body) (id string, c *apptest.Client) {
	t.Helper()
	made := p.admin.Do(t, "POST", "/tenants/"+p.id+"/api-keys", draft).Want(201)
	id, _ = made.Get("id").(string)
	c = r.s.Anonymous()
	c.APIKey, _ = made.Get("key").(string)
	tokenOf(c) // now: it makes a session
	return id, c
}

// person adds a person and signs them in.
func (r *rig) person(t *testing.T, p *party, roles ...string) (id string, c *apptest.Client) {
	t.Helper()
	name := r.name("person")
	id, _ = p.admin.Do(t, "POST", "/users", body{
		"username": name, "email": name + "@example.com", "password": apptest.Password, "roles": roles,
	}).Want(201).Get("id").(string)
	return id, r.login(t, p.id, name, apptest.Password)
}

// fill gives a tenant one more of each object.
func (r *rig) fill(t *testing.T, p *party) {
	t.Helper()
	p.resource = p.admin.Do(t, "POST", "/resources", body{"name": r.name("resource"), "type": "api", "path": "/" + r.name("path"), "environment": "sandbox"}).Want(201).ID()
	p.bouncer = p.admin.Do(t, "POST", "/bouncers", body{"name": r.name("bouncer"), "hostname": "edge.example", "port": 8443, "environment": "sandbox"}).Want(201).ID()
	p.policy = r.control(t, p, body{"resource_id": p.resource})
	p.user, _ = r.person(t, p, "viewer")
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

// control makes a control in the tenant's sandbox; members go over the usual ones.
func (r *rig) control(t *testing.T, p *party, members body) int64 {
	t.Helper()
	full := body{"name": r.name("control"), "rego_code": "package p\n\nallow := true\n", "environment": "sandbox"}
	maps.Copy(full, members)
	return p.admin.Do(t, "POST", "/policies", full).Want(201).ID()
}

// name makes a name that nothing else has.
func (r *rig) name(kind string) string {
	r.serial++
	return fmt.Sprintf("%s%s-%d", r.mark, kind, r.serial)
}

// valueOf are values of path parameters that exist in the tenant.
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

// unused are values of path parameters that nothing ever had, in a tenant that is.
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

// everyScope are all scopes that there are.
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

// denial checks what every refusal must be: JSON in the area's shape, small,
// with nothing of the inside in it.
func denial(t *testing.T, res *apptest.Response, what string) {
	t.Helper()
	var text string
	if json.Unmarshal(res.Body, &text) == nil && text != "" && (strings.Contains(what, "authzen-") || strings.Contains(what, "/access/v1/")) {
		res = &apptest.Response{Status: res.Status, Header: res.Header, Body: []byte(`{"detail":` + string(res.Body) + `}`)} // AuthZEN's errors are texts
	}
	var shape map[string]any
	if err := json.Unmarshal(res.Body, &shape); err != nil || !isJSON(res.Header.Get("Content-Type")) {
		t.Errorf("%s: a refusal that is no JSON: %s", what, res.Body)
		return
	}
	// OPA's protocol has code and message.
	if shape["error"] == nil && shape["detail"] == nil && shape["success"] != false && shape["code"] == nil {
		t.Errorf("%s: a refusal in no known shape: %s", what, res.Body)
	}
	if len(res.Body) > 2048 {
		t.Errorf("%s: a refusal of %d bytes", what, len(res.Body))
	}
	for _, inside := range []string{"goroutine ", ".go:", "SELECT ", "INSERT ", "pq:", "SQLSTATE", "sqlite", "/work/", "/tmp/", "/home/"} {
		if bytes.Contains(res.Body, []byte(inside)) {
			t.Errorf("%s: a refusal shows %q: %s", what, inside, res.Body)
		}
	}
	if res.Header.Get("X-Request-ID") == "" {
		t.Errorf("%s: a refusal without X-Request-ID", what)
	}
}

// isJSON knows the types of our refusals: SCIM has one of its own.
func isJSON(media string) bool {
	return strings.HasPrefix(media, "application/json") || media == "application/scim+json"
}

// asked is the client with a fixed request id, so that answers can be compared
// byte for byte.
func asked(c *apptest.Client) *apptest.Client { return c.With("X-Request-ID", "hardening") }

// unchanged runs f and checks that no row of any tenant changed: no side effect.
func (r *rig) unchanged(t *testing.T, f func()) {
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

// restless tables change by the passing of time, with a read, or when the spool
// of earlier decisions is shipped.
var restless = []string{"leases", "jobs", "event_cursors", "bridge_presence", "audit_chains", "decisions", "decision_counts", "decision_rollups", "anomalies", "decision_seen", "policy_counters", "goose_db_version", "login_attempts", "login_places", "replay_inputs", "api_calls"}

// rows are digests of all rows, by tenant and table.
func (r *rig) rows(t *testing.T) map[string]string {
	t.Helper()
	if address := r.s.DatabaseURL(); address != "" {
		return postgresRows(t, address)
	}
	out := map[string]string{}
	files, err := filepath.Glob(filepath.Join(r.s.Dir, "tenants", "*.db"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range append(files, filepath.Join(r.s.Dir, "system.db")) {
		store, err := sql.Open("sqlite", "file:"+file+"?mode=ro&_pragma=busy_timeout(5000)")
		if err != nil {
			t.Fatal(err)
		}
		for _, table := range texts(t, store, "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%'") {
			if !slices.Contains(restless, table) {
				columns := slices.DeleteFunc(texts(t, store, "SELECT name FROM pragma_table_info('"+table+"')"), volatile)
				out[filepath.Base(file)+"/"+table] = digest(texts(t, store, `SELECT quote("`+strings.Join(columns, `") || quote("`)+`") FROM "`+table+`" ORDER BY 1`))
			}
		}
		if err := store.Close(); err != nil {
			t.Fatal(err)
		}
	}
	return out
}

func volatile(column string) bool {
	return strings.HasPrefix(column, "last_") || column == "used_at" || column == "sealed"
}

func digest(rows []string) string {
	sum := sha256.Sum256([]byte(strings.Join(rows, "\n")))
	return hex.EncodeToString(sum[:])
}

func texts(t *testing.T, store *sql.DB, query string) []string {
	t.Helper()
	rows, err := store.QueryContext(t.Context(), query)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	var out []string
	for rows.Next() {
		var s string
		if err := rows.Scan(&s); err != nil {
			t.Fatal(err)
		}
		out = append(out, s)
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return out
}

func postgresRows(t *testing.T, address string) map[string]string {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), address)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	out := map[string]string{}
	for _, name := range apptest.Tables(t, conn) {
		if slices.Contains(restless, name[strings.LastIndex(name, ".")+1:]) {
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

// do sends a request that must be answered with one status; where that is a
// refusal, it is held to what every refusal must be.
func (r *rig) do(t *testing.T, c *apptest.Client, method, path string, want int, in any) *apptest.Response {
	t.Helper()
	res := c.Do(t, method, path, in)
	if res.Status != want {
		t.Errorf("%s %s: %d, want %d: %.300s", method, path, res.Status, want, res.Body)
	}
	if res.Status >= http.StatusBadRequest {
		denial(t, res, method+" "+path)
	}
	return res
}
