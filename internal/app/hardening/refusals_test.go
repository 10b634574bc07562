package hardening_test

import (
	"bytes"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/gatehouse-dev/gatehouse/internal/app/apptest"
	"github.com/gatehouse-dev/gatehouse/internal/db/dbtest"
)

// document is the part of the OpenAPI document that a test reads.
type document struct {
	Paths map[string]map[string]struct {
		Parameters []struct {
			Name, In string
			Required bool
			Schema   struct {
				Type, Format string
				MinLength    int
				Enum         []any
			}
		}
	}
}

// TestEmptyParameters checks that a filter or a paging parameter without a value is answered 400,
// and not with the whole list.
func TestEmptyParameters(t *testing.T) {
	a := apptest.StartServer(t, dbtest.SQLite).Admin
	var doc document
	a.Do(t, "GET", "/openapi.json", nil).Want(200).Into(&doc)
	checked := 0
	for _, path := range slices.Sorted(maps.Keys(doc.Paths)) {
		rest, ours := strings.CutPrefix(path, "/api/v1")
		if !ours || strings.Contains(path, "{") || strings.HasPrefix(rest, "/bridge/") {
			continue
		}
		needed := url.Values{}
		for _, p := range doc.Paths[path]["get"].Parameters {
			if p.In == "query" && p.Required {
				needed.Set(p.Name, "sandbox")
			}
		}
		for _, p := range doc.Paths[path]["get"].Parameters {
			if p.In != "query" || p.Schema.Type == "string" && p.Schema.Format == "" && p.Schema.MinLength == 0 && len(p.Schema.Enum) == 0 {
				continue // free text may be empty
			}
			query := maps.Clone(needed)
			query.Set(p.Name, "")
			if res := a.Do(t, "GET", rest+"?"+query.Encode(), nil); res.Status != 400 || !bytes.Contains(res.Body, []byte(p.Name)) {
				t.Errorf("GET %s with an empty %s = %d %.200s, want 400 with its name", path, p.Name, res.Status, res.Body)
			}
			checked++
		}
	}
	for _, path := range []string{"/decisions/audit", "/audit/events", "/pis/test-history"} {
		a.Do(t, "GET", path+"?start_date=", nil).Want(400)
		a.Do(t, "GET", path+"?end_date=", nil).Want(400)
	}
	if checked < 30 {
		t.Errorf("the document has only %d parameters to check, want at least 30", checked)
	}
}

// TestOneSpellingOfIDs checks that an id has one spelling, in a path and in a query.
func TestOneSpellingOfIDs(t *testing.T) {
	a := apptest.StartServer(t, dbtest.SQLite).Admin
	id := a.Do(t, "POST", "/resources", body{"name": "r", "type": "api", "path": "/r"}).Want(201).ID()
	a.Do(t, "GET", fmt.Sprintf("/resources/%d", id), nil).Want(200)
	for _, spelled := range []string{"0%d", "+%d", "%%2B%d", "%d.0", "%de0", "-%d", "%d%%20", "00%d"} {
		a.Do(t, "GET", fmt.Sprintf("/resources/"+spelled, id), nil).Want(404)
		a.Do(t, "GET", fmt.Sprintf("/decisions/audit?policy_id="+spelled, id), nil).Want(400)
	}
}

// TestRequiredMembers checks that a required member cannot be removed, and that the answer names
// what a request lacks, in the form of its area.
func TestRequiredMembers(t *testing.T) {
	apptest.Inner(t)
	s := apptest.StartServer(t, dbtest.SQLite)
	a := s.Admin
	bouncer := fmt.Sprintf("/bouncers/%d", a.Do(t, "POST", "/bouncers", body{"name": "b", "hostname": "h", "port": 80}).Want(201).ID())
	for _, member := range []string{"name", "hostname", "port", "environment"} {
		if res := a.Do(t, "PUT", bouncer, body{member: nil}).Want(422); !bytes.Contains(res.Body, []byte(`"/`+member+`"`)) {
			t.Errorf("PUT %s without %s = %s, want its pointer", bouncer, member, res.Body)
		}
	}
	if b := a.Do(t, "GET", bouncer, nil).Want(200); b.Get("hostname") != "h" || b.Get("port") != 80.0 {
		t.Errorf("the bouncer after refused updates = %s, want it unchanged", b.Body)
	}
	a.Do(t, "PUT", bouncer, body{"hostname": "h2", "port": 81}).Want(200)

	for _, roles := range [][]string{{""}, {"viewer", " "}, {"a\u202eb"}, {"a\nb"}, {strings.Repeat("r", 129)}} {
		a.Do(t, "POST", "/users", body{"username": "u", "email": "u@example.com", "roles": roles}).Want(422)
	}
	ann := "/users/" + a.Do(t, "POST", "/users", body{"username": "ann", "email": "ann@example.com", "roles": []string{"viewer", "Resource Manager", "viewer"}}).Want(201).Get("id").(string)
	a.Do(t, "PUT", ann+"/roles", body{"roles": []string{""}}).Want(422)
	a.Do(t, "PUT", ann, body{"roles": []string{""}}).Want(422)
	if roles := fmt.Sprint(a.Do(t, "GET", ann, nil).Want(200).Get("roles")); roles != "[viewer resource_manager]" {
		t.Errorf("the roles after refused updates = %s, want [viewer resource_manager]", roles)
	}

	for _, ask := range []body{{}, {"username": "admin"}, {"password": "x"}, {"username": "", "password": "x"}} {
		ask["grant_type"] = "password"
		s.Anonymous().Do(t, "POST", "/auth/token", ask).ExpectError(fmt.Sprint(ask), 400, "invalid_request")
	}

	session := "/ide-integration/editor-a-server"
	a.Do(t, "POST", session, body{"action": "sync", "session_id": "s", "policy_content": "package a\n"}).Want(200)
	if res := a.Do(t, "POST", session, body{"action": "sync", "session_id": "s"}).Want(400); res.Get("success") != false {
		t.Errorf("a sync without content = %s, want success false", res.Body)
	}
	if kept := a.Do(t, "POST", session, body{"action": "get_context", "session_id": "s"}).Want(200); kept.Get("policy_content") != "package a\n" || kept.Get("version") != 1.0 {
		t.Errorf("the session after a refused sync = %s, want it unchanged", kept.Body)
	}
	a.Do(t, "POST", session, body{"action": "sync", "session_id": "s", "policy_content": ""}).Want(200)
}

// TestSimulationsOfOthers checks that the history of a control shows simulations by others, and
// their input only to those who may read the audit.
func TestSimulationsOfOthers(t *testing.T) {
	s := apptest.StartServer(t, dbtest.SQLite)
	a := s.Admin
	id := a.Do(t, "POST", "/policies", body{"name": "p", "rego_code": "package p\n\nallow if input.user.id == \"ada\"\n"}).Want(201).ID()
	run, history := fmt.Sprintf("/pis/policies/%d/simulate?environment=sandbox", id), fmt.Sprintf("/pis/policies/%d/test-history", id)
	a.Do(t, "POST", run, body{"input_json": body{"user": body{"id": "ada"}}}).Want(200)
	for role, shown := range map[string]bool{"policy_author": false, "viewer": false, "auditor": true} {
		a.Do(t, "POST", "/users", body{"username": role, "email": role + "@example.com", "password": "Long-enough-1", "roles": []string{role}}).Want(201)
		h := s.Login(t, role, "Long-enough-1").Do(t, "GET", history, nil).Want(200)
		var page struct {
			Entries []struct {
				Summary string `json:"input_summary"`
				Export  bool   `json:"can_export"`
			}
		}
		h.Into(&page)
		if len(page.Entries) != 1 || page.Entries[0].Export != shown || (page.Entries[0].Summary == "user.id=ada") != shown || bytes.Contains(h.Body, []byte("ada")) != shown {
			t.Errorf("the history for %s = %s, want one entry, with its input: %v", role, h.Body, shown)
		}
	}
}
