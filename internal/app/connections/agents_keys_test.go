package connections_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/gatehouse-dev/gatehouse/internal/app/apptest"
)

// TestAgentKeys checks that the key of an AI agent is valid only for decisions about that agent,
// until it is replaced or revoked, or the agent is inactive or deleted.
func TestAgentKeys(t *testing.T) {
	each(t, func(t *testing.T, s *apptest.Server) {
		a := s.Admin
		apptest.Activate(t, a, "support agents", "production", `package agents

allow if {
	input.user.type == "agent"
	input.user.attributes.team == "support"
}
`, nil)
		mine := a.Do(t, "POST", "/ai-agents", body{"name": "support bot", "type": "chatbot", "attributes": body{"team": "support"}}).Want(201).ID()
		other := a.Do(t, "POST", "/ai-agents", body{"name": "other bot", "type": "chatbot"}).Want(201).ID()
		path, subject := fmt.Sprintf("/ai-agents/%d", mine), fmt.Sprintf("agent:%d", mine)
		issued := []string{}
		issue := func(grace int) *apptest.Client {
			t.Helper()
			res := a.Do(t, "POST", path+"/keys", body{"grace_seconds": grace}).Want(201)
			key := res.Text("key")
			if !strings.HasPrefix(key, "gh_agent_") {
				t.Fatalf("the answer has no key: %s", res.Body)
			}
			issued = append(issued, key)
			return keyed(a, key)
		}
		ask := func(c *apptest.Client, user any) *apptest.Response {
			t.Helper()
			return c.Do(t, "POST", "/decisions/evaluate", asked(user))
		}
		works := func(c *apptest.Client) {
			t.Helper()
			if res := ask(c, nil).Want(200); res.Get("decision") != "PERMIT" {
				t.Errorf("the decision with the agent's key = %s, want PERMIT", res.Body)
			}
		}
		bot := issue(0)
		works(bot)
		for _, own := range []any{body{"id": subject}, body{"id": subject, "type": "agent"}, body{"type": "agent"}, body{}} {
			if res := ask(bot, own).Want(200); res.Get("decision") != "PERMIT" {
				t.Errorf("the decision for %v = %s, want PERMIT", own, res.Body)
			}
		}
		// It speaks for nobody else, and gives itself nothing.
		checkStrangers := []any{
			body{"id": fmt.Sprintf("agent:%d", other)},
			body{"id": "admin"},
			body{"id": mine},
			body{"id": subject, "type": "user"},
			body{"id": subject, "act": body{"sub": "agent:7"}},
			body{"id": subject, "attributes": body{"team": "support"}},
			body{"id": subject, "roles": []string{"admin"}},
		}
		count := func() any { return a.Do(t, "GET", "/decisions/audit?limit=1", nil).Want(200).Get("total") }
		before := count()
		for _, user := range checkStrangers {
			ask(bot, user).Want(403)
			bot.Do(t, "POST", "/decisions/evaluate/bulk", body{"decisions": []any{asked(nil), asked(user)}}).Want(403)
		}
		if after := count(); after != before {
			t.Errorf("the log has %v decisions before and %v after refused requests, want the same", before, after)
		}
		if res := bot.Do(t, "POST", "/decisions/evaluate/bulk", body{"decisions": []any{asked(nil), asked(body{"id": subject})}}).Want(200); strings.Count(string(res.Body), `"PERMIT"`) != 2 {
			t.Errorf("the bulk decision = %s, want PERMIT twice", res.Body)
		}
		agentsInAuthZEN(t, s, bot, mine, other)
		for _, call := range [][2]string{
			{"GET", "/ai-agents"}, {"GET", path + "/keys"}, {"POST", path + "/keys"}, {"DELETE", path + "/keys"}, {"GET", "/policies"}, {"GET", "/decisions/audit"}, {"GET", "/auth/me"},
		} {
			bot.Do(t, call[0], call[1], nil).Want(403)
		}

		// The old key works beside the new one while it is allowed to.
		second := issue(3600)
		works(bot)
		works(second)
		list := a.Do(t, "GET", path+"/keys", nil).Want(200)
		if keys, _ := list.Get("keys").([]any); len(keys) != 2 || strings.Contains(string(list.Body), issued[0]) {
			t.Errorf("the list of keys = %s, want two without the key", list.Body)
		}
		third := issue(0)
		works(third)
		ask(bot, nil).Want(401)
		ask(second, nil).Want(401)

		// Of two replacements at once without overlap, one key is left.
		made := make([]*apptest.Response, 2)
		var wait sync.WaitGroup
		for i := range made {
			wait.Go(func() { made[i] = a.Do(t, "POST", path+"/keys", body{}) })
		}
		wait.Wait()
		left := 0
		var last *apptest.Client
		for _, res := range made {
			key := res.Want(201).Text("key")
			issued = append(issued, key)
			if c := keyed(a, key); ask(c, nil).Status == 200 {
				left, last = left+1, c
			}
		}
		if left != 1 {
			t.Fatalf("%d keys of two parallel replacements are valid, want 1", left)
		}
		ask(third, nil).Want(401)

		a.Do(t, "PUT", path, body{"status": "inactive"}).Want(200)
		ask(last, nil).Want(401)
		a.Do(t, "PUT", path, body{"status": "active"}).Want(200)
		works(last)

		a.Do(t, "POST", "/tenants", body{"name": "Elsewhere"}).Want(201)
		foreign := a.With("X-Tenant-ID", "elsewhere")
		for _, method := range []string{"GET", "POST", "DELETE"} {
			foreign.Do(t, method, path+"/keys", body{}).Want(404)
		}
		works(last)
		last.With("X-Tenant-ID", "elsewhere").Do(t, "POST", "/decisions/evaluate", asked(nil)).Want(403)

		a.Do(t, "DELETE", path+"/keys", nil).Want(200)
		ask(last, nil).Want(401)
		final := issue(0)
		works(final)
		a.Do(t, "DELETE", path, nil).Want(200)
		ask(final, nil).Want(401)
		a.Do(t, "POST", path+"/keys", body{}).Want(404)

		log := string(a.Do(t, "GET", "/audit/events?limit=1000", nil).Want(200).Body)
		for _, kind := range []string{"AGENT_KEY_CREATED", "AGENT_KEYS_REVOKED"} {
			if !strings.Contains(log, kind) {
				t.Errorf("the audit lacks %s", kind)
			}
		}
		for _, key := range issued {
			if strings.Contains(log, key) {
				t.Error("the audit has a key in clear")
			}
		}
	})
}

// keyed returns the client with an API key.
func keyed(c *apptest.Client, key string) *apptest.Client {
	own := *c
	own.Bearer, own.APIKey = "", key
	return &own
}

func asked(user any) body {
	out := body{"resource": body{"type": "api", "path": "/x"}, "action": body{"name": "read"}}
	if user != nil {
		out["user"] = user
	}
	return out
}

// agentsInAuthZEN checks the same limits in AuthZEN.
func agentsInAuthZEN(t *testing.T, s *apptest.Server, bot *apptest.Client, mine, other int64) {
	t.Helper()
	az := *bot
	az.Base = s.URL
	question := func(kind, id string) body {
		return body{"subject": body{"type": kind, "id": id}, "resource": body{"type": "api", "id": "x"}, "action": body{"name": "read"}}
	}
	own := question("agent", fmt.Sprint(mine))
	if res := az.Do(t, "POST", "/access/v1/evaluation", own).Want(200); res.Get("decision") != true {
		t.Errorf("the evaluation of AuthZEN = %s, want true", res.Body)
	}
	if res := az.Do(t, "POST", "/access/v1/evaluations", body{"evaluations": []any{own, own}}).Want(200); strings.Count(string(res.Body), "true") != 2 {
		t.Errorf("the evaluations of AuthZEN = %s, want true twice", res.Body)
	}
	for _, stranger := range []body{question("agent", fmt.Sprint(other)), question("user", "admin"), question("user", fmt.Sprintf("agent:%d", mine)), question("robot", fmt.Sprintf("agent:%d", mine))} {
		az.Do(t, "POST", "/access/v1/evaluation", stranger).Want(403)
		az.Do(t, "POST", "/access/v1/evaluations", body{"evaluations": []any{own, stranger}}).Want(403)
	}
	az.Do(t, "POST", "/access/v1/search/action", own).Want(403)
}
