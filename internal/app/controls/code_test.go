package controls_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/app/apptest"
	"github.com/gatehouse-dev/gatehouse/internal/errtest"
)

const (
	ownersRego = "package payments\n\ndefault allow := false\n\nallow if input.user.id == input.resource.attributes.owner\n"
	ownersTest = `package payments_test

import data.payments

test_owner if payments.allow with input as {"user": {"id": "ada"}, "resource": {"attributes": {"owner": "ada"}}}

test_other if not payments.allow with input as {"user": {"id": "eve"}, "resource": {"attributes": {"owner": "ada"}}}
`
	ownersManifest = `name: "Payments: owners only"
description: Who owns a payment may read it.
resource: {name: Payments, type: api, path: /payments/*}
tests:
  - name: the owner may
    input: {user: {id: ada}, resource: {attributes: {owner: ada}}}
    expected: true
`
)

type codeOutcome struct {
	Path, Name, Result, Diff, Status string
	PolicyID                         int64 `json:"policy_id"`
	Version                          int64
}

type codeDeployment struct {
	ID     string `json:"deployment_id"`
	DryRun bool   `json:"dry_run"`
	Files  []codeOutcome
	Tests  struct{ Total, Passed, Failed int }
}

// TestCodeDeploy takes a repository through validation, tests, a dry run, a deployment, one without
// changes, one with a change, and drift.
func TestCodeDeploy(t *testing.T) {
	apptest.Each(t, func(t *testing.T, s *apptest.Server) {
		c := s.Admin
		resource := c.Do(t, http.MethodPost, "/resources", apptest.Body{"name": "Payments", "type": "api", "path": "/payments/*"}).Want(201).ID()
		files := apptest.CodeFiles("payments/owners.rego", ownersRego, "payments/owners_test.rego", ownersTest, "payments/gatehouse.yaml", ownersManifest, "plain.rego", "package plain\n\nallow if input.user.role == \"admin\"\n")
		body := apptest.Body{"files": files, "repository": "github.com/acme/controls", "commit": "4f1c2aa"}
		if v := c.Do(t, http.MethodPost, "/policies-as-code/validate", body).Want(200); v.Get("valid") != true {
			t.Fatalf("validate = %s, want it valid", v.Body)
		}
		tests := c.Do(t, http.MethodPost, "/policies-as-code/test", body).Want(200)
		if tests.Get("passed") != true || tests.Get("summary", "total") != 3.0 {
			t.Fatalf("test = %s, want 3 passed tests", tests.Body)
		}

		var dry, done, again codeDeployment
		rehearsal := apptest.Body{"files": files, "dry_run": true}
		c.Do(t, http.MethodPost, "/policies-as-code/deploy", rehearsal).Want(200).Into(&dry)
		if len(dry.Files) != 2 || dry.Files[0].Result != "created" || !strings.Contains(dry.Files[0].Diff, "+allow if input.user.id") || dry.Files[0].PolicyID != 0 {
			t.Fatalf("the dry run = %+v, want 2 new controls without ids", dry)
		}
		if c.Do(t, http.MethodGet, "/policies", nil).Get("total") != 0.0 {
			t.Fatal("the dry run created controls")
		}
		keyed := c.With("Idempotency-Key", "code-1")
		keyed.Do(t, http.MethodPost, "/policies-as-code/deploy", body).Want(200).Into(&done)
		repeated := keyed.Do(t, http.MethodPost, "/policies-as-code/deploy", body).Want(200)
		if repeated.Header.Get("Idempotent-Replayed") != "true" || repeated.Get("deployment_id") != done.ID {
			t.Errorf("the deployment with the same Idempotency-Key = %s, want the first answer", repeated.Body)
		}
		p := c.Do(t, http.MethodGet, fmt.Sprintf("/policies/%d", done.Files[0].PolicyID), nil).Want(200)
		if p.Get("name") != "Payments: owners only" || p.Get("status") != "active" || p.Get("environment") != "sandbox" || p.Get("resource_id") != float64(resource) || len(p.Get("test_cases").([]any)) != 1 {
			t.Fatalf("the deployed control = %s, want it as in the repository", p.Body)
		}
		c.Do(t, http.MethodPost, "/policies-as-code/deploy", body).Want(200).Into(&again)
		for _, f := range again.Files {
			if f.Result != "unchanged" || f.Version != 1 {
				t.Errorf("the repeated deployment has %+v, want it unchanged at version 1", f)
			}
		}
		if got := c.Do(t, http.MethodGet, "/policies-as-code/deploy/"+done.ID, nil).Want(200).Get("deployment_id"); got != done.ID {
			t.Errorf("GET of the deployment = %v, want its id", got)
		}

		changed := apptest.CodeFiles("payments/owners.rego", strings.Replace(ownersRego, "allow if", "allow if input.action == \"read\"\n\nallow if", 1), "payments/gatehouse.yaml", ownersManifest, "new.rego", "package new\n")
		drift := c.Do(t, http.MethodPost, "/policies-as-code/drift", apptest.Body{"files": changed, "repository": "github.com/acme/controls"}).Want(200)
		states := map[string]string{}
		for _, d := range drift.Get("controls").([]any) {
			d := d.(map[string]any)
			states[d["name"].(string)] = d["state"].(string)
		}
		if want := map[string]string{"Payments: owners only": "changed", "new": "added", "plain": "missing"}; fmt.Sprint(states) != fmt.Sprint(want) {
			t.Errorf("the drift = %v, want %v", states, want)
		}
		c.Do(t, http.MethodPut, fmt.Sprintf("/policies/%d", done.Files[1].PolicyID), apptest.Body{"rego_code": "package plain\n"}).Want(200)
		drift = c.Do(t, http.MethodPost, "/policies-as-code/drift", body).Want(200)
		if list := drift.Get("controls").([]any); len(list) != 1 || list[0].(map[string]any)["state"] != "changed_outside" {
			t.Errorf("the drift after an outside change = %s, want changed_outside", drift.Body)
		}
		var over codeDeployment
		c.Do(t, http.MethodPost, "/policies-as-code/deploy", body).Want(200).Into(&over)
		if over.Files[1].Result != "updated" || over.Files[1].Version != 3 {
			t.Errorf("the deployment over an outside change = %+v, want version 3", over.Files)
		}
		if drift = c.Do(t, http.MethodPost, "/policies-as-code/drift", body).Want(200); drift.Get("in_sync") != true {
			t.Errorf("the drift after the deployment = %s, want it in sync", drift.Body)
		}

		events := c.Do(t, http.MethodGet, "/audit/events?limit=100", nil).Want(200)
		for _, want := range []string{`"POLICIES_DEPLOYED"`, `"POLICY_CREATED"`, done.ID} {
			if !strings.Contains(string(events.Body), want) {
				t.Errorf("the audit lacks %s: %s", want, events.Body)
			}
		}
		var export struct{ Files []apptest.Body }
		c.Do(t, http.MethodGet, "/policies-as-code/files", nil).Want(200).Into(&export)
		var back codeDeployment
		c.Do(t, http.MethodPost, "/policies-as-code/deploy", apptest.Body{"files": export.Files}).Want(200).Into(&back)
		for _, f := range back.Files {
			if f.Result != "unchanged" {
				t.Errorf("the deployment of the export has %+v, want it unchanged: %v", f, export.Files)
			}
		}
	})
}

// TestCodeAllOrNothing checks that a deployment with one error changes nothing.
func TestCodeAllOrNothing(t *testing.T) {
	apptest.Each(t, func(t *testing.T, s *apptest.Server) {
		c := s.Admin
		good := "package good\n\nallow if input.user.id == \"ada\"\n"
		c.Do(t, http.MethodPost, "/policies-as-code/deploy", apptest.Body{"files": apptest.CodeFiles("good.rego", good)}).Want(200)
		better := strings.Replace(good, "ada", "bob", 1)
		foreign := otherTenantsResource(t, s)
		for name, bad := range map[string]struct {
			body       apptest.Body
			code, file string
			line       int
		}{
			"a control that does not compile": {apptest.Body{"files": apptest.CodeFiles("good.rego", better, "z.rego", "package z\n\nallow if nonsense(1)\n")}, "invalid_policy", "z.rego", 3},
			"a forbidden built-in":            {apptest.Body{"files": apptest.CodeFiles("good.rego", better, "z.rego", "package z\n\nallow if http.send({\"url\": \"http://x\"})\n")}, "invalid_policy", "z.rego", 3},
			"a forbidden built-in in a test":  {apptest.Body{"files": apptest.CodeFiles("good.rego", better, "z_test.rego", "package z\n\ntest_z if opa.runtime()\n")}, "invalid_policy", "z_test.rego", 3},
			"an unknown member":               {apptest.Body{"files": apptest.CodeFiles("good.rego", better, "gatehouse.yaml", "name: x\nresorce: y\n")}, "invalid_policy", "gatehouse.yaml", 2},
			"no such resource":                {apptest.Body{"files": apptest.CodeFiles("good.rego", better, "z/z.rego", "package z\n", "z/gatehouse.yaml", "name: z\nresource: {name: nowhere}\n")}, "invalid_policy", "z/gatehouse.yaml", 2},
			"another tenant's resource":       {apptest.Body{"files": apptest.CodeFiles("good.rego", better, "z/z.rego", "package z\n", "z/gatehouse.yaml", fmt.Sprintf("name: z\nresource: {id: %d}\n", foreign))}, "invalid_policy", "z/gatehouse.yaml", 2},
			"another tenant's resource, sent": {apptest.Body{"files": apptest.CodeFiles("good.rego", better), "resource_id": foreign}, "invalid_policy", "good.rego", 1},
			"no bouncer of that id, sent":     {apptest.Body{"files": apptest.CodeFiles("good.rego", better), "bouncer_id": 99999}, "invalid_policy", "good.rego", 1},
			"a path that leads out":           {apptest.Body{"files": apptest.CodeFiles("good.rego", better, "../z.rego", "package z\n")}, "invalid_policy", "../z.rego", 0},
			"a test that fails":               {apptest.Body{"files": apptest.CodeFiles("good.rego", better, "good_test.rego", "package good\n\ntest_ada if allow with input as {\"user\": {\"id\": \"ada\"}}\n")}, "tests_failed", "", 0},
			"a case that fails":               {apptest.Body{"files": apptest.CodeFiles("good.rego", better, "gatehouse.yaml", "name: good\ntests: [{name: ada, input: {user: {id: ada}}, expected: true}]\n")}, "tests_failed", "", 0},
			"production":                      {apptest.Body{"files": apptest.CodeFiles("good.rego", better), "environment": "production"}, "validation_failed", "", 0},
		} {
			r := c.Do(t, http.MethodPost, "/policies-as-code/deploy", bad.body).Want(422)
			if r.Get("error") != bad.code {
				t.Errorf("%s: the deployment = %s, want its error code", name, r.Body)
			}
			if bad.file == "" {
				continue
			}
			first := r.Get("errors").([]any)[0].(map[string]any)
			if first["file"] != bad.file || first["line"] != float64(bad.line) {
				t.Errorf("%s: the deployment = %s, want the file and the line", name, r.Body)
			}
		}
		var page struct {
			Total    int
			Policies []struct {
				Version  int
				RegoCode string `json:"rego_code"`
			}
		}
		c.Do(t, http.MethodGet, "/policies", nil).Want(200).Into(&page)
		if page.Total != 1 || page.Policies[0].Version != 1 || page.Policies[0].RegoCode != good {
			t.Errorf("the controls after refused deployments are %+v, want one unchanged", page)
		}
		c.Do(t, http.MethodPost, "/resources", apptest.Body{"name": "hidden", "type": "api", "path": "/hidden"}).Want(201)
		for _, name := range []string{"hidden", "nowhere"} { // a production key hears the same of what sandbox has and has not
			linked := apptest.Body{"files": apptest.CodeFiles("good.rego", good, "gatehouse.yaml", "resource: "+name+"\n")}
			if v := s.Key(t, c, "production", "policies:write").Do(t, http.MethodPost, "/policies-as-code/validate", linked).Want(200); v.Get("valid") != true {
				t.Errorf("%s: validate with a key for production = %s, want it valid", name, v.Body)
			}
			if v := c.Do(t, http.MethodPost, "/policies-as-code/validate", linked).Want(200); v.Get("valid") != (name == "hidden") {
				t.Errorf("%s: validate = %s, want only a hidden resource accepted", name, v.Body)
			}
		}
		s.Key(t, c, "production", "policies:write").Do(t, http.MethodPost, "/policies-as-code/deploy", apptest.Body{"files": apptest.CodeFiles("good.rego", better)}).Want(403)
		s.Key(t, c, "sandbox", "policies:read").Do(t, http.MethodPost, "/policies-as-code/deploy", apptest.Body{"files": apptest.CodeFiles("good.rego", better)}).Want(403)
	})
}

// otherTenantsResource creates a tenant with many resources and returns an id that only it has.
func otherTenantsResource(t *testing.T, s *apptest.Server) int64 {
	t.Helper()
	s.Admin.Do(t, http.MethodPost, "/tenants", apptest.Body{"name": "other"}).Want(201)
	other := s.Admin.With("X-Tenant-ID", "other")
	var id int64
	for i := range 3 {
		id = other.Do(t, http.MethodPost, "/resources", apptest.Body{"name": fmt.Sprint("r", i), "type": "api", "path": fmt.Sprint("/r", i)}).Want(201).ID()
	}
	return id
}

// TestParallelDeployments checks that parallel deployments of a new repository create each control once,
// and that every caller gets a true answer.
func TestParallelDeployments(t *testing.T) {
	apptest.Each(t, func(t *testing.T, s *apptest.Server) {
		var files []apptest.Body
		for i := range 10 {
			files = append(files, apptest.CodeFiles(fmt.Sprintf("c%d.rego", i), fmt.Sprintf("package c%d\n\nallow if input.user.id == \"ada\"\n", i))...)
		}
		const callers = 4
		answers := make([]codeDeployment, callers)
		var wg sync.WaitGroup
		for i := range callers {
			wg.Go(func() {
				s.Admin.Do(t, http.MethodPost, "/policies-as-code/deploy", apptest.Body{"files": files}).Want(200).Into(&answers[i])
			})
		}
		wg.Wait()
		counts := map[string]int{}
		for _, a := range answers {
			for _, f := range a.Files {
				counts[f.Result]++
			}
		}
		if counts["created"] != 10 || counts["unchanged"] != 10*(callers-1) {
			t.Errorf("the results are %v, want 10 created and the others unchanged", counts)
		}
		if total := s.Admin.Do(t, http.MethodGet, "/policies", nil).Get("total"); total != 10.0 {
			t.Errorf("the tenant has %v controls, want 10", total)
		}
	})
}

// TestCodeHostileTests checks that tests without an end are ended at their deadline.
func TestCodeHostileTests(t *testing.T) {
	s := apptest.StartServer(t, "sqlite")
	loop := "package loop\n\ntest_loop if {\n\tsome a in numbers.range(1, 90000)\n\tsome b in numbers.range(1, 90000)\n\ta + b < 0\n}\n"
	r := s.Admin.Within(25*time.Second).Do(t, http.MethodPost, "/policies-as-code/test", apptest.Body{"files": apptest.CodeFiles("c.rego", "package c\n", "loop_test.rego", loop)}).Want(200, 422)
	if r.Status == 200 && (r.Get("passed") != false || !strings.Contains(string(r.Body), "evaluation_limit")) || r.Status == 422 && r.Get("error") != "evaluation_limit" {
		t.Errorf("the test = %s, want evaluation_limit", r.Body)
	}
}

// TestCodeLargeBodies checks the largest files that the server accepts, with the content that grows
// most on its way to the worker, and a little more.
func TestCodeLargeBodies(t *testing.T) {
	s := apptest.StartServer(t, "sqlite")
	line := "# " + strings.Repeat("<", 60) + "\n"
	files := apptest.CodeFiles("c.rego", "package c\n")
	for i := range 9 { // tests: the linter leaves them alone
		files = append(files, apptest.CodeFiles(fmt.Sprintf("f%d_test.rego", i), fmt.Sprintf("package f%d\n", i)+strings.Repeat(line, 1_000_000/len(line)))...)
	}
	send := func() *apptest.Response {
		var text bytes.Buffer
		enc := json.NewEncoder(&text)
		enc.SetEscapeHTML(false)
		errtest.Must(t, enc.Encode(apptest.Body{"files": files}))
		return s.Admin.Do(t, http.MethodPost, "/policies-as-code/validate", text.Bytes())
	}
	if r := send().Want(200); r.Get("valid") != true {
		t.Errorf("validate of the largest files = %.300s, want them valid", r.Body)
	}
	for i := range 2 {
		files = append(files, apptest.CodeFiles(fmt.Sprintf("g%d.rego", i), strings.Repeat("#", 1_000_000))...)
	}
	send().Want(413)
}
