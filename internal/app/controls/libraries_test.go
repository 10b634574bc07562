package controls_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/app/apptest"
)

// namedLibrary lets one person through; namedControl asks it.
func namedLibrary(name string) string {
	return "package lib.people\n\ntrusted(user) if lower(user.id) == " + fmt.Sprintf("%q", name) + "\n"
}

const namedControl = "package only\n\nimport data.lib.people\n\nallow if people.trusted(input.user)\n"

// TestLibraryReachesAll: a change of a library reaches decisions, our bouncer and
// a stock OPA without a change of the controls that use it; while they do, it
// stays, and another tenant knows nothing of it.
func TestLibraryReachesAll(t *testing.T) {
	apptest.OPA(t)
	apptest.Each(t, func(t *testing.T, s *apptest.Server) {
		a := s.Admin
		lib := a.Do(t, "POST", "/policies", body{"kind": "library", "name": "people", "environment": "production", "status": "active", "rego_code": namedLibrary("alice")}).Want(201).ID()
		control := apptest.Activate(t, a, "only", "production", namedControl, nil)
		apptest.Enforce(t, a, "sandbox", "production")
		app := apptest.NewBackend(t, nil)
		b := s.Bouncer(t, a, body{"name": "edge", "environment": "production"}, app.Addr)
		o := apptest.StartOPA(t, s, body{"name": "opa", "environment": "production"})
		decided := func(user string) any {
			return a.Do(t, "POST", "/decisions/evaluate?environment=production", body{"user": body{"id": user}, "action": body{"name": "read"}, "resource": body{"type": "api", "path": "/x"}}).Want(200).Get("decision")
		}
		for _, who := range []string{"alice", "bob"} {
			other := map[string]string{"alice": "bob", "bob": "alice"}[who]
			if got := decided(who); got != "PERMIT" {
				t.Errorf("%s: %v", who, got)
			}
			if got := decided(other); got != "DENY" {
				t.Errorf("%s: %v", other, got)
			}
			apptest.WaitForStatus(t, b.As(strings.ToUpper(who), ""), "/x", 200, 10*time.Second)
			apptest.WaitForStatus(t, b.As(other, ""), "/x", 403, 10*time.Second)
			o.WaitForDecision(t, 20*time.Second, who, "PERMIT")
			o.WaitForDecision(t, time.Second, other, "DENY")
			next := a.Do(t, "PUT", fmt.Sprint("/policies/", lib), body{"rego_code": namedLibrary("bob")}).Want(200)
			if users, _ := next.Get("affected_policies").([]any); who == "alice" && (len(users) != 1 || users[0].(map[string]any)["id"] != float64(control)) || who == "bob" && len(users) != 0 { // the second time nothing changes
				t.Errorf("the change says it touches %v", users)
			}
		}

		at := fmt.Sprint("/policies/", lib)
		if r := a.Do(t, "DELETE", at, nil).Want(409); r.Get("error") != "library_in_use" || !strings.Contains(string(r.Body), "(only)") {
			t.Errorf("deleted in use: %s", r.Body)
		}
		r := a.Do(t, "PUT", at, body{"rego_code": "package lib.people\n\ntrusted(a, b) if a == b\n"}).Want(422)
		if detail, _ := r.Get("details").([]any)[0].(map[string]any); r.Get("error") != "library_breaks_users" || detail["line"] != 5.0 || detail["column"] != 10.0 {
			t.Errorf("broken in use: %s", r.Body)
		}
		for _, path := range []string{"/dependents", "/users"} { // the second is its former name
			if r := a.Do(t, "GET", at+path, nil).Want(200); r.Get("package") != "lib.people" || r.Get("total") != 1.0 {
				t.Errorf("%s: %s", path, r.Body)
			}
		}
		if r := a.Do(t, "GET", "/policies?kind=library", nil).Want(200); r.Get("total") != 1.0 {
			t.Errorf("libraries: %s", r.Body)
		}

		// The simulator tries the control with it; a library is nothing to try.
		pis := "/pis/policies/%d/simulate?environment=production"
		if r := a.Do(t, "POST", fmt.Sprintf(pis, control), body{"input_json": body{"user": body{"id": "bob"}}}).Want(200); !strings.Contains(string(r.Body), "ALLOW") {
			t.Errorf("simulated: %s", r.Body)
		}
		a.Do(t, "POST", fmt.Sprintf(pis, lib), body{"input_json": body{"user": body{"id": "bob"}}}).Want(404)

		// Another tenant has no such library, and cannot ask who uses it.
		id, _ := a.Do(t, "POST", "/tenants", body{"name": "Other"}).Want(201).Get("id").(string)
		stranger := a.With("X-Tenant-ID", id)
		if r := stranger.Do(t, "POST", "/policies", body{"name": "theirs", "rego_code": namedControl, "environment": "production"}).Want(422); !strings.Contains(string(r.Body), "no active library lib.people") {
			t.Errorf("another tenant: %s", r.Body)
		}
		stranger.Do(t, "GET", at+"/dependents", nil).Want(404)

		a.Do(t, "DELETE", fmt.Sprint("/policies/", control), nil).Want(200)
		a.Do(t, "DELETE", at, nil).Want(200)
	})
}

// TestLibrariesAsCode: a repository brings a library with the controls that use
// it, with Rego tests of both, and may change them together.
func TestLibrariesAsCode(t *testing.T) {
	apptest.Each(t, func(t *testing.T, s *apptest.Server) {
		a := s.Admin
		tests := "package only_test\n\nimport data.only\n\ntest_alice if only.allow with input as {\"user\": {\"id\": \"Alice\"}}\n"
		manifest := "controls:\n  - {file: people.rego, name: People, kind: library}\n"
		deploy := func(status int, files ...string) *apptest.Response {
			return a.Do(t, "POST", "/policies-as-code/deploy", body{"files": apptest.CodeFiles(files...)}).Want(status)
		}
		deploy(200, "a/only.rego", namedControl, "a/only_test.rego", tests, "lib/people.rego", namedLibrary("alice"), "lib/gatehouse.yaml", manifest)
		found := a.Do(t, "GET", "/policies?name=People", nil).Want(200).Get("policies").([]any)[0].(map[string]any)
		if found["kind"] != "library" || found["status"] != "active" {
			t.Fatalf("deployed %v", found)
		}
		// The control alone goes on with the library that is there.
		deploy(200, "a/only.rego", namedControl+"\nreason := \"trusted\" if allow\n", "a/only_test.rego", tests)
		// What a library takes changes with those who call it, or not at all.
		changed := strings.Replace(namedLibrary("alice"), "trusted(user) if lower(user.id)", "trusted(id) if lower(id)", 1)
		broken := strings.Replace(namedLibrary("alice"), "trusted(user)", "trusted(user, _)", 1)
		if r := deploy(422, "lib/people.rego", broken, "lib/gatehouse.yaml", manifest); !strings.Contains(string(r.Body), "a/only") {
			t.Errorf("refused: %s", r.Body)
		}
		deploy(200, "a/only.rego", strings.Replace(namedControl, "(input.user)", "(input.user.id)", 1), "a/only_test.rego", tests, "lib/people.rego", changed, "lib/gatehouse.yaml", manifest)
		if r := deploy(422, "lib/people.rego", changed, "lib/gatehouse.yaml", strings.Replace(manifest, "library", "control", 1)); !strings.Contains(string(r.Body), "the module is not a control") {
			t.Errorf("a wrong kind: %s", r.Body)
		}
	})
}

// TestLibraryReplayed: an edit of a library is replayed by the controls that use
// it, before it is made.
func TestLibraryReplayed(t *testing.T) {
	apptest.Each(t, func(t *testing.T, s *apptest.Server) {
		a := s.Admin
		const roles = "package lib.roles\n\nmay(role) if role in {\"clerk\", \"manager\"}\n"
		lib := a.Do(t, "POST", "/policies", body{"kind": "library", "name": "roles", "environment": "production", "status": "active", "rego_code": roles}).Want(201).ID()
		resource := a.Do(t, "POST", "/resources", body{"name": "invoices", "type": "api", "path": "/invoices/**", "environment": "production"}).Want(201).ID()
		a.Do(t, "PUT", fmt.Sprintf("/resources/%d/enrich", resource), body{"audit_level": "detailed"}).Want(200)
		control := apptest.Activate(t, a, "invoices", "production", "package invoices\n\nimport data.lib.roles\n\ndefault allow := false\n\nallow if roles.may(input.user.role)\n", body{"resource_id": resource})
		apptest.Decide(t, a, "production", 50, 12)
		for _, baseline := range []string{"now", "then"} {
			ask := func(source string) *apptest.Response {
				return a.Do(t, "POST", "/compliance/impact-preview", body{"environment": "production", "baseline": baseline, "candidates": []body{{"policy_id": lib, "rego_code": source}}})
			}
			var found apptest.ImpactFigures
			r := ask(strings.Replace(roles, "\"clerk\", ", "", 1)).Want(200).Into(&found)
			if found.Evaluated != 50 || found.Changed != 12 || found.NewlyBlocked != 12 {
				t.Errorf("%s: %s", baseline, r.Body)
			}
			if by, _ := r.Get("by_control").([]any); len(by) != 1 || by[0].(map[string]any)["policy_id"] != float64(control) {
				t.Errorf("%s: by control %v", baseline, by)
			}
			if r := ask(roles).Want(200).Into(&found); found.Changed != 0 {
				t.Errorf("%s: nothing edited, and %s", baseline, r.Body)
			}
			if r := ask(strings.Replace(roles, "may(role)", "might(role)", 1)); r.Status != 422 || !strings.Contains(string(r.Body), "undefined function data.lib.roles.may") {
				t.Errorf("%s: what breaks its users: %d %s", baseline, r.Status, r.Body)
			}
		}
	})
}
