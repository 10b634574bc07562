package decisions_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/gatehouse-dev/gatehouse/internal/app/apptest"
)

// certifiedControl is a control for the scenario of AuthZEN's certification.
const certifiedControl = `package records

import rego.v1

archived if input.resource.attributes.status == "archived"

is_admin if input.user.attributes.role == "admin"
is_admin if "admin" in input.user.roles

allow if { input.action.name == "read"; input.user.id in {"alice", "bob"} }
allow if { input.action.name == "write"; input.user.id == "alice"; not archived }
allow if { input.action.name == "write"; is_admin; archived }
allow if { input.action.name == "delete"; input.user.id == "alice"; input.action.properties.soft == true }
`

// pdp is a client of the AuthZEN endpoints (PDP: policy decision point).
type pdp struct {
	*apptest.Client
	t *testing.T
}

// newPDP returns a client with a key for all endpoints.
func newPDP(t *testing.T, s *apptest.Server) pdp {
	return pdp{tenantKey(t, s, "decisions:read", "users:read", "resources:read"), t}
}

// tenantKey returns a client of the AuthZEN endpoints with a key for both environments.
func tenantKey(t *testing.T, s *apptest.Server, scopes ...string) *apptest.Client {
	t.Helper()
	made := s.Admin.Do(t, "POST", "/tenants/default/api-keys", body{"name": strings.Join(scopes, " "), "scopes": scopes}).Want(201)
	return &apptest.Client{Base: s.URL, APIKey: made.Text("key")}
}

func (p pdp) post(path string, doc any, statuses ...int) *apptest.Response {
	p.t.Helper()
	return p.Do(p.t, "POST", "/access/v1/"+path, doc).Want(statuses...)
}

func ask(subject, act, resource string) body {
	return body{"subject": body{"type": "user", "id": subject}, "action": body{"name": act}, "resource": body{"type": "record", "id": resource}}
}

// with sets properties of an entity.
func with(b body, entity string, properties body) body {
	b[entity].(body)["properties"] = properties
	return b
}

// of changes the type of the resource.
func of(kind string, b body) body {
	b["resource"].(body)["type"] = kind
	return b
}

// setUpScenario creates the people, records and the control of the certification.
func setUpScenario(t *testing.T, s *apptest.Server) {
	t.Helper()
	prod := s.Admin.With("X-Environment", "production")
	for name, roles := range map[string][]string{"alice": {"staff"}, "bob": {"admin"}} {
		s.Admin.Do(t, "POST", "/users", body{"username": name, "email": name + "@example.com", "roles": roles}).Want(201)
	}
	for name, attributes := range map[string]body{"record-1": {"status": "active"}, "record-2": {"status": "archived"}} {
		prod.Do(t, "POST", "/resources", body{"name": name, "type": "record", "path": "/records/" + name, "attributes": attributes}).Want(201)
	}
	prod.Do(t, "POST", "/resources", body{"name": "ledger-1", "type": "ledger", "path": "/ledgers/1", "attributes": body{"owner": "bob"}}).Want(201)
	prod.Do(t, "POST", "/policies", body{"name": "records", "rego_code": certifiedControl, "status": "active"}).Want(201)
}

// TestAuthZENScenario runs the scenario of AuthZEN's certification on both stores.
func TestAuthZENScenario(t *testing.T) {
	apptest.Both(t, func(t *testing.T, s *apptest.Server) {
		setUpScenario(t, s)
		p := newPDP(t, s)
		for i, c := range []struct {
			doc  body
			want bool
		}{
			{ask("alice", "read", "record-1"), true},
			{ask("alice", "write", "record-1"), true},
			{ask("bob", "read", "record-1"), true},
			{ask("bob", "write", "record-1"), false},
			{with(ask("alice", "write", "record-2"), "resource", body{"status": "archived"}), false}, // rule 5
			{with(with(ask("bob", "write", "record-2"), "resource", body{"status": "archived"}), "subject", body{"role": "admin"}), true},
			{with(ask("alice", "write", "record-1"), "resource", body{"status": "archived"}), true}, // the registered record says active
			{with(ask("alice", "write", "record-2"), "resource", body{"status": "active"}), false},
			{of("ledger", with(ask("alice", "write", "ledger-1"), "resource", body{"status": "archived"})), false}, // its status is not registered
			{of("ledger", with(ask("alice", "write", "ledger-1"), "resource", body{"status": "active"})), true},
			{with(ask("alice", "write", "record-9"), "resource", body{"status": "archived"}), false},
			{with(with(ask("carol", "write", "record-9"), "resource", body{"status": "archived"}), "subject", body{"role": "admin"}), true},
			{with(ask("alice", "delete", "record-1"), "action", body{"soft": true}), true},
			{with(ask("alice", "delete", "record-1"), "action", body{"soft": false}), false},
			{ask("bob", "write", "record-2"), true},
		} {
			for range 2 {
				got := p.post("evaluation", c.doc, 200)
				if want := fmt.Sprintf(`{"decision":%v}`, c.want); strings.TrimSpace(string(got.Body)) != want {
					t.Errorf("the decision %d = %s, want %s", i+1, got.Body, want)
				}
			}
		}
		checkSearches(t, p)
		checkEvaluations(t, p)
		checkRefusals(t, p, s)
		if n := countDecisions(t, s.Admin); n < 20 {
			t.Errorf("the log has %d decisions, want at least 20", n)
		}
	})
}

func countDecisions(t *testing.T, a *apptest.Client) int {
	n, _ := a.Do(t, "GET", "/decisions/audit?environment=production", nil).Want(200).Get("total").(float64)
	return int(n)
}

// checkSearches checks the certification's searches.
func checkSearches(t *testing.T, p pdp) {
	t.Helper()
	found := func(what string, doc body) []string {
		var got struct {
			Results []struct{ Type, ID, Name string }
		}
		p.post("search/"+what, doc, 200).Into(&got)
		var names []string
		for _, r := range got.Results {
			names = append(names, r.ID+r.Name)
		}
		return names
	}
	user, record := body{"type": "user"}, body{"type": "record"}
	one := func(kind, id string) body { return body{"type": kind, "id": id} }
	for name, c := range map[string]struct {
		what string
		doc  body
		want []string
	}{
		"S1":                                   {"subject", body{"subject": user, "action": body{"name": "read"}, "resource": one("record", "record-1")}, []string{"alice", "bob"}},
		"S2":                                   {"resource", body{"subject": one("user", "alice"), "action": body{"name": "read"}, "resource": record}, []string{"record-1", "record-2"}},
		"S3":                                   {"action", body{"subject": one("user", "alice"), "resource": one("record", "record-1")}, []string{"read", "write"}},
		"S4":                                   {"subject", body{"subject": user, "action": body{"name": "write"}, "resource": one("record", "record-2")}, []string{"bob"}},
		"S5":                                   {"resource", body{"subject": one("user", "bob"), "action": body{"name": "write"}, "resource": record}, []string{"record-2"}},
		"S6":                                   {"action", body{"subject": one("user", "bob"), "resource": one("record", "record-2")}, []string{"read", "write"}},
		"an id of what is searched is ignored": {"subject", body{"subject": one("user", "nobody"), "action": body{"name": "write"}, "resource": one("record", "record-2")}, []string{"bob"}},
		"a type that nobody has":               {"subject", body{"subject": body{"type": "robot"}, "action": body{"name": "read"}, "resource": one("record", "record-1")}, nil},
		"a resource type that is unknown":      {"resource", body{"subject": one("user", "alice"), "action": body{"name": "read"}, "resource": body{"type": "moon"}}, nil},
	} {
		if got := found(c.what, c.doc); !slices.Equal(got, c.want) {
			t.Errorf("the search %s = %v, want %v", name, got, c.want)
		}
	}
	checkPages(t, p)
}

// TestAuthZENSearchPermissions checks that a search for users or resources needs the permission to read
// them, and that a key for one environment cannot search for users.
func TestAuthZENSearchPermissions(t *testing.T) {
	s := apptest.StartServer(t, "sqlite")
	setUpScenario(t, s)
	user, one := body{"type": "user"}, body{"type": "record", "id": "record-1"}
	alice, read := body{"type": "user", "id": "alice"}, body{"name": "read"}
	docs := map[string]body{
		"subject":  {"subject": user, "action": read, "resource": one},
		"resource": {"subject": alice, "action": read, "resource": body{"type": "record"}},
		"action":   {"subject": alice, "resource": one},
	}
	bound := func(scopes ...string) *apptest.Client {
		k := *s.Key(t, s.Admin, "production", scopes...)
		k.Base = s.URL
		return &k
	}
	for _, c := range []struct {
		name string
		key  *apptest.Client
		want map[string]int
	}{
		{"decisions", tenantKey(t, s, "decisions:read"), map[string]int{"subject": 403, "resource": 403, "action": 200}},
		{"users", tenantKey(t, s, "decisions:read", "users:read"), map[string]int{"subject": 200, "resource": 403, "action": 200}},
		{"resources", tenantKey(t, s, "decisions:read", "resources:read"), map[string]int{"subject": 403, "resource": 200, "action": 200}},
		{"no decisions", tenantKey(t, s, "users:read", "resources:read"), map[string]int{"subject": 403, "resource": 403, "action": 403}},
		{"bound", bound("decisions:read"), map[string]int{"subject": 403, "resource": 403, "action": 200}},
		{"bound with all", bound("decisions:read", "users:read", "resources:read"), map[string]int{"subject": 403, "resource": 200, "action": 200}},
	} {
		for what, doc := range docs {
			got := pdp{c.key, t}.post("search/"+what, doc, c.want[what])
			if names := string(got.Body); c.want[what] == 403 && (strings.Contains(names, "alice") || strings.Contains(names, "record-")) {
				t.Errorf("the refusal of a %s search with the key %q shows %s", what, c.name, names)
			}
		}
	}
}

// checkPages goes through a search in pages of one, and checks that another request cannot use the
// token.
func checkPages(t *testing.T, p pdp) {
	t.Helper()
	doc := body{"subject": body{"type": "user"}, "action": body{"name": "read"}, "resource": body{"type": "record", "id": "record-1"}}
	var names []string
	token := ""
	for range 10 {
		doc["page"] = body{"limit": 1, "token": token}
		got := p.post("search/subject", doc, 200)
		for _, r := range got.Get("results").([]any) {
			names = append(names, r.(map[string]any)["id"].(string))
		}
		if token, _ = got.Get("page", "next_token").(string); token == "" {
			break
		}
		other := body{"subject": body{"type": "user"}, "action": body{"name": "write"}, "resource": body{"type": "record", "id": "record-1"}, "page": body{"token": token}}
		p.post("search/subject", other, 400)
	}
	if !slices.Equal(names, []string{"alice", "bob"}) || token != "" {
		t.Errorf("the pages have %v and then the token %q, want alice, bob and none", names, token)
	}
	for _, page := range []any{"x", body{"limit": 0}, body{"limit": "1"}, body{"token": 7}, body{"token": "%%%"}} {
		doc["page"] = page
		p.post("search/subject", doc, 400)
	}
}

// checkEvaluations checks the defaults, semantics and wrong items of several evaluations.
func checkEvaluations(t *testing.T, p pdp) {
	t.Helper()
	record := func(id string) body { return body{"resource": body{"type": "record", "id": id}} }
	item := func(act, id string) body { b := record(id); b["action"] = body{"name": act}; return b }
	run := func(semantic string, items ...any) []any {
		doc := body{"subject": body{"type": "user", "id": "alice"}, "resource": body{}, "evaluations": items}
		if semantic != "" {
			doc["options"] = body{"evaluations_semantic": semantic}
		}
		var got struct{ Evaluations []map[string]any }
		p.post("evaluations", doc, 200).Into(&got)
		var out []any
		for _, e := range got.Evaluations {
			out = append(out, e["decision"])
		}
		return out
	}
	items := []any{item("read", "record-1"), item("fly", "record-1"), item("write", "record-1")}
	for semantic, want := range map[string][]any{
		"": {true, false, true}, "execute_all": {true, false, true}, "deny_on_first_deny": {true, false}, "permit_on_first_permit": {true},
	} {
		if got := run(semantic, items...); !reflect.DeepEqual(got, want) {
			t.Errorf("the decisions with the semantic %q = %v, want %v", semantic, got, want)
		}
	}
	bad := p.post("evaluations", body{"subject": body{"type": "user", "id": "alice"}, "evaluations": []any{record("record-1"), "x", item("read", "record-1")}}, 200)
	if got := strings.TrimSpace(string(bad.Body)); strings.Count(got, `"decision":false,"context":{"error":{"status":400`) != 2 || !strings.HasSuffix(got, `{"decision":true}]}`) {
		t.Errorf("the evaluations of two wrong items and a right one = %s, want two errors and true", got)
	}
	for _, empty := range []body{ask("alice", "read", "record-1"), {"evaluations": []any{}}} {
		doc := ask("alice", "read", "record-1")
		maps.Copy(doc, empty)
		if got := p.post("evaluations", doc, 200); strings.TrimSpace(string(got.Body)) != `{"decision":true}` {
			t.Errorf("the evaluations without items = %s, want one decision", got.Body)
		}
	}
	p.post("evaluations", body{"evaluations": body{}}, 400)
	p.post("evaluations", body{"evaluations": []any{items[0]}, "options": body{"evaluations_semantic": "some"}}, 400)
	p.post("evaluations", body{"evaluations": slices.Repeat([]any{items[0]}, 1001)}, 400)
	why := ask("bob", "write", "record-1")
	why["context"] = body{"explain": true}
	if got := p.post("evaluation", why, 200); got.Get("context", "effect") != "NO_MATCH" || got.Get("context", "reason") == "" {
		t.Errorf("the explained decision = %s, want NO_MATCH with a reason", got.Body)
	}
}

// checkRefusals checks that a wrong request gets a text that names the place.
func checkRefusals(t *testing.T, p pdp, s *apptest.Server) {
	t.Helper()
	for _, entity := range []string{"subject", "action", "resource"} {
		doc := ask("alice", "read", "record-1")
		delete(doc, entity)
		p.post("evaluation", doc, 400)
		for member := range ask("alice", "read", "record-1")[entity].(body) {
			for _, bad := range []any{nil, 123, "", body{}} {
				doc := ask("alice", "read", "record-1")
				if doc[entity].(body)[member] = bad; bad == nil {
					delete(doc[entity].(body), member)
				}
				res := p.post("evaluation", doc, 400)
				var text string
				if json.Unmarshal(res.Body, &text) != nil || !strings.Contains(text, "/"+entity+"/"+member) {
					t.Errorf("an evaluation with %s.%s %v = %s, want a text with the place", entity, member, bad, res.Body)
				}
			}
		}
		for _, bad := range []any{"alice", 7, nil, []any{}} {
			doc := ask("alice", "read", "record-1")
			doc[entity] = bad
			p.post("evaluation", doc, 400)
		}
	}
	for _, raw := range []string{"", "{bad", "[]", "null", `"x"`, `{"subject":{"type":"user","id":"a"},"subject":{"type":"user","id":"b"}}`} {
		p.post("evaluation", []byte(raw), 400)
	}
	p.With("Content-Type", "text/plain").Do(p.t, "POST", "/access/v1/evaluation", []byte(`{}`)).Want(400)
	doc := ask("alice", "read", "record-1")
	doc["unknown"], doc["context"] = body{"a": 1}, body{"time": "2026-11-22T00:00:00Z"}
	p.post("evaluation", doc, 200)
	stranger := pdp{&apptest.Client{Base: s.URL}, t}
	stranger.post("evaluation", doc, 401)
	reader := *s.Key(t, s.Admin, "production", "policies:read")
	reader.Base = s.URL
	pdp{&reader, t}.post("evaluation", doc, 403)
	if got := p.With("X-Request-ID", "bfe9eb29-ab87").Do(t, "POST", "/access/v1/evaluation", doc).Want(200); got.Header.Get("X-Request-ID") != "bfe9eb29-ab87" {
		t.Errorf("the X-Request-ID is %q, want that of the request", got.Header.Get("X-Request-ID"))
	}
	found := stranger.Do(t, "GET", "/.well-known/authzen-configuration", nil).Want(200)
	if found.Get("policy_decision_point") != s.URL || found.Get("access_evaluation_endpoint") != s.URL+"/access/v1/evaluation" {
		t.Errorf("the configuration = %s, want the addresses of this server", found.Body)
	}
	if own := stranger.Do(t, "GET", "/.well-known/authzen-configuration/acme", nil).Want(200); own.Get("policy_decision_point") != s.URL+"/acme" {
		t.Errorf("the configuration of acme = %s, want its address", own.Body)
	}
}

// TestAuthZENSearchVectors computes who may view, edit and delete twenty records from their owners and
// departments, and compares this with all three searches.
func TestAuthZENSearchVectors(t *testing.T) {
	s := apptest.StartServer(t, "sqlite")
	prod := s.Admin.With("X-Environment", "production")
	type person struct {
		name, department string
		manager          bool
	}
	people := []person{{"alice", "Sales", true}, {"bob", "Legal", false}, {"carol", "Legal", false}, {"dan", "Finance", true}, {"erin", "Finance", false}, {"felix", "Accounting", false}}
	for _, x := range people {
		s.Admin.Do(t, "POST", "/users", body{"username": x.name, "email": x.name + "@example.com", "department": x.department, "attributes": body{"manager": x.manager}}).Want(201)
	}
	departments := strings.Fields("Legal Legal Legal Accounting Legal Accounting Sales Legal Accounting Sales Accounting Legal Sales Accounting Finance Legal Legal Accounting Legal Accounting")
	owner := func(i int) string { return people[i%len(people)].name }
	for i, d := range departments {
		prod.Do(t, "POST", "/resources", body{"name": fmt.Sprint(101 + i), "type": "record", "path": fmt.Sprint("/r/", i), "attributes": body{"owner": owner(i), "department": d}}).Want(201)
	}
	prod.Do(t, "POST", "/policies", body{"name": "vectors", "status": "active", "rego_code": `package vectors

import rego.v1

record := input.resource.attributes
owns if record.owner == input.user.id
manages if input.user.attributes.manager

allow if { input.action.name in {"view", "edit", "delete"}; owns }
allow if { input.action.name == "view"; record.department == input.user.department }
allow if { input.action.name == "view"; manages }
allow if { input.action.name == "edit"; manages; record.department == input.user.department }
`}).Want(201)
	may := func(x person, act string, i int) bool {
		own, same := owner(i) == x.name, departments[i] == x.department
		return own || act == "view" && (same || x.manager) || act == "edit" && x.manager && same
	}
	p := newPDP(t, s)
	ids := func(what string, doc body) string {
		var got struct {
			Results []struct{ ID, Name string }
		}
		p.post("search/"+what, doc, 200).Into(&got)
		out := ""
		for _, r := range got.Results {
			out += r.ID + r.Name + " "
		}
		return out
	}
	checked := 0
	check := func(what string, doc body, want string) {
		checked++
		if got := ids(what, doc); got != want {
			t.Errorf("the %s search %v = %s, want %s", what, doc, got, want)
		}
	}
	acts := []string{"delete", "edit", "view"}
	for i := range departments {
		record := body{"type": "record", "id": fmt.Sprint(101 + i)}
		for _, act := range acts {
			want := ""
			for _, x := range people {
				if may(x, act, i) {
					want += x.name + " "
				}
			}
			check("subject", body{"subject": body{"type": "user"}, "action": body{"name": act}, "resource": record}, want)
		}
		for _, x := range people {
			want := ""
			for _, act := range acts {
				if may(x, act, i) {
					want += act + " "
				}
			}
			check("action", body{"subject": body{"type": "user", "id": x.name}, "resource": record}, want)
		}
	}
	for _, x := range people {
		for _, act := range acts {
			want := ""
			for i := range departments {
				if may(x, act, i) {
					want += fmt.Sprint(101+i) + " "
				}
			}
			check("resource", body{"subject": body{"type": "user", "id": x.name}, "action": body{"name": act}, "resource": body{"type": "record"}}, want)
		}
	}
	if checked != 198 {
		t.Errorf("the test checked %d vectors, want 198", checked)
	}
	if n := countDecisions(t, s.Admin); n != 0 {
		t.Errorf("the log has %d decisions after searches, want none", n)
	}
}

// TestAuthZENGuide runs the commands of docs/integrations/authzen.md.
func TestAuthZENGuide(t *testing.T) {
	s := apptest.StartServer(t, "sqlite")
	setUpScenario(t, s)
	env := fmt.Sprintf("set -eu\nexport URL=%s KEY=%s\n", s.URL, s.Key(t, s.Admin, "production", "decisions:read", "resources:read").APIKey)
	blocks := apptest.Blocks(apptest.Page(t, "integrations/authzen.md"), "bash")
	if len(blocks) != 1 {
		t.Fatalf("docs/integrations/authzen.md has %d blocks, want 1", len(blocks))
	}
	apptest.WantTexts(t, apptest.RunShell(t, t.TempDir(), env+blocks[0]), `"access_evaluation_endpoint"`, `{"decision":true}`, `{"type":"record","id":"record-2"}`)
}
