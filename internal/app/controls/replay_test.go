package controls_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/app/apptest"
)

// stricter lets clerks read invoices only.
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

// TestReplay: of what was recorded, an edit flips twelve decisions, and the rule
// that does it is named; nothing flips by itself.
func TestReplay(t *testing.T) {
	t.Parallel()
	apptest.Each(t, func(t *testing.T, s *apptest.Server) {
		a := s.Admin
		empty := preview(t, a, body{"environment": "production", "control_ids": []int64{}, "window_hours": 1})
		if empty.Evaluated != 0 || empty.Percent != 0 || empty.Note == "" {
			t.Errorf("nothing recorded: %+v", empty)
		}
		resource, policy := apptest.RecordDecisions(t, a, "production", 300, 12)
		same := preview(t, a, body{"environment": "production", "control_ids": []int64{policy}, "window_hours": 1})
		if same.Evaluated != 300 || same.Changed != 0 || same.Drifted.Total != 0 || same.WouldAllow != 300 {
			t.Errorf("the same control: %+v", same)
		}
		edit := body{"environment": "production", "candidates": []body{{"policy_id": policy, "rego_code": stricter}}, "window_hours": 1}
		got := preview(t, a, edit)
		if got.Evaluated != 300 || got.Changed != 12 || got.NewlyBlocked != 12 || got.WouldBlock != 12 || got.Percent != 4 {
			t.Errorf("the edit: %+v", got)
		}
		if len(got.ByRule) != 1 || got.ByRule[0].Rule != "deny" || got.ByRule[0].Line != 12 || got.ByRule[0].Changed != 12 || got.ByRule[0].PolicyID != policy {
			t.Errorf("by rule: %+v", got.ByRule)
		}
		if len(got.Samples) != 12 || got.Samples[0].Change != "newly_blocked" || got.Samples[0].Before.Effect != "ALLOW" || got.Samples[0].After.Reason != "no writing from outside" || got.Samples[0].After.Line != 12 {
			t.Errorf("samples: %+v", got.Samples)
		}
		if len(got.BySubject) != 7 || len(got.ByControl) != 1 || got.ByControl[0].Changed != 12 {
			t.Errorf("by subject %+v, by control %+v", got.BySubject, got.ByControl)
		}
		// A draft of sandbox against production's traffic, as a promotion would have it.
		twin := a.Do(t, "POST", "/resources", body{"name": "invoices", "type": "api", "path": "/invoices/**", "environment": "sandbox"}).Want(201).ID()
		draft := a.Do(t, "POST", "/policies", body{"name": "no clerks", "rego_code": "package no\n\ndeny if input.user.role == \"clerk\"\n", "resource_id": twin}).Want(201).ID()
		cross := preview(t, a, body{"environment": "sandbox", "source_environment": "production", "control_ids": []int64{draft}})
		if cross.Evaluated != 300 || cross.NewlyBlocked != 12 || len(cross.ByRule) != 1 || cross.ByRule[0].PolicyID != draft || cross.ByRule[0].Line != 3 {
			t.Errorf("across environments: %+v", cross)
		}
		// Once the control has changed, what was recorded drifts, and not because of a candidate.
		a.Do(t, "PUT", fmt.Sprint("/policies/", policy), body{"rego_code": stricter}).Want(200)
		drifted := preview(t, a, body{"environment": "production", "window_hours": 1, "baseline": "now"})
		if drifted.Changed != 0 || drifted.Drifted.Total != 12 || drifted.Drifted.Controls != 12 || drifted.WouldBlock != 12 {
			t.Errorf("after the change: %+v", drifted)
		}
		then := preview(t, a, body{"environment": "production", "window_hours": 1})
		if then.Drifted.Total != 0 || then.Changed != 0 || then.WouldAllow != 300 {
			t.Errorf("compared with the controls of then: %+v", then)
		}
		gone := preview(t, a, body{"environment": "production", "without_control_ids": []int64{policy}, "window_hours": 1})
		if gone.WouldBlock != 300 || gone.NewlyBlocked != 300 {
			t.Errorf("without the control: %+v", gone)
		}
		gone = preview(t, a, body{"environment": "production", "without_control_ids": []int64{policy}, "window_hours": 1, "baseline": "now"})
		if gone.WouldBlock != 300 || gone.NewlyBlocked != 288 {
			t.Errorf("without the control, as it is now: %+v", gone)
		}
		refusesReplays(t, s, resource, policy, draft)
	})
}

// refusesReplays holds what a preview refuses.
func refusesReplays(t *testing.T, s *apptest.Server, resource, policy, draft int64) {
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
			t.Errorf("%s: %s", name, r.Body)
		}
	}
	bound := s.Key(t, a, "sandbox", "policies:write")
	bound.Do(t, "POST", "/compliance/impact-preview", body{"environment": "production"}).Want(403)
	bound.Do(t, "POST", "/compliance/impact-preview", body{"environment": "sandbox", "source_environment": "production"}).Want(403)
	s.Key(t, a, "production", "policies:read").Do(t, "POST", "/compliance/impact-preview", body{}).Want(403)
}

// TestReplayRuns: a replay that runs by itself shows its progress and its
// result, can be cancelled, and is nobody else's.
func TestReplayRuns(t *testing.T) {
	t.Parallel()
	apptest.Each(t, func(t *testing.T, s *apptest.Server) {
		a := s.Admin
		_, policy := apptest.RecordDecisions(t, a, "production", 120, 12)
		run := a.Do(t, "POST", "/compliance/replays", body{"environment": "production", "candidates": []body{{"policy_id": policy, "rego_code": stricter}}}).Want(202)
		at := fmt.Sprint("/compliance/replays/", run.ID())
		done := ended(t, a, at, "completed")
		if done.Get("result", "changed") != 12.0 || done.Get("progress", "percent") != 100.0 || done.Get("progress", "evaluated") != 120.0 {
			t.Errorf("%s", done.Body)
		}
		a.Do(t, "DELETE", at, nil).Want(409)
		if r := a.Do(t, "GET", "/compliance/replays", nil).Want(200); r.Get("total") != 1.0 || strings.Contains(string(r.Body), `"result"`) {
			t.Errorf("the list: %s", r.Body)
		}
		// Each decision takes until its limit, so this one goes on until it is cancelled.
		slow := a.Do(t, "POST", "/compliance/replays", body{"environment": "production", "candidates": []body{{"policy_id": policy, "rego_code": endlessInvoices}}}).Want(202)
		at = fmt.Sprint("/compliance/replays/", slow.ID())
		apptest.Eventually(t, 30*time.Second, func() error {
			if r := a.Do(t, "GET", at+"?wait=2", nil).Want(200); r.Get("progress", "evaluated") == 0.0 {
				return fmt.Errorf("no progress: %s", r.Body)
			}
			return nil
		})
		a.Do(t, "DELETE", at, nil).Want(200)
		ended(t, a, at, "cancelled")
		other := tenantAdmin(t, s, "elsewhere")
		other.Do(t, "GET", at, nil).Want(404)
		other.Do(t, "DELETE", at, nil).Want(404)
		other.Do(t, "POST", "/compliance/replays", body{"environment": "production", "control_ids": []int64{policy}}).Want(422)
		a.Do(t, "POST", "/compliance/replays", body{"candidates": []body{{"rego_code": "package broken\n\nallow if"}}}).Want(422)
	})
}

// endlessInvoices does not come to an end by itself.
const endlessInvoices = `package invoices

allow if {
	some i in numbers.range(1, 100000)
	some j in numbers.range(1, 100000)
	i * j < 0
}
`

func ended(t testing.TB, a *apptest.Client, at, status string) *apptest.Response {
	t.Helper()
	var last *apptest.Response
	apptest.Eventually(t, 30*time.Second, func() error {
		last = a.Do(t, "GET", at+"?wait=1", nil).Want(200)
		if last.Get("status") != status {
			return fmt.Errorf("%s", last.Body)
		}
		return nil
	})
	return last
}

// tenantAdmin makes a tenant and signs in its administrator.
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

// TestImpactGate: a promotion that would block too many of production's recorded
// decisions is refused with figures; in mode warn it passes and tells them.
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
			t.Errorf("blocked with %s", r.Body)
		}
		if env := a.Do(t, "GET", fmt.Sprint("/policies/", control), nil).Want(200).Get("environment"); env != "sandbox" {
			t.Errorf("the blocked control is in %v", env)
		}
		settings("warn", 5)
		r = a.Do(t, "POST", at, body{}).Want(200)
		if r.Get("impact", "newly_blocked_percent") != 12.0 || r.Get("impact", "exceeded") != true {
			t.Errorf("warned with %s", r.Body)
		}
		a.Do(t, "PUT", "/tenants/default", body{"settings": body{"impact_gate": "sometimes"}}).Want(422)
	})
}
