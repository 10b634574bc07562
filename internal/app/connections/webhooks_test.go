package connections_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/app/apptest"
	"github.com/gatehouse-dev/gatehouse/internal/outbound"
)

// call is a request that a receiver got.
type call struct {
	Header http.Header
	Raw    string
	Path   string
	Type   string         `json:"event_type"`
	ID     string         `json:"event_id"`
	Data   map[string]any `json:"data"`
}

// receiver is a server that records its requests.
type receiver struct {
	*httptest.Server
	mu     sync.Mutex
	calls  []call
	answer func(w http.ResponseWriter, c call)
}

func newReceiver(t *testing.T) *receiver {
	r := &receiver{answer: func(w http.ResponseWriter, _ call) { w.WriteHeader(http.StatusNoContent) }}
	r.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		raw, _ := io.ReadAll(req.Body)
		c := call{Header: req.Header, Raw: string(raw), Path: req.URL.Path}
		_ = json.Unmarshal(raw, &c)
		r.mu.Lock()
		r.calls = append(r.calls, c)
		answer := r.answer
		r.mu.Unlock()
		answer(w, c)
	}))
	t.Cleanup(r.Close)
	return r
}

func (r *receiver) set(answer func(w http.ResponseWriter, c call)) {
	r.mu.Lock()
	r.answer = answer
	r.mu.Unlock()
}

// received returns the calls so far.
func (r *receiver) received() []call {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.calls)
}

// waitFor waits for a call of a path and event type.
func (r *receiver) waitFor(t *testing.T, path, kind string) call {
	t.Helper()
	var found call
	apptest.Eventually(t, time.Minute, func() error {
		r.mu.Lock()
		defer r.mu.Unlock()
		var seen []string
		for _, c := range r.calls {
			if seen = append(seen, c.Path+" "+c.Type); c.Path == path && c.Type == kind {
				found = c
				return nil
			}
		}
		return fmt.Errorf("the receiver has no %s at %s among %v", kind, path, seen)
	})
	return found
}

// TestWebhooks goes through the life of a webhook, as its owner, others of the tenant and another
// tenant see it.
func TestWebhooks(t *testing.T) {
	apptest.Inner(t)
	each(t, func(t *testing.T, s *apptest.Server) {
		a, r := s.Admin, newReceiver(t)
		made := a.Do(t, "POST", "/webhooks", body{"name": "all", "url": r.URL + "/all", "events": []string{
			"resource.created", "user.role_changed", "policy.deployed", "bouncer.connected",
		}}).Want(201)
		path, secret := fmt.Sprintf("/webhooks/%d", made.ID()), fmt.Sprint(made.Get("secret"))
		if !strings.HasPrefix(secret, "whsec_") {
			t.Fatalf("the answer has no secret: %s", made.Body)
		}
		if got := a.Do(t, "GET", path, nil).Want(200); strings.Contains(string(got.Body), secret) || got.Get("secret_set") != true {
			t.Errorf("the webhook = %s, want secret_set and no secret", got.Body)
		}

		// What happens is told, signed.
		resource := a.Do(t, "POST", "/resources", body{"name": "payments", "type": "api", "path": "/payments"}).Want(201).ID()
		c := r.waitFor(t, "/all", "resource.created")
		if c.Data["resource_id"] != float64(resource) || c.Data["resource_name"] != "payments" || c.Data["environment"] != "sandbox" {
			t.Errorf("the event has the data %v, want the resource", c.Data)
		}
		if !outbound.SignatureValid([]byte(secret), []byte(c.Raw), c.Header.Get("X-Service-Signature")) {
			t.Error("X-Service-Signature is not that of the body")
		}
		apptest.Activate(t, a, "deployed", "sandbox", "package deployed\n\nallow := true\n", nil)
		if c = r.waitFor(t, "/all", "policy.deployed"); c.Data["policy_name"] != "deployed" || c.Data["deployed_by"] != "admin" || c.Data["policy_id"] == nil {
			t.Errorf("policy.deployed has the data %v, want the deployment", c.Data)
		}

		// What is wrong is said.
		for want, draft := range map[string]body{
			"/events/0": {"name": "x", "url": r.URL, "events": []string{"policy.imagined"}},
			"/url":      {"name": "x", "url": "http://10.0.0.8/", "events": []string{"user.created"}},
			"/events":   {"name": "x", "url": r.URL, "events": []string{}},
		} {
			if res := a.Do(t, "POST", "/webhooks", draft).Want(422); !strings.Contains(string(res.Body), `"`+want+`"`) {
				t.Errorf("POST /webhooks of %v = %s, want the pointer %s", draft, res.Body, want)
			}
		}
		a.Do(t, "POST", "/webhooks", body{"name": "all", "url": r.URL, "events": []string{"user.created"}}).Want(409)
		elsewhere := newReceiver(t)
		a.Do(t, "PUT", path, body{"url": elsewhere.URL}).ExpectError("another host", 422, "credential_required")
		a.Do(t, "PUT", path, body{"url": r.URL + "/all?x=1"}).Want(200)
		a.With("If-Match", `"1"`).Do(t, "PUT", path, body{"name": "late"}).Want(412)

		// A test shows the receiver's answer. Redirects are not followed.
		if res := a.Do(t, "POST", path+"/test", body{"event_type": "bouncer.connected"}).Want(200); res.Get("delivered") != true || res.Get("response_status") != 204.0 {
			t.Errorf("the test of the webhook = %s, want it delivered", res.Body)
		}
		r.set(func(w http.ResponseWriter, _ call) { w.Header().Set("Location", elsewhere.URL); w.WriteHeader(307) })
		if res := a.Do(t, "POST", path+"/test", body{}).Want(200); res.Get("delivered") != false || res.Get("response_status") != 307.0 {
			t.Errorf("the test of a redirect = %s, want a failure with 307", res.Body)
		}
		if len(elsewhere.calls) != 0 {
			t.Error("the server followed a redirect")
		}
		r.set(func(w http.ResponseWriter, _ call) { w.WriteHeader(200) })

		// Deliveries, and one again.
		list := a.Do(t, "GET", path+"/deliveries?event_type=resource.created&status=delivered", nil).Want(200)
		if list.Get("total") != 1.0 {
			t.Fatalf("the list of deliveries = %s, want 1", list.Body)
		}
		var page struct{ Deliveries []struct{ ID int64 } }
		list.Into(&page)
		one := fmt.Sprintf("%s/deliveries/%d", path, page.Deliveries[0].ID)
		if d := a.Do(t, "GET", one, nil).Want(200); d.Get("payload", "data", "resource_name") != "payments" {
			t.Errorf("the delivery = %s, want what was sent", d.Body)
		}
		again := a.Do(t, "POST", one+"/redeliver", nil).Want(200)
		apptest.Eventually(t, time.Minute, func() error {
			d := a.Do(t, "GET", fmt.Sprintf("%s/deliveries/%d", path, again.ID()), nil).Want(200)
			if d.Get("status") != "delivered" || d.Get("redelivery") != true {
				return fmt.Errorf("the repeated delivery = %s, want it sent", d.Body)
			}
			return nil
		})

		// Others.
		viewer := s.WithKey(fmt.Sprint(a.Do(t, "POST", "/tenants/default/api-keys", body{"name": "viewer", "scopes": []string{"webhooks:read"}}).Want(200, 201).Get("key")))
		viewer.Do(t, "GET", path, nil).Want(200)
		viewer.Do(t, "POST", path+"/test", body{}).Want(403)
		a.Do(t, "POST", "/tenants", body{"name": "Other"}).Want(201)
		other := a.With("X-Tenant-ID", "other")
		for method, p := range map[string]string{"GET": path, "PUT": path, "DELETE": path, "POST": path + "/test"} {
			foreign := other.Do(t, method, p, body{}).Want(404)
			never := other.Do(t, method, strings.Replace(p, path, "/webhooks/987654", 1), body{}).Want(404)
			if foreign.Get("message") != never.Get("message") {
				t.Errorf("%s %s of another tenant's webhook = %s, want %s as for an unknown one", method, p, foreign.Body, never.Body)
			}
		}
		other.Do(t, "GET", one, nil).Want(404)
		other.Do(t, "POST", one+"/redeliver", nil).Want(404)
		if res := other.Do(t, "GET", "/webhooks", nil).Want(200); res.Get("total") != 0.0 {
			t.Errorf("another tenant lists %s, want no webhook", res.Body)
		}

		// Off, rotated, gone; and all of it in the audit, without the secret.
		if res := a.Do(t, "POST", path+"/disable", nil).Want(200); res.Get("enabled") != false {
			t.Errorf("the disabled webhook = %s, want it disabled", res.Body)
		}
		a.Do(t, "POST", one+"/redeliver", nil).Want(409)
		a.Do(t, "POST", path+"/enable", nil).Want(200)
		if res := a.Do(t, "POST", path+"/rotate-secret", body{"overlap_seconds": 60}).Want(200); res.Get("secret") == secret || res.Get("previous_secret_until") == nil {
			t.Errorf("the rotated webhook = %s, want a new secret and the end of the old one", res.Body)
		}
		a.Do(t, "DELETE", path, nil).Want(200)
		a.Do(t, "GET", path, nil).Want(404)
		log := string(a.Do(t, "GET", "/audit/events?limit=1000", nil).Want(200).Body)
		for _, kind := range []string{"WEBHOOK_CREATED", "WEBHOOK_UPDATED", "WEBHOOK_TESTED", "WEBHOOK_REDELIVERED", "WEBHOOK_DISABLED", "WEBHOOK_ENABLED", "WEBHOOK_SECRET_ROTATED", "WEBHOOK_DELETED"} {
			if !strings.Contains(log, kind) {
				t.Errorf("the audit lacks %s", kind)
			}
		}
		if strings.Contains(log, secret) || strings.Contains(s.Log.String(), secret) {
			t.Error("the audit or the log has the secret")
		}
	})
}

// TestWebhookSurvivesKill checks that the next server delivers what was queued at a kill.
func TestWebhookSurvivesKill(t *testing.T) {
	each(t, func(t *testing.T, s *apptest.Server) {
		a, r := s.Admin, newReceiver(t)
		r.set(func(w http.ResponseWriter, _ call) { w.WriteHeader(500) })
		a.Do(t, "POST", "/webhooks", body{"name": "kept", "url": r.URL + "/kept", "events": []string{"user.created", "user.updated"}}).Want(201)
		u := a.Do(t, "POST", "/users", body{"username": "bob", "email": "bob@example.com", "password": apptest.Password}).Want(201)
		a.Do(t, "PUT", "/users/"+fmt.Sprint(u.Get("id")), body{"department": "x"}).Want(200)
		s.Kill()
		r.set(func(w http.ResponseWriter, _ call) { w.WriteHeader(200) })
		s.Start()
		r.waitFor(t, "/kept", "user.updated")
		r.mu.Lock()
		defer r.mu.Unlock()
		for i, c := range r.calls {
			if c.Type == "user.updated" && (i == 0 || r.calls[i-1].Type != "user.created" && r.calls[i-1].Type != "user.updated") {
				t.Errorf("the call %d is %s, want it after user.created", i, c.Type)
			}
		}
		if r.calls[0].Type != "user.created" {
			t.Errorf("the first call is %s, want user.created", r.calls[0].Type)
		}
	})
}
