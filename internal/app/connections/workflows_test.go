package connections_test

import (
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/app/apptest"
	"github.com/gatehouse-dev/gatehouse/internal/outbound"
)

// callback is the address and token with which a system answers.
type callback struct{ path, tenant, token string }

// callbackOf reads the callback of a message, and checks that it leads to this server.
func callbackOf(t *testing.T, s *apptest.Server, c call) callback {
	t.Helper()
	back, _ := c.Data["callback"].(map[string]any)
	u, err := url.Parse(fmt.Sprint(back["url"]))
	if err != nil || !strings.HasPrefix(u.Path, "/api/v1/integrations/") {
		t.Fatalf("the message %s has no callback to this server", c.Raw)
	}
	return callback{strings.TrimPrefix(u.Path, "/api/v1") + "?" + u.RawQuery, u.Query().Get("tenant_id"), fmt.Sprint(back["token"])}
}

// TestWorkflow checks that an action of a control starts a workflow, which answers without a
// credential, and that operators see the run and others do not.
func TestWorkflow(t *testing.T) {
	each(t, func(t *testing.T, s *apptest.Server) {
		a, engine := s.Admin, newReceiver(t)
		const key = "key-of-the-engine-19c"
		flow := a.Do(t, "POST", "/integrations", body{"name": "flow", "kind": "workflow", "endpoint": engine.URL + "/start", "credential": key, "settings": body{"answer_within": "1h"}}).Want(201).ID()
		path := fmt.Sprintf("/integrations/%d", flow)
		a.Do(t, "POST", "/policies", body{"name": "never", "status": "active", "rego_code": "package p\n\ndeny contains \"never\"", "actions": []body{
			{"type": "workflow", "destination_ref": fmt.Sprintf("integration:%d", flow), "trigger": "on_deny", "payload": body{"message": "{{user.id}}: {{reason}}"}},
		}}).Want(201)
		a.Do(t, "POST", "/decisions/evaluate?environment=sandbox", body{"user": body{"id": "bob", "password": "hunter2"}, "resource": body{"type": "api", "path": "/payments"}}).Want(200)
		message := engine.waitFor(t, "/start", "control.action")
		if !outbound.SignatureValid([]byte(key), []byte(message.Raw), message.Header.Get("X-Service-Signature")) || strings.Contains(message.Raw, "hunter2") || message.Data["message"] != "bob: never" {
			t.Errorf("the engine got %s, want a signed message without the secret", message.Raw)
		}
		apptest.Eventually(t, time.Minute, func() error {
			if page := a.Do(t, "GET", path+"/runs?status=running", nil).Want(200); page.Get("total") != 1.0 {
				return fmt.Errorf("the runs are %s, want one", page.Body)
			}
			return nil
		})

		back, nobody := callbackOf(t, s, message), s.Anonymous()
		answer := body{"token": back.token, "status": "succeeded", "message": "ticket 17", "answered_by": "ops-bot"}
		code := func(c *apptest.Client, path string, doc body, status int, want string) {
			t.Helper()
			if got := c.Do(t, "POST", path, doc).Want(status).Get("error"); got != want {
				t.Errorf("the error is %v, want %s", got, want)
			}
		}
		a.Do(t, "POST", "/tenants", body{"name": "Other"}).Want(201)
		code(nobody, strings.Replace(back.path, "tenant_id=default", "tenant_id=other", 1), answer, 401, "invalid_callback")
		code(nobody, strings.Replace(back.path, "tenant_id=default", "tenant_id=nobody", 1), answer, 401, "invalid_callback")
		code(nobody, back.path, body{"token": "gh_callback_guess", "status": "succeeded"}, 401, "invalid_callback")
		code(nobody, back.path, body{"token": back.token, "status": "running"}, 422, "validation_failed")
		if got := nobody.Do(t, "POST", back.path, answer).Want(200); got.Get("status") != "succeeded" {
			t.Errorf("the answer = %s, want the run succeeded", got.Body)
		}
		code(nobody, back.path, answer, 409, "already_answered")

		runs := a.Do(t, "GET", path+"/runs", nil).Want(200)
		for _, want := range []string{`"status":"succeeded"`, `"message":"ticket 17"`, `"answered_by":"ops-bot"`, `"summary":"bob: never"`, `"policy_name":"never"`} {
			if !strings.Contains(string(runs.Body), want) {
				t.Errorf("the runs lack %s: %s", want, runs.Body)
			}
		}
		log := string(a.Do(t, "GET", "/audit/events?limit=1000", nil).Want(200).Body)
		for _, text := range []string{log, string(runs.Body), s.Log.String()} {
			if strings.Contains(text, back.token) || strings.Contains(text, key) {
				t.Error("an answer shows a secret")
			}
		}
		if !strings.Contains(log, "INTEGRATION_RUN_STARTED") || !strings.Contains(log, "INTEGRATION_RUN_ENDED") {
			t.Error("the audit lacks the run")
		}
		nobody.Do(t, "GET", path+"/runs", nil).Want(401)
		s.Key(t, a, "sandbox", "decisions:read").Do(t, "GET", path+"/runs", nil).Want(403)
		a.With("X-Tenant-ID", "other").Do(t, "GET", path+"/runs", nil).Want(404)
	})
}
