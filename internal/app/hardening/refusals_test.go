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

// document is what a test reads of the OpenAPI document.
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

// TestEmptyParameters: a filter or a paging parameter that is sent without a value
// is a mistake (400). It must not answer the whole list.
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
				t.Errorf("GET %s with an empty %s: %d %.200s", path, p.Name, res.Status, res.Body)
			}
			checked++
		}
	}
	for _, path := range []string{"/decisions/audit", "/audit/events", "/pis/test-history"} {
		a.Do(t, "GET", path+"?start_date=", nil).Want(400)
		a.Do(t, "GET", path+"?end_date=", nil).Want(400)
	}
	if checked < 30 {
		t.Errorf("%d parameters were checked", checked)
	}
}

// TestOneSpellingOfIDs: an id has one spelling, in a path as in a query.
func TestOneSpellingOfIDs(t *testing.T) {
	a := apptest.StartServer(t, dbtest.SQLite).Admin
	id := a.Do(t, "POST", "/resources", body{"name": "r", "type": "api", "path": "/r"}).Want(201).ID()
	a.Do(t, "GET", fmt.Sprintf("/resources/%d", id), nil).Want(200)
	for _, spelled := range []string{"0%d", "+%d", "%%2B%d", "%d.0", "%de0", "-%d", "%d%%20", "00%d"} {
		a.Do(t, "GET", fmt.Sprintf("/resources/"+spelled, id), nil).Want(404)
		a.Do(t, "GET", fmt.Sprintf("/decisions/audit?policy_id="+spelled, id), nil).Want(400)
	}
}

// TestNeeded: what a record cannot be without is not taken away, and what is missing
// in a request is told, each in the form of its area.
func TestNeeded(t *testing.T) {
	apptest.Inner(t)
	s := apptest.StartServer(t, dbtest.SQLite)
	a := s.Admin
	at := fmt.Sprintf("/bouncers/%d", a.Do(t, "POST", "/bouncers", body{"name": "b", "hostname": "h", "port": 80}).Want(201).ID())
	for _, member := range []string{"name", "hostname", "port", "environment"} {
		if res := a.Do(t, "PUT", at, body{member: nil}).Want(422); !bytes.Contains(res.Body, []byte(`"/`+member+`"`)) {
			t.Errorf("%s: %s", member, res.Body)
		}
	}
	if b := a.Do(t, "GET", at, nil).Want(200); b.Get("hostname") != "h" || b.Get("port") != 80.0 {
		t.Errorf("the bouncer is now %s", b.Body)
	}
	a.Do(t, "PUT", at, body{"hostname": "h2", "port": 81}).Want(200)

	for _, roles := range [][]string{{""}, {"viewer", " "}, {"a\u202eb"}, {"a\nb"}, {strings.Repeat("r", 129)}} {
		a.Do(t, "POST", "/users", body{"username": "u", "email": "u@example.com", "roles": roles}).Want(422)
	}
	ann := "/users/" + a.Do(t, "POST", "/users", body{"username": "ann", "email": "ann@example.com", "roles": []string{"viewer", "Resource Manager", "viewer"}}).Want(201).Get("id").(string)
	a.Do(t, "PUT", ann+"/roles", body{"roles": []string{""}}).Want(422)
	a.Do(t, "PUT", ann, body{"roles": []string{""}}).Want(422)
	if roles := fmt.Sprint(a.Do(t, "GET", ann, nil).Want(200).Get("roles")); roles != "[viewer resource_manager]" {
		t.Errorf("roles %s", roles)
	}

	for _, ask := range []body{{}, {"username": "admin"}, {"password": "x"}, {"username": "", "password": "x"}} {
		ask["grant_type"] = "password"
		if res := s.Anonymous().Do(t, "POST", "/auth/token", ask).Want(400); res.Get("error") != "invalid_request" {
			t.Errorf("%v: %s", ask, res.Body)
		}
	}

	session := "/ide-integration/editor-a-server"
	a.Do(t, "POST", session, body{"action": "sync", "session_id": "s", "policy_content": "package a\n"}).Want(200)
	if res := a.Do(t, "POST", session, body{"action": "sync", "session_id": "s"}).Want(400); res.Get("success") != false {
		t.Errorf("%s", res.Body)
	}
	if kept := a.Do(t, "POST", session, body{"action": "get_context", "session_id": "s"}).Want(200); kept.Get("policy_content") != "package a\n" || kept.Get("version") != 1.0 {
		t.Errorf("the session is now %s", kept.Body)
	}
	a.Do(t, "POST", session, body{"action": "sync", "session_id": "s", "policy_content": ""}).Want(200)
}

// TestSimulationsOfOthers: the history of a control shows that others ran it. What
// they put in is for those who read the audit.
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
			t.Errorf("%s sees %s", role, h.Body)
		}
	}
}
