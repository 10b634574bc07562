package editors_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gatehouse-dev/gatehouse/internal/app/apptest"
	"github.com/gatehouse-dev/gatehouse/internal/db/dbtest"
	"github.com/gatehouse-dev/gatehouse/internal/errtest"
)

// outside is the control of the story as its author first writes it, and right.
const (
	outsideBroken = "package outside\n\ndeny contains \"no writing from outside\" if {\n\tinput.action.name == write\n\tinput.context.network == \"outside\"\n}\n"
	outsideRego   = "package outside\n\ndeny contains \"no writing from outside\" if {\n\tinput.action.name == \"write\"\n\tinput.context.network == \"outside\"\n}\n"
	outsideTest   = "package outside_test\n\nimport data.outside\n\ntest_writing if count(outside.deny) == 1 with input as {\"action\": {\"name\": \"write\"}, \"context\": {\"network\": \"outside\"}}\n\ntest_reading if count(outside.deny) == 0 with input as {\"action\": {\"name\": \"read\"}, \"context\": {\"network\": \"outside\"}}\n"
	outsideYAML   = "name: No writing from outside\nresource: {name: invoices, type: api}\n"
)

// TestWorkbench goes through an author's day: a clone of a repository, an error in the editor, a
// replay of the last ten thousand decisions, a push to sandbox, a promotion that the impact gate
// first refuses, and an auditor's report of a simulation.
func TestWorkbench(t *testing.T) {
	t.Parallel()
	g := newGitHost(t)
	s := apptest.StartServer(t, dbtest.SQLite, g.env()...)
	a := s.Admin
	apptest.RecordDecisions(t, a, "production", 10_000, 12)
	a.Do(t, "POST", "/resources", body{"name": "invoices", "type": "api", "path": "/invoices/**", "environment": "sandbox"}).Want(201)
	hooked := hook(t, s, a, body{"name": "controls", "url": g.url, "secret": hookSecret, "branch": "main"})
	g.commit(map[string]string{"README.md": "Our controls.\n"})

	// The author's clone, and the editor on it.
	clone := filepath.Join(t.TempDir(), "controls")
	g.git("", "clone", "-q", g.git(g.work, "remote", "get-url", "origin"), clone)
	errtest.Must(t, errtest.Of(os.Stat(filepath.Join(clone, "README.md"))))
	editor := startLSP(t)
	uri := "file://" + filepath.ToSlash(filepath.Join(clone, "outside.rego"))
	editor.notify("textDocument/didOpen", body{"textDocument": body{"uri": uri, "languageId": "rego", "version": 1, "text": outsideBroken}})
	found := editor.diagnostics(1)
	if len(found) == 0 || !strings.Contains(fmt.Sprint(found[0]["message"]), "write") || fmt.Sprint(found[0]["range"].(map[string]any)["start"]) != "map[character:1 line:3]" {
		t.Fatalf("the editor's diagnostics are %v, want the error at write", found)
	}
	editor.notify("textDocument/didChange", body{"textDocument": body{"uri": uri, "version": 2}, "contentChanges": []any{body{"text": outsideRego}}})
	for _, d := range editor.diagnostics(2) {
		if d["severity"] == 1.0 {
			t.Fatalf("the diagnostics after the fix have an error: %v", d)
		}
	}

	// The replay of the last decisions.
	var impact apptest.ImpactFigures
	a.Do(t, "POST", "/compliance/impact-preview", body{"environment": "production", "window_hours": 1, "candidates": []body{{"name": "outside", "rego_code": outsideRego}}}).Want(200).Into(&impact)
	if impact.Evaluated != 10_000 || impact.Changed != 12 || impact.NewlyBlocked != 12 || len(impact.ByRule) != 1 || impact.ByRule[0].Rule != "deny" || impact.ByRule[0].Line != 3 {
		t.Fatalf("the replay = %+v, want 12 of 10000 newly blocked by deny", impact)
	}

	// A push deploys to sandbox.
	commit := g.commit(map[string]string{"controls/outside.rego": outsideRego, "controls/outside_test.rego": outsideTest, "controls/gatehouse.yaml": outsideYAML})
	push := body{"repository_url": g.url, "branch": "main", "commit_hash": commit, "event_type": "push"}
	receipt := deliver(t, s, hooked, map[string]string{"X-Service-Signature": "sign"}, push).Want(200)
	if receipt.Get("status") != "completed" {
		t.Fatalf("the push = %s, want it completed", receipt.Body)
	}
	var page struct {
		Policies []struct {
			ID     int64  `json:"id"`
			Name   string `json:"name"`
			Status string `json:"status"`
		} `json:"policies"`
	}
	a.Do(t, "GET", "/policies?environment=sandbox", nil).Want(200).Into(&page)
	if len(page.Policies) != 1 || page.Policies[0].Name != "No writing from outside" || page.Policies[0].Status != "active" {
		t.Fatalf("the controls of sandbox are %+v, want the pushed one", page.Policies)
	}
	id := page.Policies[0].ID

	// The auditor's report.
	run := a.Do(t, "POST", fmt.Sprintf("/pis/policies/%d/simulate?environment=sandbox", id), body{"input_json": body{
		"user": body{"id": "u1", "role": "clerk"}, "action": body{"name": "write"}, "context": body{"network": "outside"},
	}}).Want(200)
	if run.Get("decision") != "DENY" || run.Get("reason") != "no writing from outside" {
		t.Fatalf("the simulation = %s, want DENY with the reason", run.Body)
	}
	report := a.Do(t, "POST", fmt.Sprintf("/pis/export/%.0f?format=pdf", run.Get("simulation_id")), nil).Want(200)
	if !bytes.HasPrefix(report.Body, []byte("%PDF-")) || report.Header.Get("Content-Type") != "application/pdf" {
		t.Fatalf("the report is %.40q, want a PDF", report.Body)
	}

	// The gate refuses, because 0.12 percent of the decisions would be blocked.
	for _, step := range []struct {
		threshold float64
		want      int
	}{{0.1, 422}, {0.2, 200}} {
		a.Do(t, "PUT", "/tenants/default", body{"settings": body{"impact_gate": "block", "impact_gate_threshold_percent": step.threshold, "impact_gate_window_hours": 1}}).Want(200)
		r := a.Do(t, "POST", fmt.Sprintf("/policies/%d/promote", id), body{"deployment_notes": "replayed"}).Want(step.want)
		if step.want == 422 && (r.Get("error") != "impact_blocked" || r.Get("impact", "newly_blocked") != 12.0) {
			t.Errorf("the promotion = %s, want impact_blocked", r.Body)
		}
	}
	if env := a.Do(t, "GET", fmt.Sprintf("/policies/%d", id), nil).Want(200).Get("environment"); env != "production" {
		t.Errorf("the promoted control is in %v, want production", env)
	}
}
