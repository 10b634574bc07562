package controls_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/gatehouse-dev/gatehouse/internal/app/apptest"
	"github.com/gatehouse-dev/gatehouse/internal/errtest"
)

// tells is a control whose reason is its whole input.
const tells = "package told\n\nallow := false\n\nreason := json.marshal(input)\n"

// storedCase is a test case in an answer.
type storedCase struct {
	Name     string         `json:"name"`
	Input    map[string]any `json:"input"`
	Expected bool           `json:"expected"`
	Source   string         `json:"source,omitempty"`
	Hidden   bool           `json:"input_hidden,omitempty"`
}

// TestRecordedCasesAreHidden checks that no answer shows a recorded request to a caller who may not
// read the audit, whatever leads to its test case, and that a caller who sends the case back does
// not destroy it.
func TestRecordedCasesAreHidden(t *testing.T) {
	t.Parallel()
	s := apptest.StartServer(t, "sqlite")
	a := s.Admin
	var ids []string
	for _, who := range []string{"mallory-one", "mallory-two"} {
		d := a.Do(t, "POST", "/decisions/evaluate", body{
			"user": body{"id": who, "role": "guest"}, "action": body{"name": "read"}, "resource": body{"type": "api", "path": "/hush/" + who}, "environment": "sandbox",
		}).Want(200)
		ids = append(ids, fmt.Sprint(d.Get("decision_id")))
	}
	own := body{"name": "by hand", "input": body{"user": body{"role": "plain-role"}}, "expected": false}
	id := a.Do(t, "POST", "/policies", body{"name": "told", "rego_code": tells, "environment": "sandbox", "test_cases": []body{own}}).Want(201).ID()
	at := fmt.Sprintf("/policies/%d", id)
	a.Do(t, "POST", at+"/test-cases/from-decisions", body{"decision_ids": ids[:1]}).Want(200)
	a.Do(t, "POST", at+"/test-cases/from-decisions", body{"decision_ids": ids[1:]}).Want(200)
	casesOf := func(c *apptest.Client) (cases []storedCase) {
		t.Helper()
		var p struct {
			Cases *[]storedCase `json:"test_cases"`
		}
		p.Cases = &cases
		c.Do(t, "GET", at, nil).Want(200).Into(&p)
		return cases
	}
	full := casesOf(a)
	if len(full) != 3 || full[1].Source != "decision" || !strings.Contains(fmt.Sprint(full[1].Input), "mallory-one") {
		t.Fatalf("the cases are %+v, want 3 with the recorded input", full)
	}
	// Cases that were stored before they had a source have it in their name.
	full[1].Source = ""
	a.Do(t, "PUT", at, body{"test_cases": full}).Want(200)

	a.Do(t, "POST", "/users", body{"username": "vera", "email": "vera@example.com", "password": apptest.Password, "roles": []string{"viewer"}}).Want(201)
	author := s.Key(t, a, "sandbox", "policies:write", "decisions:read", "resources:read")
	for name, c := range map[string]*apptest.Client{"a viewer's session": s.Login(t, "vera", apptest.Password), "a key": s.Key(t, a, "sandbox", "policies:read", "resources:read"), "an author's key": author} {
		for _, path := range []string{at, "/policies?environment=sandbox", at + "/versions", at + "/versions/2", at + "/versions/diff?from=1&to=2", at + "/versions/diff?from=1&to=3", "/policies-as-code/files?environment=sandbox"} {
			answersNothingRecorded(t, name, c.Do(t, "GET", path, nil).Want(200))
		}
		answersNothingRecorded(t, name, c.Do(t, "POST", at+"/test", nil).Want(200))
		for i, got := range casesOf(c) {
			if got.Name != full[i].Name || got.Expected != full[i].Expected || got.Hidden != (i > 0) || i > 0 && len(got.Input) > 0 {
				t.Errorf("the case for %s, number %d, is %+v, want it without its input", name, i, got)
			}
		}
	}
	if report := author.Do(t, "POST", at+"/test", nil).Want(200); !strings.Contains(string(report.Body), "plain-role") || report.Get("summary", "passed") != 3.0 {
		t.Errorf("the test = %s, want 3 passed cases", report.Body)
	}
	authorChanges(t, a, author, at, casesOf)
}

// answersNothingRecorded checks that an answer has nothing of the recorded decisions.
func answersNothingRecorded(t *testing.T, who string, res *apptest.Response) {
	t.Helper()
	if strings.Contains(string(res.Body), "mallory-") || strings.Contains(string(res.Body), "/hush/") {
		t.Errorf("the answer for %s has a recorded input: %s", who, res.Body)
	}
}

// authorChanges sends back what an author without audit:read gets.
func authorChanges(t *testing.T, a, author *apptest.Client, at string, casesOf func(*apptest.Client) []storedCase) {
	t.Helper()
	kept := func(when string) {
		t.Helper()
		if text := fmt.Sprint(casesOf(a)); !strings.Contains(text, "mallory-one") || !strings.Contains(text, "mallory-two") {
			t.Errorf("%s: the stored cases are %s, want both recorded inputs", when, text)
		}
	}
	shown := casesOf(author)
	answersNothingRecorded(t, "a PUT", author.Do(t, "PUT", at, body{"description": "new", "test_cases": shown}).Want(200))
	kept("sent back")
	for i := range shown {
		shown[i].Hidden = false
	}
	answersNothingRecorded(t, "a PUT without the mark", author.Do(t, "PUT", at, body{"test_cases": shown}).Want(200))
	kept("sent back without the mark")
	answersNothingRecorded(t, "a run of what was shown", author.Do(t, "POST", at+"/test", body{"test_cases": casesOf(author)}).Want(200))
	renamed := casesOf(author)
	renamed[1].Name = "another name"
	author.Do(t, "PUT", at, body{"test_cases": renamed}).Want(422)
	kept("after the refusal")
	answersNothingRecorded(t, "restore-version", author.Do(t, "POST", at+"/versions/2/restore", nil).Want(200))
	answersNothingRecorded(t, "restore-version", author.Do(t, "POST", at+"/versions/3/restore", nil).Want(200))
	kept("restored")

	// A new name by an auditor does not show the input.
	open := casesOf(a)
	open[1].Name, open[1].Source = "renamed", ""
	a.Do(t, "PUT", at, body{"test_cases": open}).Want(200)
	answersNothingRecorded(t, "a renamed case", author.Do(t, "GET", at, nil).Want(200))
	kept("renamed")

	author.Do(t, "DELETE", at, nil).Want(200)
	answersNothingRecorded(t, "restore", author.Do(t, "POST", at+"/restore", nil).Want(200))

	var files struct {
		Files []json.RawMessage `json:"files"`
	}
	author.Do(t, "GET", "/policies-as-code/files?environment=sandbox", nil).Want(200).Into(&files)
	if drift := author.Do(t, "POST", "/policies-as-code/drift", body{"environment": "sandbox", "files": files.Files}).Want(200); drift.Get("in_sync") != true {
		t.Errorf("the drift after a pull = %s, want it in sync", drift.Body)
	}
	for _, dry := range []bool{true, false} {
		res := author.Do(t, "POST", "/policies-as-code/deploy", body{"files": files.Files, "dry_run": dry}).Want(200, 201)
		answersNothingRecorded(t, "a deployment", res)
		if !strings.Contains(string(res.Body), `"unchanged"`) {
			t.Errorf("the deployment of pulled files = %s, want unchanged", res.Body)
		}
	}
	kept("deployed")
	auditorDeploys(t, a, files.Files, kept)
}

// auditorDeploys deploys what an author without audit:read exported, with a key that may see all
// cases: what the export had to leave out stays, until the mark of it is removed from the file.
func auditorDeploys(t *testing.T, a *apptest.Client, files []json.RawMessage, kept func(when string)) {
	t.Helper()
	text, err := json.Marshal(files)
	errtest.Must(t, err)
	if !strings.Contains(string(text), `hidden_tests: 2`) {
		t.Fatalf("the export does not say what it left out: %s", text)
	}
	if drift := a.Do(t, "POST", "/policies-as-code/drift", body{"environment": "sandbox", "files": files}).Want(200); drift.Get("in_sync") != true {
		t.Errorf("drift of another's pull: %s", drift.Body)
	}
	if res := a.Do(t, "POST", "/policies-as-code/deploy", body{"files": files}).Want(200, 201); !strings.Contains(string(res.Body), `"unchanged"`) {
		t.Errorf("deployed what another pulled: %s", res.Body)
	}
	kept("deployed by who sees them")
	var open []json.RawMessage
	errtest.Must(t, json.Unmarshal([]byte(strings.ReplaceAll(string(text), `hidden_tests: 2`, `hidden_tests: 0`)), &open))
	a.Do(t, "POST", "/policies-as-code/deploy", body{"files": open}).Want(200, 201)
	if res := a.Do(t, "GET", "/policies-as-code/files?environment=sandbox", nil).Want(200); strings.Contains(string(res.Body), "mallory-") {
		t.Errorf("what the file lacks is stored still: %s", res.Body)
	}
}
