package gateways_test

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/app/apptest"
)

// TestStoppedAgents checks that an agent that is deactivated or removed is refused at a bouncer and at the
// server alike: as the subject and among those who act for a person, whatever the controls say.
func TestStoppedAgents(t *testing.T) {
	t.Parallel()
	apptest.Each(t, func(t *testing.T, s *apptest.Server) {
		a, is := s.Admin, apptest.NewIssuer(t)
		app := apptest.NewBackend(t, func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/mcp" {
				w.Header().Set("Content-Type", "application/json")
				fmt.Fprint(w, `{"jsonrpc":"2.0","id":1,"result":{}}`)
				return
			}
			fmt.Fprint(w, "reached")
		})
		agents := map[string]int64{}
		for _, name := range []string{"bot", "other"} {
			agents[name] = a.Do(t, "POST", "/ai-agents", body{"name": name, "type": "llm"}).Want(201).ID()
		}
		bot, other := fmt.Sprint("agent:", agents["bot"]), fmt.Sprint("agent:", agents["other"])
		resource := a.Do(t, "POST", "/resources", body{"name": "app", "type": "api", "path": "/app/**", "environment": "sandbox"}).Want(201).ID()
		a.Do(t, "PUT", fmt.Sprintf("/resources/%d/enrich", resource), body{"audit_level": "comprehensive"}).Want(200)
		apptest.Activate(t, a, "open", "sandbox", opened, body{"resource_id": resource})
		tools := a.Do(t, "POST", "/resources", body{"name": "tools", "type": "mcp", "path": "/mcp", "environment": "sandbox"}).Want(201).ID()
		apptest.Activate(t, a, "tools", "sandbox", "package tools\n\nallow if input.mcp.tool == \"search\"\n", body{"resource_id": tools})
		apptest.Enforce(t, a, "sandbox")
		strict := s.Bouncer(t, a, body{"name": "strict", "environment": "sandbox", "resource_ids": []int64{resource, tools}, "configuration": body{"identity": is.Identity()}}, app.Addr)
		lenient := s.Bouncer(t, a, body{"name": "lenient", "environment": "sandbox", "resource_ids": []int64{resource}, "configuration": body{"identity": is.Identity(), "enforcement_mode": "shadow"}}, app.Addr)
		act := func(subs ...string) body {
			var chain body
			for _, sub := range slices.Backward(subs) {
				next := body{"sub": sub}
				if chain != nil {
					next["act"] = chain
				}
				chain = next
			}
			return chain
		}
		type asker struct {
			user string
			act  body
		}
		through := func(b *apptest.BouncerProcess, who asker, path, id string) *apptest.Response {
			t.Helper()
			claims := map[string]any{}
			if who.act != nil {
				claims["act"] = who.act
			}
			return (&apptest.Client{Base: b.URL}).With("Authorization", "Bearer "+is.With(t, who.user, claims)).With("X-Request-Id", id).Do(t, "GET", path, nil)
		}
		atServer := func(who asker) *apptest.Response {
			t.Helper()
			user := body{"id": who.user}
			if who.act != nil {
				user["act"] = who.act
			}
			return a.Do(t, "POST", "/decisions/evaluate", body{"environment": "sandbox", "user": user, "resource": body{"type": "api", "path": "/app/x"}, "action": body{"name": "read"}}).Want(200)
		}
		askers := map[string]asker{
			"the agent": {bot, nil}, "the agent for ann": {"ann", act(bot)}, "an actor before": {"ann", act("desk", other, bot)}, "a long chain": {"ann", act("a", "b", "c", "d", "e", "f", "g", bot)},
			"another spelling": {strings.ToUpper(bot[:5]) + ":00" + bot[6:], nil}, "the agent for an agent": {other, act(bot)},
		}
		free := map[string]asker{
			"ann": {"ann", nil}, "another agent": {other, nil}, "another agent for ann": {"ann", act(other, "desk")}, "no agent of the tenant": {"agent:987654", nil},
			"a client": {"ann", act("desk")}, "a number alone": {fmt.Sprint(agents["bot"]), nil}, "half an id": {"agent:", nil},
		}
		// Checks that the bouncers and the server agree on all of them.
		check := func(phase string, stopped bool) {
			t.Helper()
			for name, who := range askers {
				id := strings.ReplaceAll(phase+"-"+name, " ", "-")
				got, shadow, said := through(strict, who, "/app/x", id), through(lenient, who, "/app/x", "shadow-"+id), atServer(who)
				if !stopped {
					if got.Status != 200 || shadow.Status != 200 || said.Get("decision") != "PERMIT" {
						t.Errorf("%s, %s: the bouncer answered %d, in shadow mode %d, and the server %s, want all to permit", phase, name, got.Status, shadow.Status, said.Body)
					}
					continue
				}
				reason := said.Text("reason")
				if got.Status != 403 || got.Get("error") != "access_denied" || said.Get("decision") != "DENY" || !strings.Contains(reason, bot+" is not active") || got.Get("message") != reason {
					t.Errorf("%s, %s: the bouncer answered %d %s and the server %s, want both to refuse the agent with the same reason", phase, name, got.Status, got.Body, said.Body)
				}
				if shadow.Status != 200 || string(shadow.Body) != "reached" {
					t.Errorf("%s, %s: in shadow mode the bouncer answered %d %s, want the answer of the application", phase, name, shadow.Status, shadow.Body)
				}
				if res := through(strict, who, "/elsewhere", id+"-free"); res.Status != 403 {
					t.Errorf("%s, %s: where no control is in scope the bouncer answered %d %s, want 403", phase, name, res.Status, res.Body)
				}
			}
			for name, who := range free {
				id := strings.ReplaceAll(phase+"-"+name, " ", "-")
				if got, said := through(strict, who, "/app/x", id), atServer(who); got.Status != 200 || said.Get("decision") != "PERMIT" {
					t.Errorf("%s, %s: the bouncer answered %d %s and the server %s, want both to permit", phase, name, got.Status, got.Body, said.Body)
				}
			}
		}
		until := func(status int) {
			t.Helper()
			apptest.Eventually(t, 20*time.Second, func() error {
				if res := through(strict, askers["the agent"], "/app/x", "wait"); res.Status != status {
					return fmt.Errorf("the bouncer answers %d %s, want %d", res.Status, res.Body, status)
				}
				return nil
			})
		}
		revision := func() any {
			t.Helper()
			for _, b := range a.Do(t, "GET", "/deployments/revisions/sandbox", nil).Want(200).Get("bouncers").([]any) {
				if m := b.(map[string]any); m["name"] == "strict" {
					return m["revision"]
				}
			}
			t.Fatal("the bouncer has no revision")
			return nil
		}
		path := fmt.Sprint("/ai-agents/", agents["bot"])
		check("active", false)

		before := revision()
		a.Do(t, "PUT", path, body{"name": "renamed", "model": "m", "attributes": body{"x": 1}}).Want(200)
		a.Do(t, "POST", "/ai-agents", body{"name": "third", "type": "rag"}).Want(201)
		a.Do(t, "PUT", path, body{"status": "inactive"}).Want(200)
		until(403)
		if after := revision(); after != before.(float64)+1 {
			t.Errorf("the revision went from %v to %v, want only the change of the status to give a new one", before, after)
		}
		apptest.Eventually(t, 20*time.Second, func() error {
			for _, e := range apptest.DecisionLog(t, a, "sandbox") {
				if e.RequestID == "shadow-wait" && e.Effect == "SHADOW_WOULD_DENY" {
					return nil
				}
			}
			through(lenient, askers["the agent"], "/app/x", "shadow-wait")
			return fmt.Errorf("the bouncer in shadow mode has not refused the agent")
		})
		check("inactive", true)
		checkOtherDoors(t, s, agents["bot"])
		ping := (&apptest.Client{Base: strict.URL}).With("Accept", "application/json, text/event-stream")
		for user, refused := range map[string]bool{bot: true, other: false} {
			res := ping.With("Authorization", "Bearer "+is.Token(t, user)).Do(t, "POST", "/mcp", body{"jsonrpc": "2.0", "id": 1, "method": "ping"})
			if _, denied := res.Get("error").(map[string]any); denied != refused {
				t.Errorf("a ping of %s = %d %s, want it refused: %v", user, res.Status, res.Body, refused)
			}
		}
		apptest.Eventually(t, 20*time.Second, func() error {
			log := apptest.ByRequest(apptest.DecisionLog(t, a, "sandbox"))
			for id, effect := range map[string]string{"inactive-the-agent": "DENY", "shadow-inactive-the-agent-for-ann": "SHADOW_WOULD_DENY", "inactive-a-long-chain-free": "DENY"} {
				if e := log[id]; len(e) != 1 || e[0].Effect != effect || !strings.Contains(e[0].Reason, bot+" is not active") || e[0].PolicyID != 0 || e[0].Error != "" {
					return fmt.Errorf("the log has %+v for %s, want one entry with %s that says why", e, id, effect)
				}
			}
			return nil
		})

		// A restart without the server keeps what the last bundle said.
		strict.Stop()
		strict.StartDetached(t, "http://127.0.0.1:1", app.Addr)
		check("detached", true)
		strict.Stop()
		strict.StartDetached(t, s.URL, app.Addr)

		a.Do(t, "PUT", path, body{"status": "active"}).Want(200)
		until(200)
		a.Do(t, "DELETE", path, nil).Want(200)
		until(403)
		check("removed", true)
	})
}

const opened = "package opened\n\nallow := true\n"

// checkOtherDoors checks that each API of the server refuses an inactive agent: AuthZEN, bulk calls and
// OPA's protocol.
func checkOtherDoors(t *testing.T, s *apptest.Server, id int64) {
	t.Helper()
	az, subject := *s.Admin, fmt.Sprint("agent:", id)
	az.Base = s.URL
	sandbox := az.With("X-Environment", "sandbox")
	thing, read := body{"type": "api", "path": "/app/x"}, body{"name": "read"}
	for name, who := range map[string]body{
		"the agent": {"type": "agent", "id": fmt.Sprint(id)}, "the agent for ann": {"type": "user", "id": "ann", "properties": body{"act": body{"sub": subject}}}, "ann": {"type": "user", "id": "ann"},
	} {
		res := sandbox.Do(t, "POST", "/access/v1/evaluation", body{"subject": who, "resource": body{"type": "api", "id": "app"}, "action": read}).Want(200)
		if res.Get("decision") != (name == "ann") {
			t.Errorf("AuthZEN about %s = %s, want only ann permitted", name, res.Body)
		}
	}
	one := body{"user": body{"id": "ann", "act": body{"sub": "x", "act": body{"sub": subject}}}, "resource": thing, "action": read}
	bulk := s.Admin.Do(t, "POST", "/decisions/evaluate/bulk?environment=sandbox", body{"decisions": []body{one, {"user": body{"id": "ann"}, "resource": thing, "action": read}}}).Want(200)
	if list, _ := bulk.Get("results").([]any); len(list) != 2 || list[0].(map[string]any)["decision"] != "DENY" || list[1].(map[string]any)["decision"] != "PERMIT" {
		t.Errorf("a bulk call = %s, want the first decision refused and the second permitted", bulk.Body)
	}
	if res := sandbox.Do(t, "POST", "/v1/data/gatehouse/decision", body{"input": one}).Want(200); res.Get("result", "decision") != "DENY" || !strings.Contains(res.Text("result", "reason"), subject+" is not active") {
		t.Errorf("OPA's protocol = %s, want it refused", res.Body)
	}
}

// TestAgentClients checks that a token that was issued to the OAuth client of an agent is the agent's, at
// a bouncer and at the server: its requests are counted for the agent, and refused while the agent
// is inactive and after it is removed.
func TestAgentClients(t *testing.T) {
	t.Parallel()
	apptest.Each(t, func(t *testing.T, s *apptest.Server) {
		a, is, app := s.Admin, apptest.NewIssuer(t), apptest.NewBackend(t, nil)
		made := a.Do(t, "POST", "/ai-agents", body{"name": "desk", "type": "llm", "oauth_client_ids": []string{"desk-client", "https://desk.example/client.json"}}).Want(201)
		path, subject := fmt.Sprint("/ai-agents/", made.ID()), fmt.Sprint("agent:", made.ID())
		if list, _ := a.Do(t, "GET", path, nil).Want(200).Get("oauth_client_ids").([]any); len(list) != 2 || list[0] != "desk-client" {
			t.Errorf("the agent has the clients %v, want both", list)
		}
		res := a.Do(t, "POST", "/ai-agents", body{"name": "copy", "type": "llm", "oauth_client_ids": []string{"x", "desk-client"}}).Want(422)
		if !strings.Contains(string(res.Body), `"/oauth_client_ids/1"`) {
			t.Errorf("a second agent with the same client = %s, want the pointer /oauth_client_ids/1", res.Body)
		}
		a.Do(t, "POST", "/ai-agents", body{"name": "many", "type": "llm", "oauth_client_ids": make([]string, 11)}).Want(422)
		resource := a.Do(t, "POST", "/resources", body{"name": "app", "type": "api", "path": "/app/**", "environment": "sandbox"}).Want(201).ID()
		apptest.Activate(t, a, "open", "sandbox", opened, body{"resource_id": resource})
		apptest.Enforce(t, a, "sandbox")
		b := s.Bouncer(t, a, body{"name": "edge", "environment": "sandbox", "resource_ids": []int64{resource}, "configuration": body{"identity": is.Identity()}}, app.Addr)
		askers := map[string]body{ // claims, and whether they are the agent's
			"client_id": {"client_id": "desk-client"}, "azp": {"azp": "https://desk.example/client.json"}, "act": {"act": body{"sub": "desk-client"}}, "sub": {"sub": "desk-client", "client_id": "desk-client"},
			"free": {"client_id": "portal", "azp": "portal"},
		}
		ask := func(claims body, id string) (status int, decision any, same bool) {
			t.Helper()
			got := (&apptest.Client{Base: b.URL}).With("Authorization", "Bearer "+is.With(t, "ann", claims)).With("X-Request-Id", id).Do(t, "GET", "/app/x", nil)
			user := body{"id": "ann", "attributes": claims}
			if sub, ok := claims["sub"]; ok {
				user["id"] = sub
			}
			if act, ok := claims["act"]; ok {
				user["act"] = act
			}
			said := a.Do(t, "POST", "/decisions/evaluate", body{"environment": "sandbox", "user": user, "resource": body{"type": "api", "path": "/app/x"}, "action": body{"name": "read"}}).Want(200)
			same = got.Status != 403 || got.Get("message") == said.Get("reason")
			return got.Status, said.Get("decision"), same
		}
		check := func(phase string, refused bool) {
			t.Helper()
			for name, claims := range askers {
				want, wanted := 200, "PERMIT"
				if refused && name != "free" {
					want, wanted = 403, "DENY"
				}
				if status, decision, same := ask(claims, phase+"-"+name); status != want || decision != wanted || !same {
					t.Errorf("%s, %s: the bouncer answered %d and the server %v, with the same reason: %v, want %d and %s", phase, name, status, decision, same, want, wanted)
				}
			}
		}
		check("active", false)
		apptest.Eventually(t, 30*time.Second, func() error { // once by the bouncer and once by the server
			if n := a.Do(t, "GET", path, nil).Want(200).Get("usage", "requests"); n != 8.0 {
				return fmt.Errorf("the agent has %v requests, want 8", n)
			}
			return nil
		})
		until := func(status int) {
			t.Helper()
			apptest.Eventually(t, 20*time.Second, func() error {
				if got, _, _ := ask(askers["azp"], "wait"); got != status {
					return fmt.Errorf("the bouncer answers %d, want %d", got, status)
				}
				return nil
			})
		}
		a.Do(t, "PUT", path, body{"status": "inactive"}).Want(200)
		until(403)
		check("inactive", true)
		a.Do(t, "PUT", path, body{"oauth_client_ids": []string{"desk-client"}}).Want(200)
		until(200) // the other client is nobody's
		a.Do(t, "PUT", path, body{"oauth_client_ids": []string{"desk-client", "https://desk.example/client.json"}}).Want(200)
		until(403)
		a.Do(t, "DELETE", path, nil).Want(200)
		check("removed", true)
		log := string(a.Do(t, "GET", "/decisions/audit?user_id=ann&limit=100&environment=sandbox", nil).Want(200).Body)
		if !strings.Contains(log, `"agent":{"id":"`+subject+`"`) || strings.Contains(log, `"agent":{"id":"portal"`) {
			t.Errorf("the log names other agents than %s: %s", subject, log)
		}
	})
}
