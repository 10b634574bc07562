package controls_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/app/apptest"
	"github.com/gatehouse-dev/gatehouse/internal/db/dbtest"
)

// TestReplayOnTheFirstDay checks that on a new installation without audit levels, a caller who may
// read the audit can replay and explain decisions and make test cases of them. Other callers get
// figures, and no secret is stored.
func TestReplayOnTheFirstDay(t *testing.T) {
	t.Parallel()
	for _, backend := range []string{dbtest.SQLite, dbtest.Postgres} {
		s := apptest.StartServer(t, backend)
		a := s.Admin
		resource := a.Do(t, "POST", "/resources", body{"name": "invoices", "type": "api", "path": "/invoices/**", "environment": "production"}).Want(201).ID()
		policy := apptest.Activate(t, a, "invoices", "production", apptest.Clerks, body{"resource_id": resource})
		apptest.Decide(t, a, "production", 40, 5)
		denied := a.Do(t, "POST", "/decisions/evaluate", body{
			"user": body{"id": "eve", "role": "guest", "password": "hunter22", "owner_email": "o@corp.example"}, "action": body{"name": "read"},
			"resource": body{"type": "api", "path": "/invoices/1"},
		}).Want(200)
		id := fmt.Sprint(denied.Get("decision_id"))

		question := body{"environment": "production", "candidates": []body{{"policy_id": policy, "rego_code": stricter}}}
		var got apptest.ImpactFigures
		a.Do(t, "POST", "/compliance/impact-preview", question).Want(200).Into(&got)
		if got.Evaluated != 41 || got.Without != 0 || got.NewlyBlocked != 5 || len(got.Samples) != 5 {
			t.Errorf("the preview = %+v, want 5 of 41 blocked with samples", got)
		}
		author := s.Key(t, a, "production", "policies:write")
		res := author.Do(t, "POST", "/compliance/impact-preview", question).Want(200)
		res.Into(&got)
		if got.Evaluated != 41 || got.NewlyBlocked != 5 || len(got.Samples) != 0 || len(got.BySubject) != 0 || strings.Contains(string(res.Body), "/invoices/") {
			t.Errorf("the preview without audit:read = %s, want figures only", res.Body)
		}
		figuresOnly(t, a, author, policy)
		made := a.Do(t, "POST", fmt.Sprintf("/policies/%d/test-cases/from-decisions", policy), body{"decision_ids": []string{id}, "dry_run": true}).Want(200)
		if !strings.Contains(string(made.Body), `"guest"`) || strings.Contains(string(made.Body), "hunter22") || strings.Contains(string(made.Body), "o@corp") {
			t.Errorf("the cases = %s, want the inputs without secrets", made.Body)
		}
		author.Do(t, "POST", fmt.Sprintf("/policies/%d/test-cases/from-decisions", policy), body{"decision_ids": []string{id}}).Want(403)
		why := a.Do(t, "GET", "/decisions/audit/"+id+"/explanation", nil).Want(200)
		if why.Get("available") != true || !strings.Contains(string(why.Body), "clerk") {
			t.Errorf("the explanation = %s, want the missing role", why.Body)
		}
		entry := a.Do(t, "GET", "/decisions/audit?environment=production&limit=100", nil).Want(200)
		if strings.Contains(string(entry.Body), `"input"`) {
			t.Errorf("the audit entry has an input: %s", entry.Body)
		}
	}
}

// figuresOnly checks that an author gets only figures of a run, whoever started it and whatever the
// candidate's reason shows.
func figuresOnly(t *testing.T, admin, author *apptest.Client, policy int64) {
	t.Helper()
	tells := "package invoices\n\nallow := false\n\nreason := json.marshal(input)\n"
	for _, starter := range []*apptest.Client{author, admin} {
		run := starter.Do(t, "POST", "/compliance/replays", body{"environment": "production", "candidates": []body{{"policy_id": policy, "rego_code": tells}}}).Want(202).ID()
		var full struct {
			Status string                `json:"status"`
			Result apptest.ImpactFigures `json:"result"`
		}
		for full.Status != "completed" {
			admin.Do(t, "GET", fmt.Sprintf("/compliance/replays/%d?wait=5", run), nil).Want(200).Into(&full)
		}
		if len(full.Result.Samples) == 0 || len(full.Result.BySubject) == 0 {
			t.Fatalf("the run has no samples to hide: %+v", full)
		}
		res := author.Do(t, "GET", fmt.Sprintf("/compliance/replays/%d", run), nil).Want(200)
		text := strings.ReplaceAll(string(res.Body), "json.marshal(input)", "")
		if strings.Contains(text, `"eve"`) || strings.Contains(text, "guest") || strings.Contains(text, "/invoices/") || !strings.Contains(text, `"newly_blocked"`) {
			t.Errorf("the run without audit:read = %s, want figures only", res.Body)
		}
	}
}

// TestReplaySetting checks that a tenant sets how much is kept, that a resource at audit level none
// keeps nothing, and that wrong values are refused with their place.
func TestReplaySetting(t *testing.T) {
	t.Parallel()
	s := apptest.StartServer(t, dbtest.SQLite)
	a := s.Admin
	set := func(v any, want int) *apptest.Response {
		return a.Do(t, "PUT", "/tenants/default", body{"settings": body{"replay": v}}).Want(want)
	}
	for _, bad := range []any{"on", "24", 0, -1, 721, 1.5, true, body{"hours": 0}, body{"hour": 3}, body{"decisions": 100_001}, body{"size_mib": "1"}, []any{1}} {
		if text := string(set(bad, 422).Body); !strings.Contains(text, "/settings/replay") {
			t.Errorf("PUT of the setting %v = %s, want its pointer", bad, text)
		}
	}
	for _, good := range []any{"off", 1, 720, body{}, body{"hours": 2, "decisions": 7, "size_mib": 1}} {
		set(good, 200)
	}
	none := a.Do(t, "POST", "/resources", body{"name": "secrets", "type": "api", "path": "/none/**", "environment": "production"}).Want(201).ID()
	a.Do(t, "PUT", fmt.Sprintf("/resources/%d/enrich", none), body{"audit_level": "none"}).Want(200)
	ask := func(path string) {
		a.Do(t, "POST", "/decisions/evaluate", body{"user": body{"id": "ada"}, "action": body{"name": "read"}, "resource": body{"type": "api", "path": path}}).Want(200)
	}
	evaluated := func(want int64) {
		t.Helper()
		apptest.Eventually(t, 30*time.Second, func() error {
			res := a.Do(t, "POST", "/compliance/impact-preview", body{"environment": "production"}).Want(200)
			var got apptest.ImpactFigures
			if err := json.Unmarshal(res.Body, &got); err != nil || got.Evaluated != want {
				return fmt.Errorf("the preview replays %d decisions, want %d: %s", got.Evaluated, want, res.Body)
			}
			return nil
		})
	}
	for range 9 {
		ask("/some/1")
		ask("/none/1")
	}
	evaluated(7) // of nine, seven are kept
	set("off", 200)
	ask("/some/2")
	evaluated(0)
}
