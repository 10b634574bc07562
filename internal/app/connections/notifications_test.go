package connections_test

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/app/apptest"
	"github.com/gatehouse-dev/gatehouse/internal/errtest"
	"github.com/gatehouse-dev/gatehouse/internal/outbound"
)

// TestChannels goes through the life of a notification channel, as its owner, others of the tenant
// and another tenant see it.
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
				t.Errorf("the channel's %s is %v, want %v", name, made.Get(name), want)
			}
		}
		// What was read can be sent back.
		var record body
		a.Do(t, "GET", path, nil).Want(200).Into(&record)
		if again := a.Do(t, "PUT", path, record).Want(200); again.Get("updated_at") != made.Get("updated_at") {
			t.Errorf("PUT without a change = %s, want the same updated_at", again.Body)
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
				t.Errorf("POST /notifications/channels with a wrong member lacks the pointer %s: %s", pointer, res.Body)
			}
		}
		for _, endpoint := range []string{"10.0.0.8:25", "smtp://169.254.169.254:25", "smtp://2130706433:25", "smtp://[::1]:465", "192.168.0.1", "localhost.:587"} {
			res := a.Do(t, "POST", "/notifications/channels", body{"name": "x", "type": "email", "endpoint": endpoint, "settings": body{"from": "a@example.com", "to": "b@example.com"}}).Want(422)
			if res.Get("error") != "target_refused" {
				t.Errorf("POST with the endpoint %s = %s, want target_refused", endpoint, res.Body)
			}
		}
		a.Do(t, "POST", "/notifications/channels", body{"name": "on call", "type": "webhook", "endpoint": r.URL}).Want(409)
		elsewhere := newReceiver(t)
		a.Do(t, "PUT", path, body{"endpoint": elsewhere.URL}).ExpectError("another host", 422, "credential_required")
		a.Do(t, "PUT", path, body{"settings": body{"token_url": elsewhere.URL}}).ExpectError("another host of tokens", 422, "credential_required")
		a.With("If-Match", `"77"`).Do(t, "PUT", path, body{"name": "late"}).Want(412)

		// A test shows the receiver's answer; redirects are not followed.
		if res := a.Do(t, "POST", path+"/test", nil).Want(200); res.Get("delivered") != true || res.Get("response_code") != 204.0 {
			t.Errorf("the test of the channel = %s, want it delivered", res.Body)
		}
		r.set(func(w http.ResponseWriter, _ call) { w.Header().Set("Location", elsewhere.URL); w.WriteHeader(307) })
		failed := a.Do(t, "POST", path+"/test", nil).Want(200)
		if failed.Get("delivered") != false || failed.Get("response_code") != 307.0 || failed.Get("error") == "" {
			t.Errorf("the failing test of the channel = %s, want a failure with 307", failed.Body)
		}
		r.set(func(w http.ResponseWriter, _ call) { w.WriteHeader(200) })

		// A built-in alert arrives, signed: somebody guesses at a password.
		for range 10 {
			errtest.Must(t, errtest.Of(s.Anonymous().Try("POST", "/auth/login", body{"username": "admin", "password": "wrong-password"})))
		}
		var message call
		apptest.Eventually(t, time.Minute, func() error {
			r.mu.Lock()
			defer r.mu.Unlock()
			for _, c := range r.calls {
				if strings.Contains(c.Raw, `"alert":"failed_logins"`) {
					message = c
					return nil
				}
			}
			return fmt.Errorf("the receiver has got %d calls, none with the alert", len(r.calls))
		})
		if !outbound.SignatureValid([]byte(secret), []byte(message.Raw), message.Header.Get("X-Service-Signature")) || message.Header.Get("Authorization") != "Bearer bearer-of-the-channel-77" {
			t.Error("the message has no valid signature or no bearer token")
		}
		apptest.Eventually(t, time.Minute, func() error {
			list := a.Do(t, "GET", "/notifications/deliveries?alert=failed_logins&status=sent&channel_id="+fmt.Sprint(made.ID()), nil).Want(200)
			if list.Get("total") == 0.0 {
				return fmt.Errorf("GET /notifications/deliveries = %s, want the alert", list.Body)
			}
			return nil
		})
		one := fmt.Sprintf("/notifications/deliveries/%v", failed.Get("delivery_id"))
		if d := a.Do(t, "GET", one, nil).Want(200); d.Get("status") != "failed" || d.Get("payload", "alert") != "test" {
			t.Errorf("the delivery = %s, want the failed test", d.Body)
		}
		a.Do(t, "POST", one+"/retry", nil).Want(200)
		apptest.Eventually(t, time.Minute, func() error {
			if d := a.Do(t, "GET", one, nil).Want(200); d.Get("status") != "sent" {
				return fmt.Errorf("the repeated delivery = %s, want it sent", d.Body)
			}
			return nil
		})
		a.Do(t, "POST", one+"/retry", nil).Want(409)

		// Others: without the permission, in the other environment, in another tenant.
		viewer := s.WithKey(fmt.Sprint(a.Do(t, "POST", "/tenants/default/api-keys", body{"name": "viewer", "scopes": []string{"notifications:read"}}).Want(200, 201).Get("key")))
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
			t.Errorf("another tenant lists %s, want no deliveries", res.Body)
		}

		// Off, and gone; all of it in the audit, without the credential.
		if res := a.Do(t, "POST", path+"/disable", nil).Want(200); res.Get("enabled") != false {
			t.Errorf("the disabled channel = %s, want it disabled", res.Body)
		}
		a.Do(t, "POST", path+"/enable", nil).Want(200)
		if res := a.Do(t, "PUT", path, body{"credential": body{}}).Want(200); res.Get("credential_set") != false {
			t.Errorf("the channel without a credential = %s, want none set", res.Body)
		}
		a.Do(t, "DELETE", path, nil).Want(200)
		a.Do(t, "GET", path, nil).Want(404)
		log := string(a.Do(t, "GET", "/audit/events?limit=1000", nil).Want(200).Body)
		for _, kind := range []string{
			"NOTIFICATION_CHANNEL_CREATED", "NOTIFICATION_CHANNEL_UPDATED", "NOTIFICATION_CHANNEL_TESTED", "NOTIFICATION_CHANNEL_DISABLED", "NOTIFICATION_CHANNEL_ENABLED",
			"NOTIFICATION_CHANNEL_DELETED", "NOTIFICATION_DELIVERY_SENT", "NOTIFICATION_DELIVERY_RETRIED",
		} {
			if !strings.Contains(log, kind) {
				t.Errorf("the audit lacks %s", kind)
			}
		}
		for _, clear := range []string{secret, "bearer-of-the-channel-77"} {
			if strings.Contains(log, clear) || strings.Contains(s.Log.String(), clear) {
				t.Error("the audit or the log has a credential")
			}
		}
	})
}

// TestQuietChannel checks that a channel holds messages in its quiet hours, sends them in one
// digest afterwards, and logs where each went.
func TestQuietChannel(t *testing.T) {
	each(t, func(t *testing.T, s *apptest.Server) {
		a, r := s.Admin, newReceiver(t)
		now := time.Now().UTC()
		quiet := body{"from": now.Add(-2 * time.Hour).Format("15:04"), "to": now.Add(12 * time.Hour).Format("15:04")}
		made := a.Do(t, "POST", "/notifications/channels", body{"name": "night", "type": "webhook", "endpoint": r.URL, "quiet_hours": quiet, "digest_window_seconds": 60}).Want(201)
		path := fmt.Sprintf("/notifications/channels/%d", made.ID())
		if made.Get("quiet_hours", "time_zone") != "UTC" || made.Get("quiet_hours", "except_severity") != "critical" || made.Get("digest_window_seconds") != 60.0 {
			t.Errorf("the channel = %s, want its quiet hours", made.Body)
		}
		for pointer, change := range map[string]body{
			"/quiet_hours/from":            {"quiet_hours": body{"from": "25:00", "to": "07:00"}},
			"/quiet_hours/to":              {"quiet_hours": body{"from": "07:00", "to": "07:00"}},
			"/quiet_hours/time_zone":       {"quiet_hours": body{"from": "22:00", "to": "07:00", "time_zone": "Mars/Olympus"}},
			"/quiet_hours/days/0":          {"quiet_hours": body{"from": "22:00", "to": "07:00", "days": []string{"someday"}}},
			"/quiet_hours/except_severity": {"quiet_hours": body{"from": "22:00", "to": "07:00", "except_severity": "info"}},
			"/digest_window_seconds":       {"digest_window_seconds": 86401},
		} {
			if res := a.Do(t, "PUT", path, change).Want(422); !strings.Contains(string(res.Body), `"`+pointer+`"`) {
				t.Errorf("PUT with wrong quiet hours lacks the pointer %s: %s", pointer, res.Body)
			}
		}
		pager := body{"name": "pager", "type": "pagerduty", "endpoint": r.URL, "credential": "r0uting-key", "digest_window_seconds": 60}
		if res := a.Do(t, "POST", "/notifications/channels", pager).Want(422); !strings.Contains(string(res.Body), "/digest_window_seconds") {
			t.Errorf("POST of a digest for a pager = %s, want the pointer /digest_window_seconds", res.Body)
		}

		// Somebody guesses at two passwords.
		a.Do(t, "POST", "/users", body{"username": "eve", "email": "eve@example.com", "password": "a long enough secret", "roles": []string{"viewer"}}).Want(201)
		for _, user := range []string{"admin", "eve"} {
			for range 10 {
				errtest.Must(t, errtest.Of(s.Anonymous().Try("POST", "/auth/login", body{"username": user, "password": "wrong-password"})))
			}
		}
		type delivery struct {
			ID, Size int64
			Status   string
		}
		list := func(filter string) []delivery {
			t.Helper()
			var page struct {
				Deliveries []struct {
					ID     int64  `json:"id"`
					Size   int64  `json:"digest_size"`
					Status string `json:"status"`
				} `json:"deliveries"`
			}
			a.Do(t, "GET", "/notifications/deliveries?"+filter, nil).Want(200).Into(&page)
			var out []delivery
			for _, d := range page.Deliveries {
				out = append(out, delivery(d))
			}
			return out
		}
		apptest.Eventually(t, time.Minute, func() error {
			held := string(a.Do(t, "GET", "/notifications/deliveries?alert=failed_logins&status=held", nil).Want(200).Body)
			if !strings.Contains(held, "sign-ins of eve") || !strings.Contains(held, "sign-ins of admin") {
				return fmt.Errorf("the held deliveries are %s, of %+v, want those of eve and admin", held, list("limit=100"))
			}
			return nil
		})
		if one := a.Do(t, "GET", path, nil).Want(200); one.Get("held_deliveries") == 0.0 {
			t.Errorf("the channel = %s, want the number of held messages", one.Body)
		}
		if calls := r.received(); len(calls) > 0 {
			t.Errorf("the receiver has got %d calls in quiet hours, want none", len(calls))
		}
		a.Do(t, "PUT", path, body{"quiet_hours": nil, "digest_window_seconds": 0}).Want(200)
		var digest delivery
		apptest.Eventually(t, time.Minute, func() error {
			digests := list("alert=digest&status=sent")
			if len(digests) != 1 {
				return fmt.Errorf("the digests are %+v, want one sent", list("limit=100"))
			}
			digest = digests[0]
			return nil
		})
		in := list(fmt.Sprintf("digest_id=%d", digest.ID))
		if digest.Size < 2 || int64(len(in)) != digest.Size || in[0].Status != "digested" {
			t.Fatalf("the digest %+v has the messages %+v, want the held ones", digest, in)
		}
		a.Do(t, "POST", fmt.Sprintf("/notifications/deliveries/%d/retry", in[0].ID), nil).Want(409)
		// What happened since the change may have been sent before it, by itself.
		if !slices.ContainsFunc(r.received(), func(c call) bool {
			return strings.Contains(c.Raw, `"digest":[{`) && strings.Contains(c.Raw, "sign-ins of eve") && strings.Contains(c.Raw, "sign-ins of admin")
		}) {
			t.Errorf("the receiver has got %v, want one digest", r.received())
		}
	})
}

// TestChannelTypes checks that each type in the catalogue delivers a real alert in the form of its
// receiver, and shows its credential nowhere.
func TestChannelTypes(t *testing.T) {
	each(t, func(t *testing.T, s *apptest.Server) {
		a, r := s.Admin, newReceiver(t)
		r.set(func(w http.ResponseWriter, c call) {
			w.Header().Set("Content-Type", "application/json")
			switch {
			case strings.HasPrefix(c.Path, "/now/") && c.Raw == "":
				_, _ = w.Write([]byte(`{"result":[]}`))
			case strings.HasPrefix(c.Path, "/now/"):
				_, _ = w.Write([]byte(`{"result":{"sys_id":"abc"}}`))
			case strings.HasPrefix(c.Path, "/jira/"):
				_, _ = w.Write([]byte(`{"key":"OPS-1","issues":[],"transitions":[]}`))
			default:
				_, _ = w.Write([]byte(`{"ok":true,"status":"success"}`))
			}
		})
		const secret = "s3cret-of-all-types"
		drafts := map[string]body{
			"slack":      {"endpoint": r.URL + "/slack", "settings": body{"channel": "C1"}, "credential": body{"bot_token": secret}},
			"teams":      {"endpoint": r.URL + "/teams/" + secret},
			"pagerduty":  {"endpoint": r.URL + "/pager", "credential": body{"routing_key": secret}},
			"servicenow": {"endpoint": r.URL + "/now", "credential": body{"username": "robot", "password": secret}},
			"jira":       {"endpoint": r.URL + "/jira", "settings": body{"project": "OPS"}, "credential": body{"access_token": secret}},
			"webhook":    {"endpoint": r.URL + "/hook", "credential": secret},
			"email":      nil, // internal/notify has a mail server
		}
		var catalogue struct {
			Types []struct{ Type string }
		}
		a.Do(t, "GET", "/notifications/channel-types", nil).Want(200).Into(&catalogue)
		if len(catalogue.Types) != len(drafts) {
			t.Errorf("the catalogue has %d types, the test %d", len(catalogue.Types), len(drafts))
		}
		for _, kind := range catalogue.Types {
			draft, known := drafts[kind.Type]
			if !known {
				t.Errorf("the test does not try the type %s", kind.Type)
			}
			if draft == nil {
				continue
			}
			draft["name"], draft["type"] = kind.Type, kind.Type
			made := a.Do(t, "POST", "/notifications/channels", draft).Want(201)
			if made.Get("credential_set") != true || strings.Contains(string(made.Body), secret) {
				t.Errorf("POST of a channel of the type %s = %s, want no credential", kind.Type, made.Body)
			}
		}
		for pointer, draft := range map[string]body{
			"/settings/project": {"name": "x", "type": "jira", "endpoint": r.URL, "credential": body{"access_token": "t"}},
			"/settings/channel": {"name": "x", "type": "slack", "credential": "xoxb-1"},
			"/credential":       {"name": "x", "type": "servicenow", "endpoint": r.URL, "credential": body{"username": "robot"}},
			"/endpoint":         {"name": "x", "type": "servicenow", "credential": body{"access_token": "t"}},
		} {
			if res := a.Do(t, "POST", "/notifications/channels", draft).Want(422); !strings.Contains(string(res.Body), `"`+pointer+`"`) {
				t.Errorf("POST of a wrong channel lacks the pointer %s: %s", pointer, res.Body)
			}
		}
		for range 10 {
			errtest.Must(t, errtest.Of(s.Anonymous().Try("POST", "/auth/login", body{"username": "admin", "password": "wrong-password"})))
		}
		want := map[string]string{
			"/slack/chat.postMessage": `"blocks"`, "/teams/" + secret: "AdaptiveCard", "/pager/v2/enqueue": "dedup_key",
			"/now/api/now/table/incident": "correlation_id", "/jira/rest/api/3/issue": "bulletList", "/hook": `"alert":"failed_logins"`,
		}
		apptest.Eventually(t, time.Minute, func() error {
			r.mu.Lock()
			defer r.mu.Unlock()
			arrived := map[string]bool{}
			for _, c := range r.calls {
				if text, known := want[c.Path]; known && strings.Contains(c.Raw, text) {
					arrived[c.Path] = true
				}
			}
			if len(arrived) < len(want) {
				return fmt.Errorf("the receivers have got %v, want an alert each", arrived)
			}
			return nil
		})
		for _, path := range []string{"/notifications/channels", "/notifications/deliveries?limit=100", "/audit/events?limit=1000"} {
			if res := a.Do(t, "GET", path, nil).Want(200); strings.Contains(string(res.Body), secret) {
				t.Errorf("GET %s shows a credential", path)
			}
		}
		if strings.Contains(s.Log.String(), secret) {
			t.Error("the log has a credential")
		}
	})
}

// TestAlertRules goes through the life of an alert rule, as its owner, others of the tenant and
// another tenant see it.
func TestAlertRules(t *testing.T) {
	each(t, func(t *testing.T, s *apptest.Server) {
		a := s.Admin
		draft := func(more body) body {
			d := body{"name": "many denials", "trigger": body{"metric": "denial_rate", "operator": ">", "threshold": 20}}
			maps.Copy(d, more)
			return d
		}
		made := a.Do(t, "POST", "/notifications/alert-rules", draft(body{"severity": "error"})).Want(201)
		path := fmt.Sprintf("/notifications/alert-rules/%d", made.ID())
		if made.Get("environment") != "sandbox" || made.Get("firing") != false || made.Get("frequency", "evaluation_window_seconds") != 300.0 || made.Get("frequency", "cooldown_seconds") != 3600.0 {
			t.Errorf("POST of the rule = %s, want its defaults", made.Body)
		}
		var record body
		a.Do(t, "GET", path, nil).Want(200).Into(&record)
		if again := a.Do(t, "PUT", path, record).Want(200); again.Get("updated_at") != made.Get("updated_at") {
			t.Errorf("PUT without a change = %s, want the same updated_at", again.Body)
		}
		for pointer, wrong := range map[string]body{
			"/trigger/metric":                      {"trigger": body{"metric": "joy", "operator": ">", "threshold": 1}},
			"/trigger/operator":                    {"trigger": body{"metric": "denial_rate", "operator": "<", "threshold": 1}},
			"/trigger/threshold":                   {"trigger": body{"metric": "denial_rate", "operator": ">", "threshold": 101}},
			"/trigger/filter/event_type":           {"trigger": body{"metric": "denial_rate", "operator": ">", "threshold": 1, "filter": body{"event_type": "X"}}},
			"/trigger/filter":                      {"trigger": body{"metric": "denial_rate", "operator": ">", "threshold": 1, "filter": body{"control_id": 4711}}},
			"/channel_ids":                         {"channel_ids": []int{4711}},
			"/frequency/evaluation_window_seconds": {"frequency": body{"evaluation_window_seconds": 5}},
			"/name":                                {"name": " "},
		} {
			wrong = draft(wrong)
			if pointer != "/name" {
				wrong["name"] = "x"
			}
			if res := a.Do(t, "POST", "/notifications/alert-rules", wrong).Want(422); !strings.Contains(string(res.Body), `"`+pointer+`"`) {
				t.Errorf("POST of a wrong rule lacks the pointer %s: %s", pointer, res.Body)
			}
		}
		a.Do(t, "POST", "/notifications/alert-rules", draft(nil)).Want(409)
		a.With("If-Match", `"77"`).Do(t, "PUT", path, body{"name": "late"}).Want(412)
		if p := a.Do(t, "POST", "/notifications/alert-rules/preview", draft(nil)).Want(200); p.Get("would_have_fired") != 0.0 || p.Get("evaluations").(float64) < 10_000 {
			t.Errorf("the preview = %s, want no firing in at least 10000 evaluations", p.Body)
		}

		// A rule on a resource that is removed says so.
		resource := a.Do(t, "POST", "/resources", body{"name": "ledger", "type": "api", "path": "/ledger"}).Want(201)
		filtered := a.Do(t, "POST", "/notifications/alert-rules", draft(body{"name": "ledger", "trigger": body{
			"metric": "denial_count", "operator": ">=", "threshold": 3, "filter": body{"resource_id": fmt.Sprint(resource.ID())},
		}})).Want(201)
		a.Do(t, "DELETE", fmt.Sprintf("/resources/%d", resource.ID()), nil).Want(200)
		if got := a.Do(t, "GET", fmt.Sprintf("/notifications/alert-rules/%d", filtered.ID()), nil).Want(200); !strings.Contains(fmt.Sprint(got.Get("problem")), "does not exist") {
			t.Errorf("the rule without its resource = %s, want it invalid", got.Body)
		}

		viewer := s.WithKey(fmt.Sprint(a.Do(t, "POST", "/tenants/default/api-keys", body{"name": "viewer", "scopes": []string{"notifications:read"}}).Want(200, 201).Get("key")))
		viewer.Do(t, "GET", path, nil).Want(200)
		viewer.Do(t, "DELETE", path, nil).Want(403)
		a.Do(t, "GET", path+"?environment=production", nil).Want(404)
		a.Do(t, "POST", "/tenants", body{"name": "Other"}).Want(201)
		other := a.With("X-Tenant-ID", "other")
		other.Do(t, "GET", path, nil).Want(404)
		if res := other.Do(t, "GET", "/notifications/alert-rules", nil).Want(200); res.Get("total") != 0.0 {
			t.Errorf("another tenant lists %s, want no rule", res.Body)
		}
		a.Do(t, "DELETE", path, nil).Want(200)
		a.Do(t, "GET", path, nil).Want(404)
		log := string(a.Do(t, "GET", "/audit/events?limit=1000", nil).Want(200).Body)
		for _, kind := range []string{"ALERT_RULE_CREATED", "ALERT_RULE_DELETED"} {
			if !strings.Contains(log, kind) {
				t.Errorf("the audit lacks %s", kind)
			}
		}
	})
}

// TestAlertRuleFires checks that denials of a resource fire the rule that watches it, and that its
// end is told after they have left the window.
func TestAlertRuleFires(t *testing.T) {
	each(t, func(t *testing.T, s *apptest.Server) {
		a, r := s.Admin, newReceiver(t)
		channel := a.Do(t, "POST", "/notifications/channels", body{"name": "on call", "type": "webhook", "endpoint": r.URL}).Want(201)
		resource := a.Do(t, "POST", "/resources", body{"name": "payments", "type": "api", "path": "/payments"}).Want(201)
		a.Do(t, "POST", "/notifications/alert-rules", body{
			"name": "payments are denied", "channel_ids": []int64{channel.ID()}, "frequency": body{"evaluation_window_seconds": 60},
			"trigger": body{"metric": "denial_rate", "operator": ">", "threshold": 20, "filter": body{"resource_id": fmt.Sprint(resource.ID())}},
		}).Want(201)
		for range 5 {
			a.Do(t, "POST", "/decisions/evaluate", body{"user": body{"id": "bob"}, "resource": body{"id": resource.ID()}, "environment": "sandbox"}).Want(200)
		}
		for _, status := range []string{"firing", "resolved"} {
			apptest.Eventually(t, 10*time.Minute, func() error {
				r.mu.Lock()
				defer r.mu.Unlock()
				for _, c := range r.calls {
					if strings.Contains(c.Raw, `"status":"`+status+`"`) && strings.Contains(c.Raw, "payments are denied") {
						return nil
					}
				}
				return fmt.Errorf("the receiver has got %d calls, none %s", len(r.calls), status)
			})
		}
		if log := a.Do(t, "GET", "/audit/events?limit=1000", nil).Want(200); !strings.Contains(string(log.Body), "CUSTOM_ALERT_FIRED") {
			t.Error("the audit lacks the firing of the rule")
		}
	})
}
