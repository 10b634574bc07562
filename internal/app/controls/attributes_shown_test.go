package controls_test

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/app/apptest"
)

// TestAttributesShown checks that an author's trials show attributes of resources only to callers
// who may read resources, and owner_email to nobody through data.resources.
func TestAttributesShown(t *testing.T) {
	apptest.Each(t, func(t *testing.T, s *apptest.Server) {
		a := s.Admin
		id := a.Do(t, "POST", "/resources", body{
			"name": "ledger", "type": "api", "path": "/ledger", "environment": "sandbox", "attributes": body{"vault": "canary-attribute"},
		}).Want(201).ID()
		a.Do(t, "PUT", fmt.Sprintf("/resources/%d/enrich", id), body{"owner_email": "boss@canary.example", "owner_team": "ledger team"}).Want(200)
		control := func(rego string) int64 {
			return a.Do(t, "POST", "/policies", body{
				"name": fmt.Sprint("c", len(rego)), "rego_code": "package p\n\ndefault allow := false\n\nreason := " + rego + "\n", "environment": "sandbox", "resource_id": id,
			}).Want(201).ID()
		}
		keys := map[bool]*apptest.Client{}
		for _, may := range []bool{true, false} {
			scopes := []string{"simulator:write", "policies:read"}
			if may {
				scopes = append(scopes, "resources:read")
			}
			key := s.Key(t, a, "sandbox", scopes...)
			key.Bearer, key.APIKey = key.APIKey, ""
			keys[may] = key
		}
		for _, c := range []struct {
			rego string
			hide bool // shows attributes
		}{
			{`sprintf("%v", [data.resources])`, true},
			{fmt.Sprintf(`sprintf("%%v", [data.resources["%d"]])`, id), true},
			{fmt.Sprintf(`sprintf("%%v", [object.get(data.resources["%d"].attributes, "vault", "none")])`, id), true},
			{fmt.Sprintf(`sprintf("%%v", [object.get(data.resources["%d"], "owner_email", "none")])`, id), false},
			{`concat(" ", [m | some r in data.resources; some m in r; is_string(m)])`, false},
			{`sprintf("%v", [input.resource])`, true},
		} {
			policy := control(c.rego)
			for may, key := range keys {
				for where, res := range map[string]*apptest.Response{
					"simulate": key.Do(t, "POST", fmt.Sprintf("/pis/policies/%d/simulate?environment=sandbox", policy), body{"input_json": body{"resource": body{"path": "/ledger", "type": "api"}}}),
					"test":     key.Do(t, "POST", fmt.Sprintf("/policies/%d/test", policy), body{"test_cases": []body{{"name": "n", "input": body{}, "expected": true}}}),
				} {
					res.Want(200)
					shown := bytes.Contains(res.Body, []byte("canary-attribute"))
					if want := may && c.hide; shown && !may || want && !shown && where == "test" && strings.Contains(c.rego, "data.") {
						t.Errorf("%s of %s with resources:read %v shows attributes: %v, want them only with the permission\n%s", where, c.rego, may, shown, res.Body)
					}
					if bytes.Contains(res.Body, []byte("canary.example")) {
						t.Errorf("%s of %s with resources:read %v shows owner_email: %s", where, c.rego, may, res.Body)
					}
				}
			}
		}
	})
}

// TestRecordedInputsShown checks that recorded inputs are shown only with audit:read, and figures
// also without.
func TestRecordedInputsShown(t *testing.T) {
	apptest.Each(t, func(t *testing.T, s *apptest.Server) {
		a := s.Admin
		id := a.Do(t, "POST", "/resources", body{"name": "door", "type": "api", "path": "/door", "environment": "sandbox"}).Want(201).ID()
		policy := a.Do(t, "POST", "/policies", body{
			"name": "door", "rego_code": letIn("ann"), "environment": "sandbox", "resource_id": id, "status": "active",
		}).Want(201).ID()
		ask := body{"user": body{"id": "ben", "department": "canary-input"}, "resource": body{"type": "api", "path": "/door"}, "action": body{"name": "read"}}
		decision := a.Do(t, "POST", "/decisions/evaluate?environment=sandbox", ask).Want(200).Get("decision_id")
		a.Do(t, "POST", fmt.Sprintf("/pis/policies/%d/simulate?environment=sandbox", policy), body{"input_json": ask}).Want(200)
		preview := body{"environment": "sandbox", "window_hours": 1, "candidates": []body{{"policy_id": policy, "rego_code": letIn("ann", "ben")}}}
		apptest.Eventually(t, 30*time.Second, func() error {
			if res := a.Do(t, "POST", "/compliance/impact-preview", preview).Want(200); res.Get("changed") != float64(1) || !bytes.Contains(res.Body, []byte("ben")) {
				return fmt.Errorf("the preview = %s, want the recorded decision", res.Body)
			}
			return nil
		})
		all := []string{"policies:write", "simulator:write", "decisions:read", "resources:read", "dashboard:read"}
		for _, may := range []bool{true, false} {
			scopes := all
			if may {
				scopes = append([]string{"audit:read"}, all...)
			}
			key := s.Key(t, a, "sandbox", scopes...)
			key.Bearer, key.APIKey = key.APIKey, ""
			for _, c := range []struct {
				method, path string
				body         any
				without      int // the status without audit:read
			}{
				{"POST", "/compliance/impact-preview", preview, 200},
				{"POST", fmt.Sprintf("/policies/%d/test-cases/from-decisions", policy), body{"decision_ids": []any{decision}}, 403},
				{"GET", fmt.Sprintf("/pis/policies/%d/test-history", policy), nil, 200},
				{"GET", "/decisions/audit?environment=sandbox", nil, 403},
				{"GET", fmt.Sprintf("/decisions/audit/%v/explanation", decision), nil, 403},
			} {
				res := key.Do(t, c.method, c.path, c.body)
				if shown := bytes.Contains(res.Body, []byte("ben")) || bytes.Contains(res.Body, []byte("canary-input")); shown && !may {
					t.Errorf("%s %s without audit:read shows an input: %s", c.method, c.path, res.Body)
				}
				if !may && res.Status != c.without || may && res.Status >= 400 {
					t.Errorf("%s %s with audit:read %v = %d %s, want success only with it", c.method, c.path, may, res.Status, res.Body)
				}
			}
		}
	})
}
