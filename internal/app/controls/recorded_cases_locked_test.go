package controls_test

import (
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/gatehouse-dev/gatehouse/internal/app/apptest"
)

// lockedFixture is a control in sandbox that denies everybody, with one case by hand and two that
// were made from decisions.
type lockedFixture struct {
	*apptest.Server
	author *apptest.Client // may write controls, and may not read the audit
	id     int64
	at     string
	full   []storedCase // as the administrator sees them
}

const (
	denies  = "package vault\n\nallow if input.user.id == \"nobody\"\n"
	permits = "package vault\n\nallow if true\n"
)

func newLockedFixture(t *testing.T, s *apptest.Server) *lockedFixture {
	t.Helper()
	a := s.Admin
	own := body{"name": "by hand", "input": body{"user": body{"id": "nobody"}}, "expected": true}
	f := &lockedFixture{Server: s, id: apptest.Activate(t, a, "vault", "sandbox", denies, body{"test_cases": []body{own}})}
	f.at = fmt.Sprintf("/policies/%d", f.id)
	var ids []string
	for _, who := range []string{"mallory-one", "mallory-two"} {
		d := a.Do(t, "POST", "/decisions/evaluate", body{
			"user": body{"id": who}, "action": body{"name": "read"}, "resource": body{"type": "api", "path": "/vault/" + who}, "environment": "sandbox",
		}).Want(200)
		ids = append(ids, d.Text("decision_id"))
	}
	a.Do(t, "POST", f.at+"/test-cases/from-decisions", body{"decision_ids": ids}).Want(200)
	a.Do(t, "POST", "/users", body{"username": "otto", "email": "otto@example.com", "password": apptest.Password, "roles": []string{"policy_author"}}).Want(201)
	f.author = s.Login(t, "otto", apptest.Password)
	if f.full = f.cases(t, a); len(f.full) != 3 || f.full[1].Source != "decision" || f.full[1].Expected || f.full[2].Expected {
		t.Fatalf("the cases are %+v, want 3, and the recorded ones denied", f.full)
	}
	return f
}

// cases returns the stored cases as a client sees them.
func (f *lockedFixture) cases(t *testing.T, c *apptest.Client) (cases []storedCase) {
	t.Helper()
	p := struct {
		Cases *[]storedCase `json:"test_cases"`
	}{&cases}
	c.Do(t, "GET", f.at, nil).Want(200).Into(&p)
	return cases
}

// wantRecorded checks that both recorded cases are stored as they were made.
func (f *lockedFixture) wantRecorded(t *testing.T, when string) {
	t.Helper()
	var recorded []storedCase
	for _, c := range f.cases(t, f.Admin) {
		if c.Source == "decision" {
			recorded = append(recorded, c)
		}
	}
	if !reflect.DeepEqual(recorded, f.full[1:]) {
		t.Errorf("%s: the recorded cases are %+v, want %+v", when, recorded, f.full[1:])
	}
}

// manifest returns the files of the control with these tests.
func manifest(rego, rest string) []body {
	return apptest.CodeFiles("vault/vault.rego", rego, "vault/gatehouse.yaml", "name: vault\nresource: null\n"+rest)
}

// forged returns tests of a manifest with the names of the recorded cases, and another meaning.
func (f *lockedFixture) forged() string {
	text := "tests:\n"
	for _, c := range f.full[1:] {
		text += fmt.Sprintf("  - {name: %q, input: {user: {id: ada}}, expected: true}\n", c.Name)
	}
	return text
}

// TestRecordedCasesAreLocked checks that a caller who may not see recorded cases can neither change
// nor remove them, whatever writes test cases, and that they still guard the promotion.
func TestRecordedCasesAreLocked(t *testing.T) {
	t.Parallel()
	apptest.Each(t, func(t *testing.T, s *apptest.Server) {
		f := newLockedFixture(t, s)
		for name, c := range map[string]*apptest.Client{"a session": f.author, "a key": s.Key(t, s.Admin, "sandbox", "policies:write", "editor:write", "resources:read")} {
			t.Run(name, func(t *testing.T) {
				lockedDeployments(t, f, c)
				lockedUpdates(t, f, c)
				lockedVersions(t, f, c)
			})
		}
		// The Rego may change. The promotion then fails with the recorded cases.
		f.author.Do(t, "PUT", f.at, body{"rego_code": permits, "test_cases": []body{}}).Want(200)
		refused := f.author.Do(t, "POST", f.at+"/promote", body{"keep_in_sandbox": true})
		if refused.ExpectError("a promotion of an opened control", 422, "tests_failed"); strings.Count(string(refused.Body), `"pointer"`) != 2 {
			t.Errorf("the refused promotion = %s, want both recorded cases", refused.Body)
		}
		answersNothingRecorded(t, "a refused promotion", refused)
		f.wantRecorded(t, "after the refused promotion")

		// A copy that a promotion leaves has them too.
		f.author.Do(t, "PUT", f.at, body{"rego_code": denies}).Want(200)
		promoted := f.author.Do(t, "POST", f.at+"/promote", body{"keep_in_sandbox": true}).Want(200)
		f.wantRecorded(t, "promoted")
		f.at = fmt.Sprint("/policies/", promoted.Get("sandbox_copy_id"))
		f.wantRecorded(t, "in the copy")
		f.author.Do(t, "PUT", f.at, body{"test_cases": []body{}}).Want(200)
		f.wantRecorded(t, "in the copy, after an update")

		// A control that replaces the promoted one inherits them.
		f.author.Do(t, "DELETE", f.at, nil).Want(200, 204)
		f.at = fmt.Sprint("/policies/", f.author.Do(t, "POST", "/policies", body{"name": "vault", "status": "active", "rego_code": permits}).Want(201).ID())
		refused = f.author.Do(t, "POST", f.at+"/promote", body{"replace": true})
		if refused.ExpectError("a promotion that replaces", 422, "tests_failed"); strings.Count(string(refused.Body), `"pointer"`) != 2 {
			t.Errorf("the refused replacement = %s, want both recorded cases", refused.Body)
		}
		answersNothingRecorded(t, "a refused replacement", refused)
		f.author.Do(t, "PUT", f.at, body{"rego_code": denies}).Want(200)
		if replaced, _ := f.author.Do(t, "POST", f.at+"/promote", body{"replace": true}).Want(200).Get("replaced").([]any); len(replaced) != 1 {
			t.Errorf("the promotion replaced %v, want the first control", replaced)
		}
		f.wantRecorded(t, "in the control that replaces")

		// So does one that is reinstated. Here an auditor has removed its own before.
		f.at = fmt.Sprint("/policies/", f.id)
		s.Admin.Do(t, "PUT", f.at, body{"test_cases": []body{}}).Want(200)
		f.author.Do(t, "POST", f.at+"/reinstate", body{}).Want(200)
		f.wantRecorded(t, "reinstated")
	})
}

// lockedDeployments deploys files over the control.
func lockedDeployments(t *testing.T, f *lockedFixture, c *apptest.Client) {
	t.Helper()
	deploy := func(files []body, dry bool) *apptest.Response {
		return c.Do(t, "POST", "/policies-as-code/deploy", body{"files": files, "dry_run": dry})
	}
	for what, rest := range map[string]string{"marked": "hidden_tests: 2\n" + f.forged(), "unmarked": f.forged()} {
		for _, dry := range []bool{true, false} {
			r := deploy(manifest(permits, rest), dry).Expect("a forged deployment", 422)
			if !strings.Contains(string(r.Body), "made from a recorded decision") || !strings.Contains(string(r.Body), "vault/gatehouse.yaml") {
				t.Errorf("the forged deployment, %s = %s, want the reason and the file", what, r.Body)
			}
			answersNothingRecorded(t, "a refused deployment", r)
		}
		drift := c.Do(t, "POST", "/policies-as-code/drift", body{"environment": "sandbox", "files": manifest(denies, rest)}).Want(200)
		if answersNothingRecorded(t, "the drift", drift); drift.Get("in_sync") != false {
			t.Errorf("the drift of forged files, %s = %s, want a difference", what, drift.Body)
		}
	}
	f.wantRecorded(t, "after the refused deployments")
	if rego := c.Do(t, "GET", f.at, nil).Want(200).Text("rego_code"); rego != denies {
		t.Errorf("a refused deployment changed the Rego: %s", rego)
	}
	for _, rest := range []string{"tests: []\n", "hidden_tests: 2\ntests: []\n", "tests:\n  - {name: other, input: {}, expected: false}\n", "description: none\n"} {
		deploy(manifest(denies, rest), false).Want(200, 201)
		f.wantRecorded(t, "deployed without them: "+rest)
	}
	// Files of somebody who may see them change nothing either.
	var pulled struct {
		Files []body `json:"files"`
	}
	f.Admin.Do(t, "GET", "/policies-as-code/files?environment=sandbox", nil).Want(200).Into(&pulled)
	if r := deploy(pulled.Files, false).Want(200, 201); !strings.Contains(string(r.Body), `"unchanged"`) {
		t.Errorf("the deployment of an auditor's files = %s, want unchanged", r.Body)
	}
	// An editor deploys in the same way.
	edit := func(rego, rest string) *apptest.Response {
		return c.Do(t, "POST", "/ide-integration/editor-a", body{"action": "deploy", "policy_content": rego, "policy_path": "vault/vault.rego", "files": manifest(rego, rest)[1:]})
	}
	if r := edit(permits, "hidden_tests: 2\n"+f.forged()).Want(400); !strings.Contains(string(r.Body), "made from a recorded decision") {
		t.Errorf("the forged deployment of an editor = %s, want the reason", r.Body)
	}
	edit(denies, "tests: []\n").Want(200)
	f.wantRecorded(t, "deployed by an editor")
}

// lockedUpdates sends changed lists of test cases.
func lockedUpdates(t *testing.T, f *lockedFixture, c *apptest.Client) {
	t.Helper()
	edits := map[string]struct {
		status int
		edit   func([]storedCase) []storedCase
	}{
		"as shown":            {200, func(l []storedCase) []storedCase { return l }},
		"none":                {200, func([]storedCase) []storedCase { return []storedCase{} }},
		"only one":            {200, func(l []storedCase) []storedCase { return l[:1] }},
		"without the source":  {200, func(l []storedCase) []storedCase { l[1].Source = ""; return l }},
		"another expectation": {422, func(l []storedCase) []storedCase { l[1].Expected = true; return l }},
		"twice":               {422, func(l []storedCase) []storedCase { return append(l, l[1]) }},
		"another input": {422, func(l []storedCase) []storedCase {
			l[1].Input, l[1].Hidden = map[string]any{"user": map[string]any{"id": "ada"}}, false
			return l
		}},
		"another input, without the source": {422, func(l []storedCase) []storedCase {
			l[1].Input, l[1].Hidden, l[1].Source = map[string]any{"user": map[string]any{"id": "ada"}}, false, ""
			return l
		}},
		"another name": {422, func(l []storedCase) []storedCase { l[1].Name = "renamed"; return l }},
		"an invented source": {422, func(l []storedCase) []storedCase {
			return append(l, storedCase{Name: "mine", Input: map[string]any{"user": map[string]any{"id": "the-ceo"}}, Source: "decision"})
		}},
		"an invented decision": {422, func(l []storedCase) []storedCase {
			return append(l, storedCase{Name: "decision 01a21e1d-0000-7000-8000-000000000000 permits read", Input: map[string]any{"user": map[string]any{"id": "the-ceo"}}, Expected: true, Source: "decision"})
		}},
	}
	own := f.full[:1]
	c.Do(t, "PUT", f.at, body{"test_cases": own}).Want(200)
	for name, e := range edits {
		shown := f.cases(t, c)
		if len(shown) != 3 {
			t.Fatalf("%s: %d cases are shown, want 3", name, len(shown))
		}
		answersNothingRecorded(t, name, c.Do(t, "PUT", f.at, body{"test_cases": e.edit(shown)}).Expect(name, e.status))
		f.wantRecorded(t, name)
		c.Do(t, "PUT", f.at, body{"test_cases": own}).Want(200)
	}
	invented := body{"name": "mine", "input": body{"user": body{"id": "the-ceo"}}, "expected": true, "source": "decision"}
	for who, by := range map[string]*apptest.Client{"an author": c, "an administrator": f.Admin} {
		r := by.Do(t, "POST", "/policies", body{"name": "new", "rego_code": permits, "test_cases": []body{invented}}).Expect(who, 422)
		if !strings.Contains(string(r.Body), "/test_cases/0/source") {
			t.Errorf("the refusal for %s = %s, want the member", who, r.Body)
		}
	}
	f.Admin.Do(t, "PUT", f.at, body{"test_cases": append([]any{invented}, own[0])}).Want(422)
	c.Do(t, "POST", "/policies", body{"name": "copy", "rego_code": permits, "test_cases": f.cases(t, c)}).Want(422)
	// A run stores nothing, so it may ask for something else.
	shown := f.cases(t, c)
	shown[1].Expected = true
	if r := c.Do(t, "POST", f.at+"/test", body{"test_cases": shown}).Want(200); r.Get("summary", "failed") != 1.0 {
		t.Errorf("the run with another expectation = %s, want one failure", r.Body)
	}
	f.wantRecorded(t, "after the updates")
}

// lockedVersions restores what was before the recorded cases.
func lockedVersions(t *testing.T, f *lockedFixture, c *apptest.Client) {
	t.Helper()
	answersNothingRecorded(t, "a restored version", c.Do(t, "POST", f.at+"/versions/1/restore", nil).Want(200))
	f.wantRecorded(t, "restored to a version without them")
	c.Do(t, "POST", f.at+"/versions/2/restore", nil).Want(200)
	f.wantRecorded(t, "restored to a version with them")
	c.Do(t, "DELETE", f.at, nil).Want(200)
	c.Do(t, "POST", f.at+"/restore", nil).Want(200)
	f.wantRecorded(t, "deleted and restored")
}

// TestRecordedCasesOfAuditors checks that a caller who may see recorded cases may change and remove
// them, and that the administrative log says so.
func TestRecordedCasesOfAuditors(t *testing.T) {
	t.Parallel()
	apptest.Each(t, func(t *testing.T, s *apptest.Server) {
		f := newLockedFixture(t, s)
		logged := func(want string) {
			t.Helper()
			var log struct {
				Events []struct {
					Changes map[string]any `json:"changes"`
				} `json:"events"`
			}
			r := s.Admin.Do(t, "GET", fmt.Sprintf("/audit/events?object=policy&object_id=%d", f.id), nil).Want(200).Into(&log)
			if cases, _ := log.Events[0].Changes["test_cases"].(map[string]any); fmt.Sprint(cases["recorded"]) != want {
				t.Errorf("the newest entry of %s has the changes %v, want %s", r.Body, cases, want)
			}
		}
		logged("map[added:2]")
		cases := f.cases(t, s.Admin)
		cases[1].Expected = true
		cases[2].Input = map[string]any{"user": map[string]any{"id": "ada"}}
		s.Admin.Do(t, "PUT", f.at, body{"test_cases": cases}).Want(200)
		logged("map[changed:2]")
		if got := f.cases(t, s.Admin); !reflect.DeepEqual(got, cases) {
			t.Errorf("the cases are %+v, want %+v", got, cases)
		}
		s.Admin.Do(t, "PUT", f.at, body{"test_cases": cases[:2]}).Want(200)
		logged("map[removed:1]")
		s.Admin.Do(t, "POST", f.at+"/versions/1/restore", nil).Want(200)
		logged("map[removed:1]")
		s.Admin.Do(t, "POST", f.at+"/versions/2/restore", nil).Want(200)
		logged("map[added:2]")
		s.Admin.Do(t, "POST", "/policies-as-code/deploy", body{"files": manifest(permits, f.forged())}).Want(200, 201)
		logged("map[changed:2]")
		s.Admin.Do(t, "PUT", f.at, body{"test_cases": []body{}}).Want(200)
		logged("map[removed:2]")
	})
}
