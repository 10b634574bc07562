package delivery_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/app/apptest"
	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/db/dbtest"
	"github.com/gatehouse-dev/gatehouse/internal/errtest"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

// channel is a notification channel that counts its messages.
type channel struct {
	*httptest.Server
	mu       sync.Mutex
	messages map[string]int
}

func newChannel(t *testing.T, a *apptest.Client, severity string) *channel {
	t.Helper()
	p := &channel{messages: map[string]int{}}
	p.Server = httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		var m struct{ Alert, Status, Fault string }
		if err := json.NewDecoder(r.Body).Decode(&m); err != nil {
			t.Error(err)
		}
		p.mu.Lock()
		p.messages[m.Alert+" "+m.Status+" "+m.Fault]++
		p.mu.Unlock()
	}))
	t.Cleanup(p.Close)
	a.Do(t, "POST", "/notifications/channels", body{"name": "pager " + severity, "type": "webhook", "endpoint": p.URL, "environment": "sandbox", "severity_threshold": severity}).Want(201)
	return p
}

// waitFor waits until the channel has got a message.
func (p *channel) waitFor(t *testing.T, message string, of ...any) {
	t.Helper()
	message = fmt.Sprintf(message, of...)
	apptest.Eventually(t, time.Minute, func() error {
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.messages[message] == 0 {
			return fmt.Errorf("the channel has got %v, want %q", p.messages, message)
		}
		return nil
	})
}

// movePast stops the server, moves a time of a request into the past, and starts the server again.
func (w *accessFixture) movePast(t *testing.T, column string, id int64) {
	t.Helper()
	w.Stop()
	cfg := db.Config{URL: w.DatabaseURL(), MaxConns: 2}
	if cfg.URL == "" {
		cfg.Dir = w.Dir
	}
	c, err := db.Open(t.Context(), cfg)
	errtest.Must(t, err)
	err = c.Write(t.Context(), scope.DefaultTenant, func(tx *db.Tx) error {
		_, err := tx.Exec(t.Context(), `UPDATE access_requests SET `+column+` = $2 WHERE id = $1`, id, time.Now().Add(-time.Minute))
		return err
	})
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	errtest.Must(t, err)
	w.Start()
	w.Admin, w.approver = w.Login(t, "admin", apptest.Password), w.Login(t, "boss", apptest.Password)
}

// waitForAudit waits until the audit has an event n times.
func (w *accessFixture) waitForAudit(t *testing.T, event string, n int) {
	t.Helper()
	apptest.Eventually(t, time.Minute, func() error {
		log := string(w.Admin.Do(t, "GET", "/audit/events?limit=1000", nil).Want(200).Body)
		if got := strings.Count(log, `"`+event+`"`); got != n {
			return fmt.Errorf("the audit has %s %d times, want %d", event, got, n)
		}
		return nil
	})
}

// TestAccessRequestsLapse checks that a request without a decision expires after the tenant's time, and
// that all approvers learn this. If an approver decides first, the queue's run shows it.
func TestAccessRequestsLapse(t *testing.T) {
	for _, backend := range dbtest.Backends() {
		t.Run(backend, func(t *testing.T) {
			s := apptest.StartServer(t, backend, "GATEHOUSE_ALLOW_TARGETS=127.0.0.0/8")
			w, queue := newAccessFixture(t, s), newApprovals(t)
			ch := newChannel(t, s.Admin, "warning")
			made := s.Admin.Do(t, "POST", "/integrations", body{
				"name": "approvals", "kind": "approval_queue", "endpoint": queue.URL, "credential": "key-of-the-queue", "environment": "sandbox",
			}).Want(201).ID()
			life := func(hours any) *apptest.Response {
				return s.Admin.Do(t, "PUT", "/tenants/default", body{"settings": body{"access_request_hours": hours}})
			}
			for _, wrong := range []any{0, 2161, 1.5, "24"} {
				life(wrong).Want(422)
			}
			lifeOf := func(id int64) time.Duration {
				r := w.request(t, id)
				filed, err := time.Parse(time.RFC3339, fmt.Sprint(r.Get("created_at")))
				end, err2 := time.Parse(time.RFC3339, fmt.Sprint(r.Get("lapses_at")))
				if err != nil || err2 != nil {
					t.Fatalf("the request %s has no times", r.Body)
				}
				return end.Sub(filed)
			}
			if got := lifeOf(w.fileRequest(t, "default")); got != 7*24*time.Hour {
				t.Errorf("by default, a request waits for %s, want 7 days", got)
			}
			life(2).Want(200)
			late, denied := w.fileRequest(t, "ada"), w.fileRequest(t, "bob")
			if got := lifeOf(late); got != 2*time.Hour {
				t.Errorf("the request waits for %s, want 2 hours", got)
			}
			run := func(request int64) map[string]any {
				t.Helper()
				all, _ := s.Admin.Do(t, "GET", fmt.Sprintf("/integrations/%d/runs?limit=200", made), nil).Want(200).Get("runs").([]any)
				for _, r := range all {
					doc, _ := r.(map[string]any)
					if cause, _ := doc["cause"].(map[string]any); cause["access_request_id"] == float64(request) {
						return doc
					}
				}
				t.Fatalf("the integration has no run for the request %d", request)
				return nil
			}
			wantSuperseded := func(asked item, why string) {
				t.Helper()
				if r := run(asked.Data.Request); r["status"] != "superseded" || r["message"] != why || r["ended_at"] == nil {
					t.Errorf("the run is %v, want superseded because %s", r, why)
				}
				asked.answer(t, s, body{"status": "approved"}).WantError(409, "already_decided")
			}
			askedLate, askedDenied := queue.waitFor(t, "access.requested", late), queue.waitFor(t, "access.requested", denied)
			w.act(t, w.approver, denied, "deny", body{"reason": "no"}).Want(200)
			wantSuperseded(askedDenied, "the request for access is denied")

			w.movePast(t, "lapses_at", late)
			if r := w.request(t, late); r.Get("status") != "expired" || r.Get("decided_at") != nil || r.Get("starts_at") != nil {
				t.Errorf("the request that nobody decided is %s, want expired", r.Body)
			}
			w.act(t, w.approver, late, "approve", body{"duration_seconds": 60}).WantError(409, "already_decided")
			w.act(t, w.app, late, "withdraw", nil).WantError(409, "already_decided")
			ch.waitFor(t, "access_requested resolved access:%d", late)
			w.waitForAudit(t, "ACCESS_LAPSED", 1)
			wantSuperseded(askedLate, "the request for access is expired")
			if got := root(w.approver).Do(t, "GET", requests+"?status=expired", nil).Want(200).Get("total"); got != 1.0 {
				t.Errorf("the list of expired requests has %v, want 1", got)
			}
			again := w.fileRequest(t, "ada")
			w.act(t, w.approver, again, "approve", body{"duration_seconds": 3600}).Want(200)
			w.wantDecision(t, "ada", "PERMIT")
		})
	}
}

// TestWithdrawnRequests checks that only the filer or the subject of a request can withdraw it, and that
// a withdrawn request has no effect.
func TestWithdrawnRequests(t *testing.T) {
	for _, backend := range dbtest.Backends() {
		t.Run(backend, func(t *testing.T) {
			s := apptest.StartServer(t, backend, "GATEHOUSE_ALLOW_TARGETS=127.0.0.0/8")
			w := newAccessFixture(t, s)
			ch := newChannel(t, s.Admin, "warning")
			s.Admin.Do(t, "POST", "/users", body{"id": "ada", "username": "ada", "email": "ada@example.com", "password": apptest.Password, "roles": []string{"viewer"}}).Want(201)
			ada := s.Login(t, "ada", apptest.Password)
			byApp, forAda := w.fileRequest(t, "bob"), w.fileRequest(t, "ADA@example.com")
			ch.waitFor(t, "access_requested firing access:%d", byApp)
			w.act(t, w.approver, byApp, "withdraw", nil).WantError(403, "permission_denied")
			w.act(t, ada, byApp, "withdraw", nil).Want(404)
			w.act(t, s.Key(t, s.Admin, "sandbox", "decisions:read"), byApp, "withdraw", nil).Want(404)
			back := w.act(t, w.app, byApp, "withdraw", nil).Want(200)
			if back.Get("status") != "withdrawn" || back.Get("ended_by") == nil || back.Get("ended_at") == nil || back.Get("decided_by") != nil {
				t.Errorf("the withdrawn request is %s, want it ended without a decision", back.Body)
			}
			ch.waitFor(t, "access_requested resolved access:%d", byApp)
			w.act(t, w.app, byApp, "withdraw", nil).WantError(409, "already_decided")
			w.act(t, w.approver, byApp, "approve", body{"duration_seconds": 60}).WantError(409, "already_decided")
			w.wantDecision(t, "bob", "DENY")
			w.fileRequest(t, "bob")

			own := root(ada).Do(t, "POST", requests+"?environment=sandbox", body{"action": body{"name": "write"}, "resource": body{"id": "payroll"}, "reason": "x"}).Want(201).ID()
			w.act(t, ada, own, "withdraw", nil).Want(200)
			granted := w.fileRequest(t, "carol")
			w.act(t, w.approver, granted, "approve", body{"duration_seconds": 3600}).Want(200)
			w.act(t, w.app, granted, "withdraw", nil).WantError(409, "already_decided")
			w.wantDecision(t, "carol", "PERMIT")
			w.act(t, ada, forAda, "withdraw", nil).Want(404) // people see the requests of other filers only by their own id
			if got := root(w.approver).Do(t, "GET", requests+"?status=withdrawn", nil).Want(200).Get("total"); got != 2.0 {
				t.Errorf("the list of withdrawn requests has %v, want 2", got)
			}
			w.waitForAudit(t, "ACCESS_WITHDRAWN", 2)
		})
	}
}

// TestAgentsRequestAccess checks that the key of an AI agent can file, list and withdraw requests for
// this agent, and sees no others.
func TestAgentsRequestAccess(t *testing.T) {
	apptest.Each(t, func(t *testing.T, s *apptest.Server) {
		w := newAccessFixture(t, s)
		agent := func(name string) (string, *apptest.Client) {
			id := s.Admin.Do(t, "POST", "/ai-agents", body{"name": name, "type": "llm"}).Want(201).ID()
			return fmt.Sprintf("agent:%d", id), s.WithKey(s.Admin.Do(t, "POST", fmt.Sprintf("/ai-agents/%d/keys", id), body{}).Want(201).Text("key"))
		}
		subject, bot := agent("clerk")
		stranger, other := agent("other")
		file := func(subject any) *apptest.Response {
			doc := body{"action": body{"name": "read"}, "resource": body{"id": "payroll"}, "reason": "the audit of May"}
			if subject != nil {
				doc["subject"] = subject
			}
			return root(bot).Do(t, "POST", requests+"?environment=sandbox", doc)
		}
		for _, who := range []body{{"id": stranger}, {"id": "ada"}, {"id": "clerk"}, {"type": "user", "id": subject}, {"type": "agent", "id": strings.TrimPrefix(stranger, "agent:")}} {
			file(who).WantError(403, "other_subject")
		}
		id := file(nil).Want(201).ID()
		if r := w.request(t, id); r.Get("subject_id") != subject || r.Get("requested_by") != "clerk" {
			t.Errorf("the request is %s, want one of %s by clerk", r.Body, subject)
		}
		file(body{"type": "agent", "id": strings.TrimPrefix(subject, "agent:")}).WantError(409, "already_requested")
		wantTotal := func(c *apptest.Client, total float64) {
			t.Helper()
			if got := root(c).Do(t, "GET", requests, nil).Want(200); got.Get("total") != total {
				t.Errorf("GET %s = %s, want %v requests", requests, got.Body, total)
			}
		}
		w.fileRequest(t, "ada")
		forOther := w.fileRequest(t, stranger) // an application may file for an agent
		wantTotal(bot, 1)
		wantTotal(other, 1)
		w.act(t, other, id, "withdraw", nil).Want(404)
		w.act(t, other, forOther, "withdraw", nil).Want(200)
		w.act(t, bot, id, "approve", body{"duration_seconds": 60}).WantError(403, "permission_denied")
		w.act(t, bot, id, "revoke", body{"reason": "x"}).WantError(403, "permission_denied")
		w.act(t, bot, id, "withdraw", nil).Want(200)
		id = file(body{"id": subject}).Want(201).ID()
		w.act(t, w.approver, id, "approve", body{"duration_seconds": 3600}).Want(200)
		w.wantDecision(t, subject, "PERMIT")
		w.wantDecision(t, stranger, "DENY")
		s.Admin.Do(t, "PUT", "/ai-agents/"+strings.TrimPrefix(subject, "agent:"), body{"status": "inactive"}).Want(200)
		root(bot).Do(t, "GET", requests, nil).Want(401)
	})
}
