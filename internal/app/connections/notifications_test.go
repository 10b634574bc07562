package connections_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/app/apptest"
	"github.com/gatehouse-dev/gatehouse/internal/outbound"
)

// TestChannels: a notification channel from its making to its end, as its owner, others
// of the tenant and another tenant see it.
func TestChannels(t *testing.T) {
	each(t, func(t *testing.T, s *apptest.Server) {
		a, r := s.Admin, newReceiver(t)
		const secret = "hmac-of-the-channel-9c1"
		made := a.Do(t, "POST", "/notifications/channels", body{
			"name": "on call", "type": "webhook", "endpoint": r.URL + "/hook", "severity_threshold": "warning", "max_attempts": 3,
			"credential": body{"hmac_secret": secret, "bearer_token": "bearer-of-the-channel-77"}, "settings": body{"note": "kept"},
		}).Want(201)
		path := fmt.Sprintf("/notifications/channels/%d", made.ID())
		for name, want := range map[string]any{
			"environment": "sandbox", "credential_set": true, "enabled": true, "max_attempts": 3.0, "severity_threshold": "warning", "credential": nil, "endpoint": r.URL + "/hook",
		} {
			if made.Get(name) != want {
				t.Errorf("%s is %v, want %v", name, made.Get(name), want)
			}
		}
		// What was read can be sent back.
		var record body
		a.Do(t, "GET", path, nil).Want(200).Into(&record)
		if again := a.Do(t, "PUT", path, record).Want(200); again.Get("updated_at") != made.Get("updated_at") {
			t.Errorf("a change of nothing: %s", again.Body)
		}

		// What is wrong is said.
		for pointer, draft := range map[string]body{
			"/type":                   {"name": "x", "type": "pigeon", "endpoint": r.URL},
			"/endpoint":               {"name": "x", "type": "webhook", "endpoint": "http://10.0.0.8/"},
			"/max_attempts":           {"name": "x", "type": "webhook", "endpoint": r.URL, "max_attempts": 11},
			"/severity_threshold":     {"name": "x", "type": "webhook", "endpoint": r.URL, "severity_threshold": "loud"},
			"/credential/colour":      {"name": "x", "type": "webhook", "endpoint": r.URL, "credential": body{"colour": "red"}},
			"/credential":             {"name": "x", "type": "webhook", "endpoint": r.URL, "credential": 7},
			"/settings/from":          {"name": "x", "type": "email", "endpoint": "127.0.0.1:25", "settings": body{"to": "a@example.com"}},
			"/settings/to":            {"name": "x", "type": "email", "endpoint": "127.0.0.1:25", "settings": body{"from": "a@example.com", "to": []string{"nobody"}}},
			"/settings/tls":           {"name": "x", "type": "email", "endpoint": "127.0.0.1:25", "settings": body{"from": "a@example.com", "to": "b@example.com", "tls": "rot13"}},
			"/name":                   {"name": " ", "type": "webhook", "endpoint": r.URL},
			"/credential/hmac_secret": {"name": "x", "type": "webhook", "endpoint": r.URL, "credential": body{"hmac_secret": 5}},
		} {
			if res := a.Do(t, "POST", "/notifications/channels", draft).Want(422); !strings.Contains(string(res.Body), `"`+pointer+`"`) {
				t.Errorf("%s: %s", pointer, res.Body)
			}
		}
		for _, endpoint := range []string{"10.0.0.8:25", "smtp://169.254.169.254:25", "smtp://2130706433:25", "smtp://[::1]:465", "192.168.0.1", "localhost.:587"} {
			res := a.Do(t, "POST", "/notifications/channels", body{"name": "x", "type": "email", "endpoint": endpoint, "settings": body{"from": "a@example.com", "to": "b@example.com"}}).Want(422)
			if res.Get("error") != "target_refused" {
				t.Errorf("%s: %s", endpoint, res.Body)
			}
		}
		a.Do(t, "POST", "/notifications/channels", body{"name": "on call", "type": "webhook", "endpoint": r.URL}).Want(409)
		elsewhere := newReceiver(t)
		if res := a.Do(t, "PUT", path, body{"endpoint": elsewhere.URL}).Want(422); res.Get("error") != "credential_required" {
			t.Errorf("another host: %s", res.Body)
		}
		if res := a.Do(t, "PUT", path, body{"settings": body{"token_url": elsewhere.URL}}).Want(422); res.Get("error") != "credential_required" {
			t.Errorf("another host of tokens: %s", res.Body)
		}
		a.With("If-Match", `"77"`).Do(t, "PUT", path, body{"name": "late"}).Want(412)

		// A test shows the receiver's answer; redirects are not followed.
		if res := a.Do(t, "POST", path+"/test", nil).Want(200); res.Get("delivered") != true || res.Get("response_code") != 204.0 {
			t.Errorf("the test answers %s", res.Body)
		}
		r.set(func(w http.ResponseWriter, _ call) { w.Header().Set("Location", elsewhere.URL); w.WriteHeader(307) })
		failed := a.Do(t, "POST", path+"/test", nil).Want(200)
		if failed.Get("delivered") != false || failed.Get("response_code") != 307.0 || failed.Get("error") == "" {
			t.Errorf("the test answers %s", failed.Body)
		}
		r.set(func(w http.ResponseWriter, _ call) { w.WriteHeader(200) })

		// A built-in alert arrives, signed: somebody guesses at a password.
		for range 10 {
			if _, err := s.Anonymous().Try("POST", "/auth/login", body{"username": "admin", "password": "wrong-password"}); err != nil {
				t.Fatal(err)
			}
		}
		var told call
		apptest.Eventually(t, time.Minute, func() error {
			r.mu.Lock()
			defer r.mu.Unlock()
			for _, c := range r.calls {
				if strings.Contains(c.Raw, `"alert":"failed_logins"`) {
					told = c
					return nil
				}
			}
			return fmt.Errorf("no alert among %d calls", len(r.calls))
		})
		if !outbound.SignatureValid([]byte(secret), []byte(told.Raw), told.Header.Get("X-Service-Signature")) || told.Header.Get("Authorization") != "Bearer bearer-of-the-channel-77" {
			t.Error("the message is not signed")
		}
		apptest.Eventually(t, time.Minute, func() error {
			list := a.Do(t, "GET", "/notifications/deliveries?alert=failed_logins&status=sent&channel_id="+fmt.Sprint(made.ID()), nil).Want(200)
			if list.Get("total") == 0.0 {
				return fmt.Errorf("deliveries: %s", list.Body)
			}
			return nil
		})
		one := fmt.Sprintf("/notifications/deliveries/%v", failed.Get("delivery_id"))
		if d := a.Do(t, "GET", one, nil).Want(200); d.Get("status") != "failed" || d.Get("payload", "alert") != "test" {
			t.Errorf("the delivery reads %s", d.Body)
		}
		a.Do(t, "POST", one+"/retry", nil).Want(200)
		apptest.Eventually(t, time.Minute, func() error {
			if d := a.Do(t, "GET", one, nil).Want(200); d.Get("status") != "sent" {
				return fmt.Errorf("tried again: %s", d.Body)
			}
			return nil
		})
		a.Do(t, "POST", one+"/retry", nil).Want(409)

		// Others: without the permission, in the other environment, in another tenant.
		viewer := s.Anonymous()
		viewer.APIKey = fmt.Sprint(a.Do(t, "POST", "/tenants/default/api-keys", body{"name": "viewer", "scopes": []string{"notifications:read"}}).Want(200, 201).Get("key"))
		viewer.Do(t, "GET", path, nil).Want(200)
		viewer.Do(t, "POST", path+"/test", nil).Want(403)
		a.Do(t, "GET", path+"?environment=production", nil).Want(404)
		a.Do(t, "GET", "/notifications/deliveries?environment=production&channel_id="+fmt.Sprint(made.ID()), nil).Want(404)
		a.Do(t, "POST", "/tenants", body{"name": "Other"}).Want(201)
		other := a.With("X-Tenant-ID", "other")
		other.Do(t, "GET", path, nil).Want(404)
		other.Do(t, "POST", path+"/test", nil).Want(404)
		other.Do(t, "GET", one, nil).Want(404)
		if res := other.Do(t, "GET", "/notifications/deliveries", nil).Want(200); res.Get("total") != 0.0 {
			t.Errorf("another tenant lists %s", res.Body)
		}

		// Off, and gone; all of it in the audit, without the credential.
		if res := a.Do(t, "POST", path+"/disable", nil).Want(200); res.Get("enabled") != false {
			t.Errorf("disabled: %s", res.Body)
		}
		a.Do(t, "POST", path+"/enable", nil).Want(200)
		if res := a.Do(t, "PUT", path, body{"credential": body{}}).Want(200); res.Get("credential_set") != false {
			t.Errorf("without a credential: %s", res.Body)
		}
		a.Do(t, "DELETE", path, nil).Want(200)
		a.Do(t, "GET", path, nil).Want(404)
		log := string(a.Do(t, "GET", "/audit/events?limit=1000", nil).Want(200).Body)
		for _, kind := range []string{
			"NOTIFICATION_CHANNEL_CREATED", "NOTIFICATION_CHANNEL_UPDATED", "NOTIFICATION_CHANNEL_TESTED", "NOTIFICATION_CHANNEL_DISABLED", "NOTIFICATION_CHANNEL_ENABLED",
			"NOTIFICATION_CHANNEL_DELETED", "NOTIFICATION_DELIVERY_SENT", "NOTIFICATION_DELIVERY_RETRIED",
		} {
			if !strings.Contains(log, kind) {
				t.Errorf("the audit has no %s", kind)
			}
		}
		for _, clear := range []string{secret, "bearer-of-the-channel-77"} {
			if strings.Contains(log, clear) || strings.Contains(s.Log.String(), clear) {
				t.Error("a credential is in the audit or the log")
			}
		}
	})
}
