package controls_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/gatehouse-dev/gatehouse/internal/app/apptest"
)

// teamRego reads data of the resource of a request.
const teamRego = "package team\n\nallow if data.resources[format_int(input.resource.id, 10)].owner_team == input.user.department\n"

// TestCasesSeeData checks that test cases use the resources that a decision of the control's
// environment would use, and no others, and that a case may set its own.
func TestCasesSeeData(t *testing.T) {
	apptest.Inner(t)
	apptest.Each(t, func(t *testing.T, s *apptest.Server) {
		a := s.Admin
		resource := func(by *apptest.Client, env, team string) int64 {
			id := by.Do(t, "POST", "/resources", body{"name": "Ledger", "type": "api", "path": "/ledger/**", "environment": env}).Want(201).ID()
			by.Do(t, "PUT", fmt.Sprintf("/resources/%d/enrich", id), body{"owner_team": team}).Want(200)
			return id
		}
		sandbox, production := resource(a, "sandbox", "finance"), resource(a, "production", "treasury")
		tenant := a.Do(t, "POST", "/tenants", body{"name": "Others"}).Want(201).Text("id")
		other := a.With("X-Tenant-ID", tenant)
		resource(other, "sandbox", "spies") // the first id there, as sandbox is here

		about := func(name, department string, id int64, expected bool) body {
			return body{"name": name, "expected": expected, "input": body{"user": body{"department": department}, "resource": body{"id": id}}}
		}
		set := about("what the case sets", "auditors", 7, true)
		set["data"] = body{"resources": body{"7": body{"owner_team": "auditors"}}}
		nothing := about("nothing is there", "finance", sandbox, false)
		nothing["data"] = body{"resources": body{}}
		stored := []body{about("sandbox's", "finance", sandbox, true), about("of another team", "spies", sandbox, false), about("of the other environment", "treasury", production, false), set, nothing}
		id := a.Do(t, "POST", "/policies", body{"name": "teams", "rego_code": teamRego, "test_cases": stored}).Want(201).ID()
		test := fmt.Sprintf("/policies/%d/test", id)
		passed := func(r *apptest.Response, want int) {
			t.Helper()
			if r.Want(200).Get("summary", "passed") != float64(want) {
				t.Errorf("the test = %s, want %d passed cases", r.Body, want)
			}
		}
		passed(a.Do(t, "POST", test, nil), len(stored))
		passed(a.Do(t, "POST", test, body{"test_cases": []body{about("x", "finance", sandbox, true), about("y", "treasury", sandbox, true)}}), 1)
		theirs := other.Do(t, "POST", "/policies", body{"name": "teams", "rego_code": teamRego, "test_cases": stored}).Want(201).ID()
		passed(other.Do(t, "POST", fmt.Sprintf("/policies/%d/test", theirs), nil), 3)

		// The control stores the data as sent. Wrong data is refused.
		if kept := a.Do(t, "GET", fmt.Sprintf("/policies/%d", id), nil).Want(200); !strings.Contains(string(kept.Body), `"data":{"resources":{"7":{"owner_team":"auditors"}}}`) || !strings.Contains(string(kept.Body), `"data":{"resources":{}}`) {
			t.Errorf("the stored control = %s, want the data of its cases", kept.Body)
		}
		for _, bad := range []any{body{"resource": body{}}, body{"resources": []int{1}}, body{"user": body{}}, "x"} {
			wrong := about("x", "x", 1, true)
			wrong["data"] = bad
			a.Do(t, "POST", test, body{"test_cases": []body{wrong}}).Want(422)
		}

		// The next test uses a changed resource.
		a.Do(t, "PUT", fmt.Sprintf("/resources/%d/enrich", sandbox), body{"owner_team": "spies"}).Want(200)
		passed(a.Do(t, "POST", test, nil), len(stored)-2)

		// A promotion tests with production's data.
		at := fmt.Sprintf("/policies/%d", id)
		if r := a.Do(t, "POST", at+"/promote", body{}).Want(422); r.Get("error") != "tests_failed" || len(r.Get("failures").([]any)) != 2 {
			t.Errorf("the promotion = %s, want two failed tests with production's data", r.Body)
		}
		a.Do(t, "PUT", at, body{"test_cases": []body{about("production's", "treasury", production, true), set}}).Want(200)
		passed(a.Do(t, "POST", test, nil), 1)
		a.Do(t, "POST", at+"/promote", body{}).Want(200)
		passed(a.Do(t, "POST", test, nil), 2)
	})
}

// TestCodeCasesSeeData checks the same for the cases of a gatehouse.yaml. Rego tests use what
// `with` sets, as on the author's machine.
func TestCodeCasesSeeData(t *testing.T) {
	apptest.Each(t, func(t *testing.T, s *apptest.Server) {
		a := s.Admin
		id := a.Do(t, "POST", "/resources", body{"name": "Ledger", "type": "api", "path": "/ledger/**", "environment": "sandbox"}).Want(201).ID()
		a.Do(t, "PUT", fmt.Sprintf("/resources/%d/enrich", id), body{"owner_team": "finance"}).Want(200)
		manifest := func(team string) string {
			return fmt.Sprintf(`name: teams
tests:
  - name: as it is
    input: {user: {department: %s}, resource: {id: %d}}
    expected: true
  - name: what the case sets
    input: {user: {department: auditors}, resource: {id: 7}}
    data: {resources: {7: {owner_team: auditors}}}
    expected: true
`, team, id)
		}
		tests := fmt.Sprintf(`package team_test

import data.team

asked := {"user": {"department": "finance"}, "resource": {"id": %d}}

test_set if team.allow with input as asked with data.resources as {"%d": {"owner_team": "finance"}}

test_nothing_else if not team.allow with input as asked
`, id, id)
		files := func(team string) body {
			return body{"files": apptest.CodeFiles("team.rego", teamRego, "team_test.rego", tests, "gatehouse.yaml", manifest(team))}
		}
		if r := a.Do(t, "POST", "/policies-as-code/test", files("finance")).Want(200); r.Get("passed") != true || r.Get("summary", "total") != 4.0 {
			t.Errorf("the test of the files = %s, want 4 passed cases", r.Body)
		}
		if r := a.Do(t, "POST", "/policies-as-code/test", files("sales")).Want(200); r.Get("passed") != false || r.Get("summary", "failed") != 1.0 {
			t.Errorf("the test of the wrong files = %s, want 1 failed case", r.Body)
		}
		a.Do(t, "POST", "/policies-as-code/deploy", files("sales")).Want(422)
		done := a.Do(t, "POST", "/policies-as-code/deploy", files("finance")).Want(200)
		control, _ := done.Get("files").([]any)[0].(map[string]any)["policy_id"].(float64)
		if r := a.Do(t, "POST", fmt.Sprintf("/policies/%.0f/test", control), nil).Want(200); r.Get("summary", "passed") != 2.0 {
			t.Errorf("the test of the deployed control = %s, want 2 passed cases", r.Body)
		}
		// A pull returns the deployed files.
		out := a.Do(t, "GET", "/policies-as-code/files", nil).Want(200)
		var pulled struct{ Files []body }
		out.Into(&pulled)
		if r := a.Do(t, "POST", "/policies-as-code/test", body{"files": pulled.Files}).Want(200); r.Get("passed") != true || r.Get("summary", "total") != 2.0 {
			t.Errorf("the test of pulled files = %s, want 2 passed cases, of %s", r.Body, out.Body)
		}
		if r := a.Do(t, "POST", "/policies-as-code/deploy", body{"files": pulled.Files, "dry_run": true}).Want(200); r.Get("files").([]any)[0].(map[string]any)["result"] != "unchanged" {
			t.Errorf("the dry run of pulled files = %s, want unchanged", r.Body)
		}
	})
}
