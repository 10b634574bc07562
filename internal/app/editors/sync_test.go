package editors_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/app/apptest"
	"github.com/gatehouse-dev/gatehouse/internal/db/dbtest"
)

// TestRepositoryKeepsRecordedCases checks that a push can neither change nor remove test cases that
// were made from recorded decisions, because nobody knows whether whoever pushed may see them.
func TestRepositoryKeepsRecordedCases(t *testing.T) {
	t.Parallel()
	g := newGitHost(t)
	s := apptest.StartServer(t, dbtest.SQLite, g.env()...)
	manifest := func(rest string) map[string]string {
		return map[string]string{"vault.rego": "package vault\n\nallow if input.user.id == \"nobody\"\n", "gatehouse.yaml": "name: vault\nresource: null\n" + rest}
	}
	g.commit(manifest(""))
	at := fmt.Sprintf("/ide-integration/repositories/%d", s.Admin.Do(t, "POST", "/ide-integration/repositories", body{"name": "mine", "url": g.url, "secret": hookSecret}).Want(201).ID())
	sync := func(want string) *apptest.Response {
		t.Helper()
		id := s.Admin.Do(t, "POST", at+"/sync", nil).Want(202).Text("deployment_id")
		var d *apptest.Response
		apptest.Eventually(t, time.Minute, func() error {
			d = s.Admin.Do(t, "GET", "/ide-integration/deployments/"+id, nil).Want(200)
			if d.Get("status") == "in_progress" {
				return errors.New("the sync runs")
			}
			return nil
		})
		if d.Get("status") != want {
			t.Fatalf("the sync = %s, want it %s", d.Body, want)
		}
		return d
	}
	sync("completed")
	decision := s.Admin.Do(t, "POST", "/decisions/evaluate", body{"user": body{"id": "mallory"}, "action": body{"name": "read"}, "resource": body{"type": "api", "path": "/vault"}, "environment": "sandbox"}).Want(200).Text("decision_id")
	made := s.Admin.Do(t, "POST", "/policies/1/test-cases/from-decisions", body{"decision_ids": []string{decision}}).Want(200)
	name := made.Get("added").([]any)[0].(map[string]any)["name"]
	kept := func(when string) {
		t.Helper()
		got := s.Admin.Do(t, "GET", "/policies/1", nil).Want(200)
		if list, _ := got.Get("test_cases").([]any); len(list) != 1 || list[0].(map[string]any)["source"] != "decision" || list[0].(map[string]any)["expected"] != false || !strings.Contains(string(got.Body), "mallory") {
			t.Errorf("%s: the control is %s, want its recorded case", when, got.Body)
		}
	}
	g.commit(manifest("description: new\ntests: []\n"))
	sync("completed")
	kept("left out of the files")
	forged := manifest(fmt.Sprintf("tests:\n  - {name: %q, input: {}, expected: true}\n  - {name: %q, input: {user: {id: ada}}, expected: true}\n", name, name))
	forged["vault.rego"] = "package vault\n\nallow if true\n"
	g.commit(forged)
	if d := sync("failed"); !strings.Contains(string(d.Body), "made from a recorded decision") {
		t.Errorf("the sync of forged cases = %s, want the reason", d.Body)
	}
	kept("forged")
}

// TestRepositorySync checks that a manual sync deploys the head of the branch and names the commit,
// and the file and line of what cannot be deployed.
func TestRepositorySync(t *testing.T) {
	apptest.Inner(t)
	t.Parallel()
	g := newGitHost(t)
	s := apptest.StartServer(t, dbtest.SQLite, g.env()...)
	first := g.commit(map[string]string{"controls/orders.rego": "package orders\n\nallow if input.user.id == \"ada\"\n", "elsewhere/no.rego": "no Rego"})
	made := s.Admin.Do(t, "POST", "/ide-integration/repositories", body{"name": "mine", "url": g.url, "secret": hookSecret, "path": "controls"}).Want(201)
	at := fmt.Sprintf("/ide-integration/repositories/%d", made.ID())
	sync := func(at string) *apptest.Response {
		t.Helper()
		id := fmt.Sprint(s.Admin.Do(t, "POST", at+"/sync", nil).Want(202).Get("deployment_id"))
		var d *apptest.Response
		apptest.Eventually(t, time.Minute, func() error {
			d = s.Admin.Do(t, "GET", "/ide-integration/deployments/"+id, nil).Want(200)
			if d.Get("status") == "in_progress" {
				return errors.New("the sync runs")
			}
			return nil
		})
		return d
	}
	d := sync(at)
	if d.Get("status") != "completed" || d.Get("commit_hash") != first || d.Get("repository_id") != made.Get("id") {
		t.Fatalf("the first sync = %s, want it completed with the commit", d.Body)
	}
	if names := policyNames(t, s); !strings.Contains(names["controls/orders"], "ada") || len(names) != 1 {
		t.Fatalf("the controls after the sync are %v, want orders for ada", names)
	}
	second := g.commit(map[string]string{"controls/orders.rego": "package orders\n\nallow if input.user.id = = \"bob\"\n"})
	d = sync(at)
	if d.Get("status") != "failed" || d.Get("commit_hash") != second || !strings.Contains(string(d.Body), `"line":3`) || !strings.Contains(string(d.Body), "controls/orders.rego") {
		t.Errorf("the sync of a wrong control = %s, want the file and the line", d.Body)
	}
	if names := policyNames(t, s); !strings.Contains(names["controls/orders"], "ada") {
		t.Errorf("the controls after a failed sync are %v, want them unchanged", names)
	}
	s.Admin.Do(t, "PUT", at, body{"branch": "gone"}).Want(200)
	if d = sync(at); d.Get("status") != "failed" || !strings.Contains(string(d.Body), "has no such branch") {
		t.Errorf("the sync of an unknown branch = %s, want a failure", d.Body)
	}
	s.Admin.Do(t, "POST", "/ide-integration/repositories/999999/sync", nil).Want(404)
	for repository, total := range map[any]string{made.Get("id"): "3", 999999: "0"} {
		if list := s.Admin.Do(t, "GET", fmt.Sprintf("/ide-integration/deployments?repository_id=%v", repository), nil).Want(200); fmt.Sprint(list.Get("total")) != total {
			t.Errorf("the deployments of the repository %v = %s, want their number", repository, list.Body)
		}
	}
}
