package connections_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/gatehouse-dev/gatehouse/internal/app/apptest"
)

// TestAgents checks what an AI agent's owner, another tenant, and decisions see of it.
func TestAgents(t *testing.T) {
	each(t, func(t *testing.T, s *apptest.Server) {
		a := s.Admin
		policy := apptest.Activate(t, a, "agents only", "production", `package agents

allow if {
	input.user.type == "agent"
	input.user.configuration.max_tokens <= 1000
	input.user.attributes.team == "support"
}
`, nil)
		draft := body{
			"name": "support bot", "type": "chatbot", "provider": "openai", "model": "gpt-4o-mini", "policies": []int64{policy},
			"configuration": body{"max_tokens": 500, "temperature": 0.2, "safety_settings": body{"content_filter": true, "prompt_validation": true}},
			"attributes":    body{"team": "support"},
		}
		made := a.Do(t, "POST", "/ai-agents", draft).Want(201)
		path := fmt.Sprintf("/ai-agents/%d", made.ID())
		if made.Get("status") != "active" || made.Get("configuration", "safety_settings", "content_filter") != true {
			t.Errorf("POST /ai-agents = %s, want it active with its configuration", made.Body)
		}
		a.Do(t, "POST", "/ai-agents", draft).Want(409)
		for pointer, wrong := range map[string]body{
			"/policies/0": {"name": "x", "type": "llm", "policies": []int64{987654}}, "/type": {"name": "x", "type": "robot"}, "/name": {"name": " ", "type": "llm"},
		} {
			if res := a.Do(t, "POST", "/ai-agents", wrong).Want(422); !strings.Contains(string(res.Body), `"`+pointer+`"`) {
				t.Errorf("POST /ai-agents of %v = %s, want the pointer %s", wrong, res.Body, pointer)
			}
		}
		a.Do(t, "POST", "/ai-agents", body{"name": "index", "type": "rag"}).Want(201)
		for query, want := range map[string]float64{"": 2, "?agent_type=rag": 1, "?provider=openai": 1, "?agent_type=llm": 0, "?agent_type=rag&provider=openai": 0} {
			if res := a.Do(t, "GET", "/ai-agents"+query, nil).Want(200); res.Get("total") != want {
				t.Errorf("GET /ai-agents%s = %s, want %v agents", query, res.Body, want)
			}
		}

		// Decisions know it, by either API, and hear of a change at once.
		decide := func(want string, access bool) {
			t.Helper()
			res := a.Do(t, "POST", "/decisions/evaluate", body{"user": body{"id": fmt.Sprintf("agent:%d", made.ID())}, "resource": body{"type": "api", "path": "/x"}, "action": body{"name": "read"}}).Want(200)
			if res.Get("decision") != want {
				t.Errorf("the decision = %s, want %s", res.Body, want)
			}
			az := *a
			az.Base = s.URL
			res = az.Do(t, "POST", "/access/v1/evaluation", body{
				"subject": body{"type": "agent", "id": fmt.Sprint(made.ID())}, "resource": body{"type": "api", "id": "x"}, "action": body{"name": "read"},
			}).Want(200)
			if res.Get("decision") != access {
				t.Errorf("the decision = %s, want %v", res.Body, access)
			}
		}
		decide("PERMIT", true)
		a.Do(t, "PUT", path, body{"configuration": body{"max_tokens": 5000}}).Want(200)
		decide("DENY", false)
		a.Do(t, "PUT", path, body{"configuration": body{"max_tokens": 900}}).Want(200)
		decide("PERMIT", true)
		a.Do(t, "PUT", path, body{"status": "inactive"}).Want(200)
		decide("DENY", false)

		// No person has an agent's id or takes its place, now that it is inactive.
		taken := fmt.Sprintf("agent:%d", made.ID())
		for _, name := range []string{taken, "agent:987654", "AGENT:x"} {
			for pointer, person := range map[string]body{
				"/id":       {"id": name, "username": "mallory", "email": "m@example.com", "password": apptest.Password},
				"/username": {"username": name, "email": "m@example.com", "password": apptest.Password},
			} {
				if res := a.Do(t, "POST", "/users", person).Want(422); !strings.Contains(string(res.Body), `"`+pointer+`"`) {
					t.Errorf("POST /users of %v = %s, want the pointer %s", person, res.Body, pointer)
				}
			}
			imported := a.With("Content-Type", "text/csv").Do(t, "POST", "/users/import", []byte("id,username,email\n"+name+",mallory,m@example.com\n"))
			imported.Expect("the import of "+name, 422)
		}

		a.Do(t, "POST", "/tenants", body{"name": "Other"}).Want(201)
		other := a.With("X-Tenant-ID", "other")
		for _, method := range []string{"GET", "PUT", "DELETE"} {
			foreign, never := other.Do(t, method, path, body{}).Want(404), other.Do(t, method, "/ai-agents/987654", body{}).Want(404)
			if foreign.Get("message") != never.Get("message") {
				t.Errorf("%s on another tenant's agent = %s, want %s as for an unknown one", method, foreign.Body, never.Body)
			}
		}
		if res := other.Do(t, "POST", "/ai-agents", body{"name": "x", "type": "llm", "policies": []int64{policy}}).Want(422); !strings.Contains(string(res.Body), "/policies/0") {
			t.Errorf("POST /ai-agents with the other tenant's policy = %s, want the pointer /policies/0", res.Body)
		}
		a.With("If-Match", `"1"`).Do(t, "PUT", path, body{"name": "late"}).Want(412)
		a.Do(t, "DELETE", path, nil).Want(200)
		a.Do(t, "GET", path, nil).Want(404)
		log := string(a.Do(t, "GET", "/audit/events?limit=1000", nil).Want(200).Body)
		for _, kind := range []string{"AI_AGENT_CREATED", "AI_AGENT_UPDATED", "AI_AGENT_DELETED"} {
			if !strings.Contains(log, kind) {
				t.Errorf("the audit lacks %s", kind)
			}
		}
	})
}
