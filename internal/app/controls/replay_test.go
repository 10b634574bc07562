package controls_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/app/apptest"
)

// stricter permits clerks only to read invoices.
const stricter = `package invoices

default allow := false

allow if input.user.role == "manager"

allow if {
	input.user.role == "clerk"
	input.action.name == "read"
}

deny contains "no writing from outside" if {
	input.action.name == "write"
	input.context.network == "outside"
}
`

func preview(t testing.TB, a *apptest.Client, ask body) apptest.ImpactFigures {
	t.Helper()
	var out apptest.ImpactFigures
	a.Do(t, "POST", "/compliance/impact-preview", ask).Want(200).Into(&out)
	return out
}

// TestReplay checks that an edit changes twelve recorded decisions and that the replay names the
// rule, and that nothing changes without an edit.
func TestReplay(t *testing.T) {
	t.Parallel()
	apptest.Each(t, func(t *testing.T, s *apptest.Server) {
		a := s.Admin
		empty := preview(t, a, body{"environment": "production", "control_ids": []int64{}, "window_hours": 1})
		if empty.Evaluated != 0 || empty.Percent != 0 || empty.Note == "" {
			t.Errorf("the replay without records = %+v, want a note", empty)
		}
		resource, policy := apptest.RecordDecisions(t, a, "production", 300, 12)
		same := preview(t, a, body{"environment": "production", "control_ids": []int64{policy}, "window_hours": 1})
		if same.Evaluated != 300 || same.Changed != 0 || same.Drifted.Total != 0 || same.WouldAllow != 300 {
			t.Errorf("the replay of the same control = %+v, want 300 allowed", same)
		}
		edit := body{"environment": "production", "candidates": []body{{"policy_id": policy, "rego_code": stricter}}, "window_hours": 1}
		got := preview(t, a, edit)
		if got.Evaluated != 300 || got.Changed != 12 || got.NewlyBlocked != 12 || got.WouldBlock != 12 || got.Percent != 4 {
			t.Errorf("the replay of the edit = %+v, want 12 of 300 newly blocked", got)
		}
		if len(got.ByRule) != 1 || got.ByRule[0].Rule != "deny" || got.ByRule[0].Line != 12 || got.ByRule[0].Changed != 12 || got.ByRule[0].PolicyID != policy {
			t.Errorf("the rules of the replay are %+v, want deny in line 12", got.ByRule)
		}
		if len(got.Samples) != 12 || got.Samples[0].Change != "newly_blocked" || got.Samples[0].Before.Effect != "ALLOW" || got.Samples[0].After.Reason != "no writing from outside" || got.Samples[0].After.Line != 12 {
			t.Errorf("the samples of the replay are %+v, want 12 with the reason", got.Samples)
		}
		if len(got.BySubject) != 7 || len(got.ByControl) != 1 || got.ByControl[0].Changed != 12 {
			t.Errorf("the replay has the subjects %+v and the controls %+v, want 7 and 1", got.BySubject, got.ByControl)
		}
		// A draft of sandbox with production's traffic, as for a promotion.
		twin := a.Do(t, "POST", "/resources", body{"name": "invoices", "type": "api", "path": "/invoices/**", "environment": "sandbox"}).Want(201).ID()
		draft := a.Do(t, "POST", "/policies", body{"name": "no clerks", "rego_code": "package no\n\ndeny if input.user.role == \"clerk\"\n", "resource_id": twin}).Want(201).ID()
		cross := preview(t, a, body{"environment": "sandbox", "source_environment": "production", "control_ids": []int64{draft}})
		if cross.Evaluated != 300 || cross.NewlyBlocked != 12 || len(cross.ByRule) != 1 || cross.ByRule[0].PolicyID != draft || cross.ByRule[0].Line != 3 {
			t.Errorf("the replay across environments = %+v, want 12 newly blocked by the draft", cross)
		}
		// After the control has changed, the recorded decisions drift without a candidate.
		a.Do(t, "PUT", fmt.Sprint("/policies/", policy), body{"rego_code": stricter}).Want(200)
		drifted := preview(t, a, body{"environment": "production", "window_hours": 1, "baseline": "now"})
		if drifted.Changed != 0 || drifted.Drifted.Total != 12 || drifted.Drifted.Controls != 12 || drifted.WouldBlock != 12 {
			t.Errorf("the replay after the change = %+v, want 12 drifted", drifted)
		}
		then := preview(t, a, body{"environment": "production", "window_hours": 1})
		if then.Drifted.Total != 0 || then.Changed != 0 || then.WouldAllow != 300 {
			t.Errorf("the replay with the controls of then = %+v, want no drift", then)
		}
		gone := preview(t, a, body{"environment": "production", "without_control_ids": []int64{policy}, "window_hours": 1})
		if gone.WouldBlock != 300 || gone.NewlyBlocked != 300 {
			t.Errorf("the replay without the control = %+v, want 300 newly blocked", gone)
		}
		gone = preview(t, a, body{"environment": "production", "without_control_ids": []int64{policy}, "window_hours": 1, "baseline": "now"})
		if gone.WouldBlock != 300 || gone.NewlyBlocked != 288 {
			t.Errorf("the replay without the control as it is now = %+v, want 288 newly blocked", gone)
		}
		checkRefusedReplays(t, s, resource, policy, draft)
	})
}

// checkRefusedReplays checks what a preview refuses.
func checkRefusedReplays(t *testing.T, s *apptest.Server, resource, policy, draft int64) {
	t.Helper()
	a := s.Admin
	for name, c := range map[string]struct {
		ask     body
		pointer string
	}{
		"no such control":      {body{"environment": "production", "control_ids": []int64{policy, 987654}}, "/control_ids/1"},
		"other environment":    {body{"environment": "production", "control_ids": []int64{draft}}, "/control_ids/0"},
		"no candidate":         {body{"candidates": []body{{}}}, "/candidates/0"},
		"edit of another":      {body{"candidates": []body{{"policy_id": 987654, "rego_code": "package x"}}}, "/candidates/0/policy_id"},
		"resource elsewhere":   {body{"environment": "sandbox", "candidates": []body{{"rego_code": "package x", "resource_id": resource}}}, "/candidates/0/resource_id"},
		"not active":           {body{"environment": "production", "without_control_ids": []int64{draft}}, "/without_control_ids/0"},
		"window":               {body{"environment": "production", "window_hours": 1000000000}, "/window_hours"},
		"does not compile":     {body{"environment": "production", "candidates": []body{{"rego_code": "package x\n\nallow if nothing(1)"}}}, "/rego_code"},
		"reaches for the host": {body{"environment": "production", "candidates": []body{{"rego_code": "package x\n\nallow if http.send({}).status == 200"}}}, "/rego_code"},
	} {
		r := a.Do(t, "POST", "/compliance/impact-preview", c.ask).Want(422)
		if !strings.Contains(string(r.Body), `"pointer":"`+c.pointer+`"`) {
			t.Errorf("%s: the preview = %s, want its pointer", name, r.Body)
		}
	}
	bound := s.Key(t, a, "sandbox", "policies:write")
	bound.Do(t, "POST", "/compliance/impact-preview", body{"environment": "production"}).Want(403)
	bound.Do(t, "POST", "/compliance/impact-preview", body{"environment": "sandbox", "source_environment": "production"}).Want(403)
	s.Key(t, a, "production", "policies:read").Do(t, "POST", "/compliance/impact-preview", body{}).Want(403)
}

// TestReplayRuns checks that a replay in the background shows its progress and result, can be
// cancelled, and is visible only in its tenant.
func TestReplayRuns(t *testing.T) {
	t.Parallel()
	apptest.Each(t, func(t *testing.T, s *apptest.Server) {
		a := s.Admin
		_, policy := apptest.RecordDecisions(t, a, "production", 120, 12)
		run := a.Do(t, "POST", "/compliance/replays", body{"environment": "production", "candidates": []body{{"policy_id": policy, "rego_code": stricter}}}).Want(202)
		at := fmt.Sprint("/compliance/replays/", run.ID())
		done := waitForEnd(t, a, at, "completed")
		if done.Get("result", "changed") != 12.0 || done.Get("progress", "percent") != 100.0 || done.Get("progress", "evaluated") != 120.0 {
			t.Errorf("the run = %s, want 12 changes of 120", done.Body)
		}
		a.Do(t, "DELETE", at, nil).Want(409)
		if r := a.Do(t, "GET", "/compliance/replays", nil).Want(200); r.Get("total") != 1.0 || strings.Contains(string(r.Body), `"result"`) {
			t.Errorf("the list of runs = %s, want 1 without its result", r.Body)
		}
		// Each decision takes until its limit, so this run goes on until it is cancelled.
		slow := a.Do(t, "POST", "/compliance/replays", body{"environment": "production", "candidates": []body{{"policy_id": policy, "rego_code": endlessInvoices}}}).Want(202)
		at = fmt.Sprint("/compliance/replays/", slow.ID())
		apptest.Eventually(t, 30*time.Second, func() error {
			if r := a.Do(t, "GET", at+"?wait=2", nil).Want(200); r.Get("progress", "evaluated") == 0.0 {
				return fmt.Errorf("the run has made no progress: %s", r.Body)
			}
			return nil
		})
		a.Do(t, "DELETE", at, nil).Want(200)
		waitForEnd(t, a, at, "cancelled")
		other := tenantAdmin(t, s, "elsewhere")
		other.Do(t, "GET", at, nil).Want(404)
		other.Do(t, "DELETE", at, nil).Want(404)
		other.Do(t, "POST", "/compliance/replays", body{"environment": "production", "control_ids": []int64{policy}}).Want(422)
		a.Do(t, "POST", "/compliance/replays", body{"candidates": []body{{"rego_code": "package broken\n\nallow if"}}}).Want(422)
	})
}

// endlessInvoices does not end.
const endlessInvoices = `package invoices

allow if {
	some i in numbers.range(1, 100000)
	some j in numbers.range(1, 100000)
	i * j < 0
}
`

func waitForEnd(t testing.TB, a *apptest.Client, at, status string) *apptest.Response {
	t.Helper()
	var last *apptest.Response
	apptest.Eventually(t, 30*time.Second, func() error {
		last = a.Do(t, "GET", at+"?wait=1", nil).Want(200)
		if last.Get("status") != status {
			return fmt.Errorf("the run = %s", last.Body)
		}
		return nil
	})
	return last
}

// tenantAdmin creates a tenant and signs in its administrator.
func tenantAdmin(t testing.TB, s *apptest.Server, name string) *apptest.Client {
	t.Helper()
	s.Admin.Do(t, http.MethodPost, "/tenants", body{"name": name, "plan_type": "pro", "region": "eu-west-1"}).Want(201)
	s.Admin.With("X-Tenant-ID", name).Do(t, http.MethodPost, "/users", body{"username": "boss", "email": "boss@example.com", "password": apptest.Password, "roles": []string{"admin"}}).Want(201)
	var out struct {
		AccessToken string `json:"access_token"`
	}
	c := s.Anonymous()
	c.With("X-Tenant-ID", name).Do(t, http.MethodPost, "/auth/login", body{"username": "boss", "password": apptest.Password}).Want(200).Into(&out)
	c.Bearer = out.AccessToken
	return c
}

// TestImpactGate checks that a promotion that would block too many of production's recorded
// decisions is refused with figures, and that in the mode warn it succeeds with them.
func TestImpactGate(t *testing.T) {
	t.Parallel()
	apptest.Each(t, func(t *testing.T, s *apptest.Server) {
		a := s.Admin
		apptest.RecordDecisions(t, a, "production", 100, 12)
		twin := a.Do(t, "POST", "/resources", body{"name": "invoices", "type": "api", "path": "/invoices/**", "environment": "sandbox"}).Want(201).ID()
		control := apptest.Activate(t, a, "no clerks", "sandbox", "package no\n\ndeny if input.user.role == \"clerk\"\n", body{"resource_id": twin})
		at := fmt.Sprintf("/policies/%d/promote", control)
		settings := func(mode string, threshold float64) {
			a.Do(t, "PUT", "/tenants/default", body{"settings": body{"impact_gate": mode, "impact_gate_threshold_percent": threshold, "impact_gate_window_hours": 1}}).Want(200)
		}
		settings("block", 5)
		r := a.Do(t, "POST", at, body{}).Want(422)
		if r.Get("error") != "impact_blocked" || r.Get("impact", "newly_blocked") != 12.0 || r.Get("impact", "evaluated") != 100.0 || r.Get("impact", "rule") != "deny" {
			t.Errorf("the blocked promotion = %s, want impact_blocked with 12 of 100", r.Body)
		}
		if env := a.Do(t, "GET", fmt.Sprint("/policies/", control), nil).Want(200).Get("environment"); env != "sandbox" {
			t.Errorf("the blocked control is in %v, want sandbox", env)
		}
		settings("warn", 5)
		r = a.Do(t, "POST", at, body{}).Want(200)
		if r.Get("impact", "newly_blocked_percent") != 12.0 || r.Get("impact", "exceeded") != true {
			t.Errorf("the promotion with a warning = %s, want 12 percent exceeded", r.Body)
		}
		a.Do(t, "PUT", "/tenants/default", body{"settings": body{"impact_gate": "sometimes"}}).Want(422)
	})
}
