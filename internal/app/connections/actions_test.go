package connections_test

import (
	"fmt"
	"maps"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/app/apptest"
)

// TestActions checks that a control tells a channel about its denials, as its author, the receiver
// and the auditor see it.
func TestActions(t *testing.T) {
	each(t, func(t *testing.T, s *apptest.Server) {
		a, r := s.Admin, newReceiver(t)
		channel := a.Do(t, "POST", "/notifications/channels", body{"name": "on call", "type": "webhook", "endpoint": r.URL + "/hook"}).Want(201).ID()
		abroad := a.Do(t, "POST", "/notifications/channels", body{"name": "production", "type": "webhook", "endpoint": r.URL, "environment": "production"}).Want(201).ID()
		a.Do(t, "POST", "/tenants", body{"name": "Other"}).Want(201)
		other := a.With("X-Tenant-ID", "other")
		for range 3 {
			other.Do(t, "POST", "/notifications/channels", body{"name": fmt.Sprint("theirs ", time.Now().UnixNano()), "type": "webhook", "endpoint": r.URL}).Want(201)
		}
		action := func(more body) body {
			act := body{"type": "notification", "destination_ref": fmt.Sprintf("channel:%d", channel), "trigger": "on_deny"}
			maps.Copy(act, more)
			return act
		}
		draft := func(actions ...body) body {
			return body{"name": "owners only", "status": "active", "rego_code": "package p\n\ndeny contains sprintf(\"%s is no owner\", [input.user.id]) if input.user.id != \"ada\"\n\nallow if input.user.id == \"ada\"", "actions": actions}
		}
		// What is wrong is said, and where.
		for pointer, wrong := range map[string]body{
			"/actions/1/destination_ref":  action(body{"destination_ref": fmt.Sprintf("channel:%d", abroad)}),
			"/actions/1/payload/message":  action(body{"payload": body{"message": "{{input.password}}"}}),
			"/actions/1/trigger":          action(body{"trigger": "on_monday"}),
			"/actions/1/type":             action(body{"type": "pigeon"}),
			"/actions/1/payload/severity": action(body{"payload": body{"severity": "loud"}}),
		} {
			if res := a.Do(t, "POST", "/policies", draft(action(nil), wrong)).Want(422); !strings.Contains(string(res.Body), `"`+pointer+`"`) {
				t.Errorf("POST /policies with a wrong action = %[2]s, want the pointer %[1]s", pointer, res.Body)
			}
		}
		for _, ref := range []string{"channel:3", "channel:4", "channel:5", "channel:999999999999999999", "integration:1"} { // of the other tenant, or of nobody
			if res := a.Do(t, "POST", "/policies", draft(action(body{"destination_ref": ref}))).Want(422); !strings.Contains(string(res.Body), `"/actions/0/destination_ref"`) {
				t.Errorf("POST /policies with the destination %s = %s, want the pointer /actions/0/destination_ref", ref, res.Body)
			}
		}

		made := a.Do(t, "POST", "/policies", draft(action(body{"payload": body{"message": "{{user.id}} at {{resource.path}}: {{reason}}", "severity": "error"}}))).Want(201)
		evaluate := func(user string) {
			a.Do(t, "POST", "/decisions/evaluate?environment=sandbox", body{
				"user": body{"id": user, "password": "hunter2-of-" + user}, "resource": body{"type": "api", "path": "/payments"}, "action": body{"name": "read"},
			}).Want(200)
		}
		evaluate("ada")
		evaluate("bob")
		var message call
		apptest.Eventually(t, time.Minute, func() error {
			r.mu.Lock()
			defer r.mu.Unlock()
			for _, c := range r.calls {
				if strings.Contains(c.Raw, `"alert":"control_action"`) {
					message = c
					return nil
				}
			}
			return fmt.Errorf("the channel has got %d calls, none with the denial", len(r.calls))
		})
		for _, want := range []string{"bob at /payments: bob is no owner", `"severity":"error"`, "owners only: DENY", `"environment":"sandbox"`, "/decisions/"} {
			if !strings.Contains(message.Raw, want) {
				t.Errorf("the message lacks %s: %s", want, message.Raw)
			}
		}
		list := a.Do(t, "GET", "/notifications/deliveries?alert=control_action", nil).Want(200)
		if list.Get("total") != 1.0 || strings.Contains(string(list.Body), "hunter2") {
			t.Errorf("GET /notifications/deliveries = %s, want one delivery without the secret", list.Body)
		}

		// Actions are a part of each version.
		path := fmt.Sprintf("/policies/%d", made.ID())
		a.Do(t, "PUT", path, body{"actions": []body{}}).Want(200)
		if v := a.Do(t, "GET", path+"/versions", nil).Want(200); strings.Count(string(v.Body), `"destination_ref"`) != 1 {
			t.Errorf("the versions of the control = %s, want one with the action", v.Body)
		}
		a.Do(t, "PUT", path, body{"actions": []body{action(nil)}}).Want(200)
		r.set(func(w http.ResponseWriter, _ call) { w.WriteHeader(http.StatusNoContent) })

		// Production has no such channel: the promotion says so.
		promoted := a.Do(t, "POST", path+"/promote", body{}).Want(200)
		if !strings.Contains(string(promoted.Body), `"actions_left_out"`) {
			t.Errorf("the promotion = %s, want actions_left_out", promoted.Body)
		}
		if got := a.Do(t, "GET", path+"?environment=production", nil).Want(200); strings.Contains(string(got.Body), "destination_ref") {
			t.Errorf("the control in production = %s, want no action", got.Body)
		}
		a.Do(t, "PUT", path+"?environment=production", body{"actions": []body{action(body{"destination_ref": fmt.Sprintf("channel:%d", abroad)})}}).Want(200)
	})
}
