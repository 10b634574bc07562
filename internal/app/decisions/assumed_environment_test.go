package decisions_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/app/apptest"
)

// TestAssumedEnvironment checks that the reason of a decision without a named environment says where it
// was made, unless the control's author wrote the reason, and that the audit has the same reason.
func TestAssumedEnvironment(t *testing.T) {
	apptest.Each(t, func(t *testing.T, s *apptest.Server) {
		a := s.Admin
		const note = " (decided in production: the request names no environment)"
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
			for query, reason := range map[string]string{"": want + note, "?environment=production": want} {
				res := a.Do(t, "POST", "/decisions/evaluate"+query, ask).Want(200)
				if res.Get("reason") != reason {
					t.Errorf("the decision on %s%s = %s, want the reason %q", path, query, res.Body, reason)
				}
				if got := a.Do(t, "POST", "/decisions/evaluate/bulk"+query, body{"decisions": []body{ask}}).Want(200).Get("results", "0", "reason"); got != reason {
					t.Errorf("the bulk decision on %s%s has the reason %v, want %q", path, query, got, reason)
				}
			}
			ask["environment"] = "production"
			if got := a.Do(t, "POST", "/decisions/evaluate", ask).Want(200).Get("reason"); got != want {
				t.Errorf("the decision on %s with an environment in the body has the reason %v, want %q", path, got, want)
			}
			if got := a.Do(t, "POST", "/decisions/evaluate/bulk", body{"decisions": []body{ask}}).Want(200).Get("results", "0", "reason"); got != want {
				t.Errorf("the bulk decision on %s with an environment in the item has the reason %v, want %q", path, got, want)
			}
		}
		for path, want := range map[string]string{"worded": "ask for a key", "listed": "closed on Sundays"} {
			if got := a.Do(t, "POST", "/decisions/evaluate", body{"user": body{"id": "eve"}, "resource": body{"path": "/" + path}}).Want(200).Get("reason"); got != want {
				t.Errorf("the decision on %s has the reason %v, want the author's %q", path, got, want)
			}
		}
		if got := fmt.Sprint(a.Do(t, "POST", "/decisions/evaluate", body{"resource": body{"path": "/broken"}}).Want(200).Get("reason")); strings.Contains(got, note) {
			t.Errorf("the decision with an error has the reason %v, want no note", got)
		}
		last := a.Do(t, "POST", "/decisions/evaluate", body{"user": body{"id": "last"}, "resource": body{"path": "/nowhere"}}).Want(200)
		apptest.Eventually(t, 30*time.Second, func() error {
			logs, _ := a.Do(t, "GET", "/decisions/audit?user_id=last", nil).Want(200).Get("logs").([]any)
			if len(logs) != 1 {
				return fmt.Errorf("the log has %d entries, want 1", len(logs))
			}
			if got := logs[0].(map[string]any)["reason"]; got != last.Get("reason") {
				return fmt.Errorf("the log has the reason %v, want %v", got, last.Get("reason"))
			}
			return nil
		})
	})
}
