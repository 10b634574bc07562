package controls_test

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/app/apptest"
	"github.com/gatehouse-dev/gatehouse/internal/db/dbtest"
)

// letIn is a control that lets some people in and nobody else.
func letIn(who ...string) string {
	return "package door\n\ndefault allow := false\n\nallow if input.user.id in {\"" + strings.Join(who, "\", \"") + "\"}\n"
}

const doorYAML = "name: The door\nresource: {name: door, type: api}\n"

// fromCode deploys the control "The door" to sandbox and gives its id there.
func fromCode(t *testing.T, a *apptest.Client, rego string) int64 {
	t.Helper()
	var d codeDeployment
	a.Do(t, "POST", "/policies-as-code/deploy", body{"files": apptest.CodeFiles("door/door.rego", rego, "door/gatehouse.yaml", doorYAML)}).Want(200).Into(&d)
	return d.Files[0].PolicyID
}

type promotionAnswer struct {
	Message  string `json:"message"`
	Replaced []struct {
		PolicyID int64 `json:"policy_id"`
		Version  int64 `json:"version"`
	} `json:"replaced"`
	Warnings []struct {
		Code      string  `json:"code"`
		PolicyIDs []int64 `json:"policy_ids"`
	} `json:"warnings"`
	Impact *struct {
		Changed      int64 `json:"changed"`
		NewlyBlocked int64 `json:"newly_blocked"`
		NewlyAllowed int64 `json:"newly_allowed"`
	} `json:"impact"`
}

func promote(t *testing.T, a *apptest.Client, id int64, members body) promotionAnswer {
	t.Helper()
	var out promotionAnswer
	a.Do(t, "POST", fmt.Sprintf("/policies/%d/promote", id), members).Want(200).Into(&out)
	return out
}

// TestCodePromotedAgain: an edit of a control that was promoted takes its place in
// production: at no moment do both decide, or neither, in the service and at a
// bouncer; and the way back is as whole.
func TestCodePromotedAgain(t *testing.T) {
	apptest.Each(t, func(t *testing.T, s *apptest.Server) {
		a := s.Admin
		a.Do(t, "POST", "/resources", body{"name": "door", "type": "api", "path": "/door/**", "environment": "sandbox"}).Want(201)
		// Always is let in by each version, Never by none.
		first := fromCode(t, a, letIn("Always", "Ann"))
		if p := promote(t, a, first, body{"deployment_notes": "first", "replace": true}); len(p.Replaced) != 0 || len(p.Warnings) != 1 || p.Warnings[0].Code != "sandbox_uncovered" {
			t.Errorf("the first promotion: %+v", p)
		}
		apptest.Enforce(t, a, "sandbox", "production")
		door := a.Do(t, "GET", fmt.Sprint("/policies/", first), nil).Want(200).Get("resource_id")
		b := s.Bouncer(t, a, body{"name": "edge", "environment": "production", "resource_ids": []any{door}}, apptest.NewBackend(t, nil).Addr)
		decided := func(who string) any {
			return a.Do(t, "POST", "/decisions/evaluate?environment=production", body{"user": body{"id": who}, "action": body{"name": "read"}, "resource": body{"type": "api", "path": "/door/1"}}).Want(200).Get("decision")
		}
		in := func(yes, no string) {
			t.Helper()
			if got := []any{decided(yes), decided(no), decided("Always"), decided("Never")}; !slices.Equal(got, []any{"PERMIT", "DENY", "PERMIT", "DENY"}) {
				t.Errorf("%s, not %s: %v", yes, no, got)
			}
			apptest.WaitForStatus(t, b.As(yes, ""), "/door/1", 200, 10*time.Second)
			// The bouncer has the new ones, and with them not the old.
			for who, want := range map[string]int{no: 403, "Always": 200, "Never": 403} {
				if r := b.As(who, "").Do(t, "GET", "/door/1", nil); r.Status != want {
					t.Errorf("%s gets %d at the bouncer", who, r.Status)
				}
			}
		}
		in("Ann", "Bob")
		stop := watched(t, a, b)

		second := fromCode(t, a, letIn("Always", "Bob"))
		if second == first {
			t.Fatal("sandbox has the promoted control")
		}
		if p := promote(t, a, second, body{"deployment_notes": "second", "replace": true}); len(p.Replaced) != 1 || p.Replaced[0].PolicyID != first || len(p.Warnings) != 1 {
			t.Errorf("the second promotion: %+v", p)
		}
		in("Bob", "Ann")
		r := a.Do(t, "POST", fmt.Sprintf("/policies/%d/reinstate", first), body{"deployment_notes": "Bob is gone"}).Want(200)
		if r.Get("policy_id") != float64(first) || fmt.Sprint(r.Get("replaced").([]any)[0].(map[string]any)["policy_id"]) != fmt.Sprint(second) {
			t.Errorf("back: %s", r.Body)
		}
		in("Ann", "Bob")
		a.Do(t, "POST", fmt.Sprintf("/policies/%d/reinstate", second), nil).Want(200)
		in("Bob", "Ann")
		stop()

		// Without replace both decide, as ever, and the answer says so.
		third := fromCode(t, a, letIn("Always", "Ann"))
		if p := promote(t, a, third, body{}); len(p.Replaced) != 0 || len(p.Warnings) != 2 || p.Warnings[1].Code != "same_name_active" || !slices.Equal(p.Warnings[1].PolicyIDs, []int64{second}) {
			t.Errorf("without replace: %+v", p)
		}
		if decided("Ann") != "DENY" || decided("Bob") != "DENY" || decided("Always") != "PERMIT" {
			t.Error("two controls decide otherwise than as two")
		}
		a.Do(t, "POST", fmt.Sprintf("/policies/%d/reinstate", third), nil).Want(200)
		in("Ann", "Bob")

		// What production has of the repository is the one that decides.
		export := a.Do(t, "GET", "/policies-as-code/files?environment=production", nil).Want(200)
		if files := export.Get("files").([]any); len(files) != 2 {
			t.Errorf("production as files: %s", export.Body)
		}
		drift := a.Do(t, "POST", "/policies-as-code/drift", body{"environment": "production", "files": apptest.CodeFiles("door/door.rego", letIn("Always", "Ann"), "door/gatehouse.yaml", doorYAML)}).Want(200)
		if drift.Get("in_sync") != true {
			t.Errorf("drift: %s", drift.Body)
		}
		superseded(t, a, second, third)
	})
}

// superseded checks what is told of a control that another took the place of.
func superseded(t *testing.T, a *apptest.Client, old, by int64) {
	t.Helper()
	var history struct {
		Versions []struct {
			Status, Note string
		} `json:"versions"`
	}
	a.Do(t, "GET", fmt.Sprintf("/policies/%d/versions", old), nil).Want(200).Into(&history)
	if v := history.Versions[0]; v.Status != "inactive" || !strings.HasPrefix(v.Note, fmt.Sprintf("superseded by policy %d, version", by)) {
		t.Errorf("the newest version of %d: %+v", old, v)
	}
	var log struct {
		Events []struct {
			Type    string         `json:"type"`
			Changes map[string]any `json:"changes"`
		} `json:"events"`
	}
	r := a.Do(t, "GET", fmt.Sprintf("/audit/events?object=policy&object_id=%d", old), nil).Want(200)
	r.Into(&log)
	if len(log.Events) == 0 || log.Events[0].Type != "POLICY_UPDATED" || log.Events[0].Changes["superseded_by"] != float64(by) {
		t.Errorf("the audit of %d: %s", old, r.Body)
	}
}

// watched asks for those who are let in by both versions, without pause, until
// it is stopped: between two versions there is never none.
func watched(t *testing.T, a *apptest.Client, b *apptest.BouncerProcess) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() {
		for i := 0; ctx.Err() == nil; i++ {
			path := fmt.Sprint("/door/", i)
			r, err := a.Try("POST", "/decisions/evaluate?environment=production", body{"user": body{"id": "Always"}, "action": body{"name": "read"}, "resource": body{"type": "api", "path": path}})
			if err == nil && r.Status == http.StatusOK && !bytes.Contains(r.Body, []byte(`"PERMIT"`)) {
				t.Errorf("the service: %s", r.Body)
			}
			if r, err := b.As("Always", "").Try("GET", path, nil); err != nil || r.Status != http.StatusOK {
				t.Errorf("the bouncer: %v %v", r, err)
			}
		}
	})
	return func() { cancel(); wg.Wait() }
}

// TestCodeReplacementIsGated: what the gates of a promotion refuse replaces nothing, nor
// does who may not, or another tenant.
func TestCodeReplacementIsGated(t *testing.T) {
	apptest.Each(t, func(t *testing.T, s *apptest.Server) {
		a := s.Admin
		old := apptest.Activate(t, a, "The door", "production", letIn("Ann"), nil)
		next := apptest.Activate(t, a, "The door", "sandbox", letIn("Bob"), nil)
		asleep := a.Do(t, "POST", "/policies", body{"name": "The door", "rego_code": letIn("Bob")}).Want(201).ID()
		failing := apptest.Activate(t, a, "The door", "sandbox", letIn("Bob"), body{"test_cases": []body{{"name": "Ann may", "input": body{"user": body{"id": "Ann"}}, "expected": true}}})
		up := func(id int64) string { return fmt.Sprintf("/policies/%d/promote", id) }
		back := fmt.Sprintf("/policies/%d/reinstate", old)
		with := body{"replace": true}
		stranger := tenantAdmin(t, s, "others")
		reader := s.Key(t, a, "production", "policies:read")
		sandbox := s.Key(t, a, "sandbox", "policies:write")

		if r := a.Do(t, "POST", up(asleep), with).Want(409); r.Get("error") != "not_active" {
			t.Errorf("a draft: %s", r.Body)
		}
		a.Do(t, "POST", up(failing), with).Want(422)
		a.Do(t, "POST", up(next), body{"replace": "yes"}).Want(422)
		a.With("If-Match", `"9"`).Do(t, "POST", up(next), with).Want(412)
		stranger.Do(t, "POST", up(next), with).Want(404)
		stranger.Do(t, "POST", back, nil).Want(404)
		reader.Do(t, "POST", up(next), with).Want(403)
		reader.Do(t, "POST", back, nil).Want(403)
		sandbox.Do(t, "POST", up(next), with).Want(403)
		sandbox.Do(t, "POST", back, nil).Want(404)
		a.Do(t, "PUT", "/tenants/default", body{"settings": body{"four_eyes": true}}).Want(200)
		a.Do(t, "POST", up(next), with).Want(422)
		if p := a.Do(t, "GET", fmt.Sprint("/policies/", old), nil).Want(200); p.Get("status") != "active" || p.Get("version") != 1.0 {
			t.Fatalf("changed by what was refused: %s", p.Body)
		}
		// The other tenant's control of the same name stays as it is.
		theirs := apptest.Activate(t, stranger, "The door", "production", letIn("Eve"), nil)
		a.Do(t, "POST", "/users", body{"username": "second", "email": "second@example.com", "password": apptest.Password, "roles": []string{"policy_author"}}).Want(201)
		if p := promote(t, a, next, body{"replace": true, "approver": "second"}); len(p.Replaced) != 1 || p.Replaced[0].PolicyID != old {
			t.Errorf("%+v", p)
		}
		if p := stranger.Do(t, "GET", fmt.Sprint("/policies/", theirs), nil).Want(200); p.Get("status") != "active" {
			t.Errorf("another tenant's: %s", p.Body)
		}
	})
}

// TestImpactGateReplaces: the replay of a promotion that replaces compares with
// the old one gone, so that only what differs counts.
func TestImpactGateReplaces(t *testing.T) {
	t.Parallel()
	s := apptest.StartServer(t, dbtest.SQLite)
	a := s.Admin
	apptest.RecordDecisions(t, a, "production", 100, 12)
	twin := a.Do(t, "POST", "/resources", body{"name": "invoices", "type": "api", "path": "/invoices/**", "environment": "sandbox"}).Want(201).ID()
	a.Do(t, "PUT", "/tenants/default", body{"settings": body{"impact_gate": "block", "impact_gate_threshold_percent": 5, "impact_gate_window_hours": 1}}).Want(200)
	try := func(rego string, members body, status int) promotionAnswer {
		t.Helper()
		id := apptest.Activate(t, a, "invoices", "sandbox", rego, body{"resource_id": twin})
		r := a.Do(t, "POST", fmt.Sprintf("/policies/%d/promote", id), members).Want(status)
		var out promotionAnswer
		r.Into(&out)
		if out.Impact == nil {
			t.Fatalf("not measured: %s", r.Body)
		}
		return out
	}
	replace := body{"replace": true}
	if p := try(stricter, replace, 422); p.Impact.Changed != 12 || p.Impact.NewlyBlocked != 12 {
		t.Errorf("stricter: %+v", p.Impact)
	}
	// The same again, with a comment more, changes nothing.
	if p := try(apptest.Clerks+"\n# again\n", replace, 200); p.Impact.Changed != 0 || len(p.Replaced) != 1 {
		t.Errorf("the same: %+v", p)
	}
	// One that refuses all stands in nobody's way once it is replaced.
	a.Do(t, "PUT", "/tenants/default", body{"settings": body{"impact_gate": "warn"}}).Want(200)
	if p := try("package none\n\ndefault allow := false\n", replace, 200); p.Impact.NewlyBlocked != 100 {
		t.Errorf("none: %+v", p.Impact)
	}
	if p := try(apptest.Clerks, body{}, 200); p.Impact.Changed != 0 || len(p.Warnings) != 1 {
		t.Errorf("beside the one that refuses all: %+v", p)
	}
	if p := try(apptest.Clerks+"\n# third\n", replace, 200); p.Impact.NewlyAllowed != 100 || len(p.Replaced) != 2 {
		t.Errorf("in its place: %+v", p)
	}
}

// TestPolicyCommandPromotes: the command line brings controls to production by
// name, says what they replaced, and takes it back.
func TestPolicyCommandPromotes(t *testing.T) {
	s := apptest.StartServer(t, dbtest.SQLite)
	a := s.Admin
	var key struct {
		Key string `json:"key"`
	}
	a.Do(t, "POST", "/tenants/default/api-keys", body{"name": "both", "scopes": []string{"policies:write"}}).Want(201).Into(&key)
	env := []string{"GATEHOUSE_URL=" + s.URL, "GATEHOUSE_API_KEY=" + key.Key}
	run := func(code int, want string, args ...string) {
		t.Helper()
		out, errs, got := apptest.PolicyCommand(t, t.TempDir(), env, args...)
		if got != code || !strings.Contains(out+errs, want) {
			t.Errorf("%v: %d\n%s%s", args, got, out, errs)
		}
	}
	old := apptest.Activate(t, a, "The door", "production", letIn("Ann"), nil)
	next := apptest.Activate(t, a, "The door", "sandbox", letIn("Bob"), nil)
	apptest.Activate(t, a, "The door, too", "sandbox", letIn("Bob"), nil)
	run(1, `sandbox has no control "The window"`, "promote", "The window")
	run(0, fmt.Sprintf("gatehouse policy reinstate %d", old), "promote", "The door", "--replace", "--notes", "by hand")
	run(1, "already_in_production", "promote", fmt.Sprint(next))
	run(0, "replaces policy", "reinstate", fmt.Sprint(old))
	run(1, "404", "reinstate", "999")
	run(2, "text and json", "promote", "The door, too", "-o", "sarif")
	apptest.Activate(t, a, "The door", "sandbox", letIn("Bob"), nil)
	apptest.Activate(t, a, "The door", "sandbox", letIn("Bob"), nil)
	run(1, "choose one by its id", "promote", "The door")
	run(0, `"name": "The door, too"`, "promote", "The door, too", "-o", "json")
	if p := a.Do(t, "GET", fmt.Sprint("/policies/", old), nil).Want(200); p.Get("status") != "active" {
		t.Errorf("%s", p.Body)
	}
}
