package connections_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/app/apptest"
	"github.com/gatehouse-dev/gatehouse/internal/outbound"
)

// TestIntegrations goes through the life of a SIEM and of an action's webhook, as their owner,
// others and another tenant see them.
func TestIntegrations(t *testing.T) {
	each(t, func(t *testing.T, s *apptest.Server) {
		a, siem, hook := s.Admin, newReceiver(t), newReceiver(t)
		const token, key = "token-of-the-siem-5a1", "key-of-the-hook-77e"
		made := a.Do(t, "POST", "/integrations", body{"name": "siem", "kind": "siem_forwarder", "endpoint": siem.URL + "/ingest", "credential": token, "settings": body{"auth_scheme": "Splunk"}}).Want(201)
		path := fmt.Sprintf("/integrations/%d", made.ID())
		for name, want := range map[string]any{"credential_set": true, "enabled": true, "environment": "", "kind": "siem_forwarder", "credential": nil, "last_success_at": nil} {
			if made.Get(name) != want {
				t.Errorf("the integration's %s is %v, want %v", name, made.Get(name), want)
			}
		}
		a.Do(t, "PUT", path, body{"settings": body{"auth_scheme": "Splunk\r\nX-Admin: 1"}}).Want(422)
		called := a.Do(t, "POST", "/integrations", body{"name": "hook", "kind": "webhook", "endpoint": hook.URL, "credential": key}).Want(201)
		var record body
		a.Do(t, "GET", path, nil).Want(200).Into(&record)
		for _, name := range []string{"last_success_at", "consecutive_failures"} {
			delete(record, name)
		}
		if again := a.Do(t, "PUT", path, record).Want(200); again.Get("updated_at") != made.Get("updated_at") {
			t.Errorf("PUT without a change = %s, want the same updated_at", again.Body)
		}
		var kinds struct {
			Kinds []struct{ Kind string }
		}
		a.Do(t, "GET", "/integrations/kinds", nil).Want(200).Into(&kinds)
		for _, k := range kinds.Kinds {
			want := map[string]float64{"siem_forwarder": 1, "webhook": 1}[k.Kind]
			if page := a.Do(t, "GET", "/integrations?limit=1&kind="+k.Kind, nil).Want(200); page.Get("total") != want {
				t.Errorf("GET /integrations of %s = %s, want %v", k.Kind, page.Body, want)
			}
		}

		// What is wrong is said.
		for pointer, draft := range map[string]body{
			"/kind":                   {"name": "x", "kind": "pigeon", "endpoint": siem.URL},
			"/endpoint":               {"name": "x", "kind": "siem_forwarder", "endpoint": "https://10.0.0.8/"},
			"/settings/start":         {"name": "x", "kind": "siem_forwarder", "endpoint": siem.URL, "settings": body{"start": "yesterday"}},
			"/credential":             {"name": "x", "kind": "webhook", "endpoint": siem.URL},
			"/credential/colour":      {"name": "x", "kind": "siem_forwarder", "endpoint": siem.URL, "credential": body{"colour": "red"}},
			"/credential/hmac_secret": {"name": "x", "kind": "webhook", "endpoint": siem.URL, "credential": body{"hmac_secret": 5}},
			"/name":                   {"name": " ", "kind": "siem_forwarder", "endpoint": siem.URL},
		} {
			if res := a.Do(t, "POST", "/integrations", draft).Want(422); !strings.Contains(string(res.Body), `"`+pointer+`"`) {
				t.Errorf("POST /integrations with a wrong member lacks the pointer %s: %s", pointer, res.Body)
			}
		}
		for _, endpoint := range []string{"https://169.254.169.254/latest", "https://2130706433/", "https://[::1]/", "https://localhost./", "https://user@example.com/", "ftp://example.com/", "https://0x7f.1/", "https://[::ffff:10.0.0.1]/"} {
			for method, at := range map[string]string{"POST": "/integrations", "PUT": path} {
				res := a.Do(t, method, at, body{"name": "x", "kind": "siem_forwarder", "endpoint": endpoint, "credential": token}).Want(422)
				if res.Get("error") != "target_refused" {
					t.Errorf("%s with the endpoint %s = %s, want target_refused", method, endpoint, res.Body)
				}
			}
		}
		a.Do(t, "POST", "/integrations", body{"name": "siem", "kind": "siem_forwarder", "endpoint": siem.URL}).Want(409)
		a.Do(t, "PUT", path, body{"endpoint": newReceiver(t).URL}).ExpectError("another host", 422, "credential_required")
		a.With("If-Match", `"77"`).Do(t, "PUT", path, body{"name": "late"}).Want(412)
		a.With("If-Match", `"77"`).Do(t, "DELETE", path, nil).Want(412)

		// A test shows the real answer.
		for _, at := range []string{path, fmt.Sprintf("/integrations/%d", called.ID())} {
			if res := a.Do(t, "POST", at+"/test", nil).Want(200); res.Get("delivered") != true || res.Get("response_code") != 204.0 {
				t.Errorf("POST %s/test = %s, want it delivered with 204", at, res.Body)
			}
		}
		hook.set(func(w http.ResponseWriter, _ call) { w.WriteHeader(418) })
		if res := a.Do(t, "POST", fmt.Sprintf("/integrations/%d/test", called.ID()), nil).Want(200); res.Get("delivered") != false || res.Get("response_code") != 418.0 {
			t.Errorf("the test of a failing webhook = %s, want a failure with 418", res.Body)
		}
		hook.set(func(w http.ResponseWriter, _ call) { w.WriteHeader(204) })

		// A control calls the webhook, and both logs reach the SIEM.
		action := body{"type": "webhook", "destination_ref": fmt.Sprintf("integration:%d", called.ID()), "trigger": "on_deny", "payload": body{"message": "{{user.id}}: {{reason}}"}}
		control := func(act body) body {
			return body{"name": "never", "status": "active", "rego_code": "package p\n\ndeny contains \"never\"", "actions": []body{act}}
		}
		for _, wrong := range []body{{"destination_ref": fmt.Sprintf("integration:%d", made.ID())}, {"type": "siem_forwarder"}, {"destination_ref": "integration:4711"}} {
			act := body{}
			for _, part := range []body{action, wrong} {
				maps.Copy(act, part)
			}
			if res := a.Do(t, "POST", "/policies", control(act)).Want(422); !strings.Contains(string(res.Body), `"/actions/0/destination_ref"`) {
				t.Errorf("POST /policies with the action %v = %s, want the pointer /actions/0/destination_ref", wrong, res.Body)
			}
		}
		a.Do(t, "POST", "/policies", control(action)).Want(201)
		decided := a.Do(t, "POST", "/decisions/evaluate?environment=sandbox", body{"user": body{"id": "bob", "password": "hunter2"}, "resource": body{"type": "api", "path": "/payments"}}).Want(200)
		var message call
		apptest.Eventually(t, time.Minute, func() error {
			hook.mu.Lock()
			defer hook.mu.Unlock()
			for _, c := range hook.calls {
				if c.Type == "control.action" && c.Data["message"] == "bob: never" {
					message = c
					return nil
				}
			}
			return fmt.Errorf("the webhook has got %d calls, none with the denial", len(hook.calls))
		})
		if !outbound.SignatureValid([]byte(key), []byte(message.Raw), message.Header.Get("X-Service-Signature")) || strings.Contains(message.Raw, "hunter2") {
			t.Errorf("the webhook got %s, want a signed message without the secret", message.Raw)
		}
		apptest.Eventually(t, time.Minute, func() error {
			siem.mu.Lock()
			defer siem.mu.Unlock()
			decision, created := false, false
			for _, c := range siem.calls {
				if c.Header.Get("Authorization") != "Splunk "+token {
					return fmt.Errorf("the SIEM's request is authorised by %q", c.Header.Get("Authorization"))
				}
				for line := range bytes.Lines([]byte(c.Raw)) {
					var l struct {
						Decision struct {
							ID string `json:"decision_id"`
						}
						Event struct{ Type string }
					}
					if err := json.Unmarshal(line, &l); err != nil {
						return err
					}
					decision = decision || l.Decision.ID == decided.Get("decision_id")
					created = created || l.Event.Type == "POLICY_CREATED"
				}
			}
			if !decision || !created {
				return fmt.Errorf("the SIEM has got the decision: %t, the audit entry: %t, want both", decision, created)
			}
			return nil
		})

		// Others: without the permission, in another tenant.
		viewer := s.WithKey(fmt.Sprint(a.Do(t, "POST", "/tenants/default/api-keys", body{"name": "viewer", "scopes": []string{"integrations:read"}}).Want(200, 201).Get("key")))
		viewer.Do(t, "POST", path+"/test", nil).Want(403)
		viewer.Do(t, "DELETE", path, nil).Want(403)
		a.Do(t, "POST", "/tenants", body{"name": "Other"}).Want(201)
		other := a.With("X-Tenant-ID", "other")
		other.Do(t, "GET", path, nil).Want(404)
		other.Do(t, "POST", path+"/test", nil).Want(404)
		other.Do(t, "DELETE", path, nil).Want(404)
		if res := other.Do(t, "GET", "/integrations", nil).Want(200); res.Get("total") != 0.0 {
			t.Errorf("another tenant lists %s, want none", res.Body)
		}

		a.Do(t, "PUT", path, body{"enabled": false}).Want(200)
		a.Do(t, "DELETE", path, nil).Want(200)
		a.Do(t, "GET", path, nil).Want(404)
		log := string(a.Do(t, "GET", "/audit/events?limit=1000", nil).Want(200).Body)
		for _, kind := range []string{"INTEGRATION_CREATED", "INTEGRATION_UPDATED", "INTEGRATION_TESTED", "INTEGRATION_DELETED"} {
			if !strings.Contains(log, kind) {
				t.Errorf("the audit lacks %s", kind)
			}
		}
		for _, clear := range []string{token, key} {
			if strings.Contains(log, clear) || strings.Contains(s.Log.String(), clear) {
				t.Error("the audit or the log has a credential")
			}
		}
	})
}
