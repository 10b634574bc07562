package decisions_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/app/apptest"
)

// TestEvaluate checks that a control's evaluations count whether it decided or not, that a request can
// name its environment, and that the audit has a bulk item under both ids.
func TestEvaluate(t *testing.T) {
	apptest.Inner(t)
	apptest.Each(t, func(t *testing.T, s *apptest.Server) {
		a := s.Admin
		control := func(name, env, source string) string {
			return fmt.Sprintf("/policies/%d", a.Do(t, "POST", "/policies", body{"name": name, "rego_code": source, "environment": env, "status": "active"}).Want(201).ID())
		}
		admins := control("admins", "sandbox", "package a\n\nallow if input.user.id == \"ada\"\n")
		guests := control("guests", "sandbox", "package g\n\ndeny if input.user.id == \"eve\"\n")

		ask := func(user string) body { return body{"environment": "sandbox", "user": body{"id": user}} }
		for user, want := range map[string]string{"ada": "PERMIT", "bob": "DENY", "eve": "DENY"} {
			if got := a.Do(t, "POST", "/decisions/evaluate", ask(user)).Want(200).Get("decision"); got != want {
				t.Errorf("the decision for %s = %v, want %s", user, got, want)
			}
		}
		var bulk struct {
			Results []struct {
				DecisionID string `json:"decision_id"`
				AuditID    string `json:"audit_id"`
			}
		}
		item := ask("bob")
		item["decision_id"] = "mine"
		a.Do(t, "POST", "/decisions/evaluate/bulk?environment=sandbox", body{"decisions": []body{item, item}}).Want(200).Into(&bulk)
		a.Do(t, "POST", "/decisions/evaluate", item).Want(200)
		if r := bulk.Results; r[0].DecisionID != "mine" || r[1].DecisionID != "mine" || r[0].AuditID == r[1].AuditID {
			t.Errorf("the bulk results are %+v, want the caller's id and two audit ids", r)
		}
		logged := map[string]bool{} // our ids of the caller's decision "mine"
		apptest.Eventually(t, 30*time.Second, func() error {
			for _, e := range a.Do(t, "GET", "/decisions/audit?environment=sandbox&user_id=bob", nil).Want(200).Get("logs").([]any) {
				if e := e.(map[string]any); e["caller_decision_id"] == "mine" {
					logged[fmt.Sprint(e["decision_id"])] = true
				}
			}
			named := a.Do(t, "GET", "/decisions/audit?environment=sandbox&decision_id=mine", nil).Want(200)
			own := a.Do(t, "GET", "/decisions/audit?environment=sandbox&decision_id="+bulk.Results[0].AuditID, nil).Want(200)
			if named.Get("filtered") != 3.0 || own.Get("filtered") != 1.0 {
				return fmt.Errorf("the log has %v decisions by the caller's id and %v by ours, want 3 and 1", named.Get("filtered"), own.Get("filtered"))
			}
			if len(logged) != 3 || !logged[bulk.Results[0].AuditID] || !logged[bulk.Results[1].AuditID] {
				return fmt.Errorf("the log has our ids %v, want 3 with those of the bulk results", logged)
			}
			return nil
		})
		for _, r := range bulk.Results {
			if got := a.Do(t, "GET", "/decisions/audit/"+r.AuditID+"/explanation", nil).Want(200).Get("decision_id"); got != r.AuditID {
				t.Errorf("the explanation of %s is that of %v", r.AuditID, got)
			}
		}
		apptest.Eventually(t, 30*time.Second, func() error {
			for _, path := range []string{admins, guests} {
				if n := a.Do(t, "GET", path, nil).Want(200).Get("performance_metrics", "total_evaluations"); n != 6.0 {
					return fmt.Errorf("GET %s has %v evaluations, want 6", path, n)
				}
			}
			return nil
		})

		a.Do(t, "POST", "/decisions/evaluate?environment=production", ask("ada")).WantError(400, "environment_conflict")
		a.With("X-Environment", "production").Do(t, "POST", "/decisions/evaluate", ask("ada")).Want(400)
		key := s.Key(t, a, "production", "decisions:read")
		key.Do(t, "POST", "/decisions/evaluate", ask("ada")).WantError(403, "environment_denied")
		a.Do(t, "POST", "/decisions/evaluate", body{"environment": "staging"}).Want(422)
		a.Do(t, "POST", "/decisions/evaluate/bulk", body{"decisions": []body{item}}).Want(422)
	})
}
