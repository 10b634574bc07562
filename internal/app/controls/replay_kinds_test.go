package controls_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/app/apptest"
	"github.com/gatehouse-dev/gatehouse/internal/db/dbtest"
)

const deskControl = `package desk

allow if "staff" in input.user.roles

allow if input.ticket == "open"
`

// TestStockOPAReplays: what our bouncers, a stock OPA and the service itself decided
// is decided again alike, and an edit flips the same requests of each.
func TestStockOPAReplays(t *testing.T) {
	t.Parallel()
	s := apptest.StartServer(t, dbtest.SQLite)
	a := s.Admin
	resource := a.Do(t, "POST", "/resources", body{"name": "desk", "type": "api", "path": "/desk/**", "environment": "production"}).Want(201).ID()
	a.Do(t, "POST", "/resources", body{"name": "elsewhere", "type": "api", "path": "/elsewhere", "environment": "production"}).Want(201)
	policy := apptest.Activate(t, a, "desk", "production", deskControl, body{"resource_id": resource})

	up := apptest.NewBackend(t, nil)
	b := s.Bouncer(t, a, body{"name": "gate", "environment": "production", "resource_ids": []int64{resource}}, up.Addr)
	for i := range 5 {
		apptest.WaitForStatus(t, b.As("ann", "staff"), fmt.Sprint("/desk/", i), 200, 10*time.Second)
	}
	b.As("bob", "guests").Do(t, "GET", "/desk/1", nil).Want(200) // shadow mode lets pass

	reg := s.Register(t, a, body{"name": "opa", "environment": "production", "resource_ids": []int64{resource}}, "127.0.0.1:9")
	o := apptest.ConfiguredOPA(t, s, reg, nil)
	asks := func(user, role string) body {
		return body{"input": body{"user": body{"id": user, "roles": []string{role}}, "resource": body{"type": "api", "path": "/desk/9"}, "action": body{"method": "GET"}}}
	}
	apptest.Eventually(t, 30*time.Second, func() error {
		r, err := o.Try("POST", "/v1/data/gatehouse/decision", asks("ann", "staff"))
		if err != nil || !strings.Contains(string(r.Body), `"PERMIT"`) {
			return fmt.Errorf("no decision yet: %v\n%s", err, o.Log)
		}
		return nil
	})
	o.Do(t, "POST", "/v1/data/gatehouse/decision", asks("bob", "guests")).Want(200)

	root := *a
	root.Base = s.URL
	root.Do(t, "POST", "/v1/data/gatehouse/decision", asks("ann", "staff")).Want(200)
	ticket := asks("bob", "guests")
	ticket["input"].(body)["ticket"] = "open"
	root.Do(t, "POST", "/v1/data/gatehouse/decision", ticket).Want(200)

	apptest.Eventually(t, 30*time.Second, func() error {
		kinds := map[int64]int{}
		for _, e := range apptest.DecisionLog(t, a, "production") {
			if e.BouncerID != reg.ID || e.Effect != "" { // what OPA was asked before it had its bundle has no result
				kinds[e.BouncerID]++
			}
		}
		if kinds[b.ID] < 6 || kinds[reg.ID] < 2 || kinds[0] < 2 {
			return fmt.Errorf("the log holds %v", kinds)
		}
		return nil
	})
	now := preview(t, a, body{"environment": "production", "window_hours": 1})
	if now.Changed != 0 || now.Drifted.Total != 0 || now.NotReplayable.Total != 0 || now.WouldBlock < 2 || now.Evaluated != now.Recorded-now.Without {
		t.Errorf("as they are: %+v", now)
	}
	edit := strings.Replace(deskControl, `allow if "staff"`, "deny if input.user.id == \"ann\"\n\nallow if \"staff\"", 1)
	got := preview(t, a, body{"environment": "production", "candidates": []body{{"policy_id": policy, "rego_code": edit}}, "samples": 100})
	by := map[int64]int{}
	for _, sample := range got.Samples {
		by[sample.BouncerID]++
	}
	if by[b.ID] < 5 || by[reg.ID] < 1 || by[0] != 1 || len(got.BySubject) != 1 || got.BySubject[0].UserID != "ann" {
		t.Errorf("the edit flips %v, %+v", by, got)
	}
	// The candidate looks into bodies, which the bouncer did not do then.
	deep := preview(t, a, body{"environment": "production", "candidates": []body{{"policy_id": policy, "rego_code": deskControl + "\ndeny if input.llm.model == \"large\"\n"}}})
	if deep.NotReplayable.Incomplete < 6 || deep.Changed != 0 {
		t.Errorf("a look into bodies: %+v", deep)
	}
}

// TestCasesFromDecisions: recorded decisions become stored tests, and what no
// decision touched is listed.
func TestCasesFromDecisions(t *testing.T) {
	t.Parallel()
	apptest.Each(t, func(t *testing.T, s *apptest.Server) {
		a := s.Admin
		resource, policy := apptest.RecordDecisions(t, a, "production", 8, 2)
		idle := apptest.Activate(t, a, "idle", "production", "package idle\n\ndeny if input.user.id == \"nobody\"\n", nil)
		var ids []string
		for _, e := range apptest.DecisionLog(t, a, "production") {
			ids = append(ids, e.ID)
		}
		if len(ids) != 8 {
			t.Fatalf("%d decisions are in the log", len(ids))
		}
		at := fmt.Sprintf("/policies/%d/test-cases/from-decisions", policy)
		a.Do(t, "POST", at, body{"decision_ids": []string{ids[0], "never-made"}}).Want(422)
		a.Do(t, "POST", at, body{}).Want(422)
		a.Do(t, "POST", at, body{"decision_ids": ids[:1], "filter": body{}}).Want(422)
		a.Do(t, "POST", "/policies/987654/test-cases/from-decisions", body{"decision_ids": ids[:1]}).Want(404)
		dry := a.Do(t, "POST", at, body{"filter": body{"limit": 3}, "dry_run": true}).Want(200)
		if added, _ := dry.Get("added").([]any); len(added) != 3 || dry.Get("total") != 0.0 {
			t.Errorf("the dry run: %s", dry.Body)
		}
		made := a.Do(t, "POST", at, body{"decision_ids": ids[:4]}).Want(200)
		if added, _ := made.Get("added").([]any); len(added) != 4 || made.Get("total") != 4.0 || strings.Contains(string(made.Body), `"passed":false`) {
			t.Errorf("made %s", made.Body)
		}
		again := a.Do(t, "POST", at, body{"decision_ids": ids[:5]}).Want(200)
		if skipped, _ := again.Get("skipped").([]any); len(skipped) != 4 || again.Get("total") != 5.0 {
			t.Errorf("again: %s", again.Body)
		}
		r := a.Do(t, "POST", fmt.Sprintf("/policies/%d/test", policy), nil).Want(200)
		if r.Get("summary", "passed") != 5.0 {
			t.Errorf("the stored cases: %s", r.Body)
		}
		if input := fmt.Sprint(a.Do(t, "GET", fmt.Sprint("/policies/", policy), nil).Want(200).Get("test_cases")); !strings.Contains(input, "name:invoices") {
			t.Errorf("the inputs are without the resource: %s", input)
		}
		other := tenantAdmin(t, s, "elsewhere")
		theirs := other.Do(t, "POST", "/policies", body{"name": "theirs", "rego_code": apptest.Clerks}).Want(201).ID()
		other.Do(t, "POST", fmt.Sprintf("/policies/%d/test-cases/from-decisions", theirs), body{"decision_ids": ids[:1]}).Want(422)
		unusedIs(t, a, resource, idle)
	})
}

// unusedIs holds the list of unused policies.
func unusedIs(t *testing.T, a *apptest.Client, resource, idle int64) {
	t.Helper()
	busy := apptest.Activate(t, a, "busy", "production", "package busy\n\nmask contains \"a\" if input.user.role == \"manager\"\n\nmask contains \"b\" if input.user.role == \"nobody\"\n", body{"resource_id": resource})
	apptest.Decide(t, a, "production", 3, 0)
	var out struct {
		Examined int `json:"examined"`
		Controls []struct {
			PolicyID int64 `json:"policy_id"`
		} `json:"controls"`
		Rules []struct {
			PolicyID int64 `json:"policy_id"`
			Rules    []struct {
				Rule string `json:"rule"`
				Line int    `json:"line"`
			} `json:"rules"`
		} `json:"rules"`
	}
	r := a.Do(t, "GET", "/policies/unused?environment=production&days=7", nil).Want(200).Into(&out)
	if out.Examined != 3 || len(out.Controls) != 1 || out.Controls[0].PolicyID != idle {
		t.Errorf("unused: %s", r.Body)
	}
	if len(out.Rules) != 1 || out.Rules[0].PolicyID != busy || len(out.Rules[0].Rules) != 1 || out.Rules[0].Rules[0].Line != 5 {
		t.Errorf("unused rules: %s", r.Body)
	}
	a.Do(t, "GET", "/policies/unused?days=0", nil).Want(400)
	if r := a.Do(t, "GET", "/policies/unused?environment=sandbox", nil).Want(200); r.Get("examined") != 0.0 {
		t.Errorf("in sandbox: %s", r.Body)
	}
}
