package decisions_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/app/apptest"
)

// TestAssumedEnvironment: a decision whose request names no environment says in
// its reason where it was made, unless the control's author wrote the reason; the
// audit has what was answered.
func TestAssumedEnvironment(t *testing.T) {
	apptest.Each(t, func(t *testing.T, s *apptest.Server) {
		a := s.Admin
		const said = " (decided in production: the request names no environment)"
		resource := func(name, rego string) {
			id := a.Do(t, "POST", "/resources", body{"name": name, "type": "api", "path": "/" + name, "environment": "production"}).Want(201).ID()
			a.Do(t, "POST", "/policies", body{"name": name, "rego_code": "package p\n\n" + rego + "\n", "environment": "production", "status": "active", "resource_id": id}).Want(201)
		}
		resource("open", "allow := true")
		resource("shut", "deny := true")
		resource("masked", `mask contains "/ssn"`)
		resource("silent", "allow if input.user.id == \"ada\"")
		resource("worded", "allow := false\nreason := \"ask for a key\"")
		resource("listed", `deny contains "closed on Sundays"`)
		resource("broken", `allow := "yes"`)
		for path, want := range map[string]string{
			"open": "Allowed by control open", "shut": "Denied by control shut", "masked": "Masked by control masked",
			"silent": "No control matched the request", "nowhere": "No active control applies to the request",
		} {
			ask := body{"user": body{"id": "eve"}, "resource": body{"type": "api", "path": "/" + path}, "action": body{"name": "read"}}
			for query, reason := range map[string]string{"": want + said, "?environment=production": want} {
				res := a.Do(t, "POST", "/decisions/evaluate"+query, ask).Want(200)
				if res.Get("reason") != reason {
					t.Errorf("%s%s: %s, want %q", path, query, res.Body, reason)
				}
				bulk := a.Do(t, "POST", "/decisions/evaluate/bulk"+query, body{"decisions": []body{ask}}).Want(200).Get("results").([]any)[0].(map[string]any)
				if bulk["reason"] != reason {
					t.Errorf("%s%s in bulk: %v, want %q", path, query, bulk["reason"], reason)
				}
			}
			ask["environment"] = "production"
			if got := a.Do(t, "POST", "/decisions/evaluate", ask).Want(200).Get("reason"); got != want {
				t.Errorf("%s, environment in the body: %v", path, got)
			}
			if bulk := a.Do(t, "POST", "/decisions/evaluate/bulk", body{"decisions": []body{ask}}).Want(200).Get("results").([]any)[0].(map[string]any); bulk["reason"] != want {
				t.Errorf("%s in bulk, environment in the item: %v", path, bulk["reason"])
			}
		}
		for path, want := range map[string]string{"worded": "ask for a key", "listed": "closed on Sundays"} {
			if got := a.Do(t, "POST", "/decisions/evaluate", body{"user": body{"id": "eve"}, "resource": body{"path": "/" + path}}).Want(200).Get("reason"); got != want {
				t.Errorf("the author's reason became %v", got)
			}
		}
		if got := fmt.Sprint(a.Do(t, "POST", "/decisions/evaluate", body{"resource": body{"path": "/broken"}}).Want(200).Get("reason")); strings.Contains(got, said) {
			t.Errorf("an error became %v", got)
		}
		last := a.Do(t, "POST", "/decisions/evaluate", body{"user": body{"id": "last"}, "resource": body{"path": "/nowhere"}}).Want(200)
		apptest.Eventually(t, 30*time.Second, func() error {
			logs, _ := a.Do(t, "GET", "/decisions/audit?user_id=last", nil).Want(200).Get("logs").([]any)
			if len(logs) != 1 {
				return fmt.Errorf("%d entries", len(logs))
			}
			if got := logs[0].(map[string]any)["reason"]; got != last.Get("reason") {
				return fmt.Errorf("the audit says %v, the answer %v", got, last.Get("reason"))
			}
			return nil
		})
	})
}
