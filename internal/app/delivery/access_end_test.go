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
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

// pager is a notification channel that counts what it hears.
type pager struct {
	*httptest.Server
	mu    sync.Mutex
	heard map[string]int
}

func newPager(t *testing.T, a *apptest.Client, severity string) *pager {
	t.Helper()
	p := &pager{heard: map[string]int{}}
	p.Server = httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		var m struct{ Alert, Status, Fault string }
		if err := json.NewDecoder(r.Body).Decode(&m); err != nil {
			t.Error(err)
		}
		p.mu.Lock()
		p.heard[m.Alert+" "+m.Status+" "+m.Fault]++
		p.mu.Unlock()
	}))
	t.Cleanup(p.Close)
	a.Do(t, "POST", "/notifications/channels", body{"name": "pager " + severity, "type": "webhook", "endpoint": p.URL, "environment": "sandbox", "severity_threshold": severity}).Want(201)
	return p
}

// hears waits until the channel has heard a message.
func (p *pager) hears(t *testing.T, message string, of ...any) {
	t.Helper()
	message = fmt.Sprintf(message, of...)
	apptest.Eventually(t, time.Minute, func() error {
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.heard[message] == 0 {
			return fmt.Errorf("no %q among %v", message, p.heard)
		}
		return nil
	})
}

// passTime stops the server, moves a time of a request into the past, and starts the server again.
func (w *accessWorld) passTime(t *testing.T, column string, id int64) {
	t.Helper()
	w.Stop()
	cfg := db.Config{URL: w.DatabaseURL(), MaxConns: 2}
	if cfg.URL == "" {
		cfg.Dir = w.Dir
	}
	c, err := db.Open(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	err = c.Write(t.Context(), scope.DefaultTenant, func(tx *db.Tx) error {
		_, err := tx.Exec(t.Context(), `UPDATE access_requests SET `+column+` = $2 WHERE id = $1`, id, time.Now().Add(-time.Minute))
		return err
	})
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	w.Start()
	w.Admin, w.approver = w.Login(t, "admin", apptest.Password), w.Login(t, "boss", apptest.Password)
}

// audited waits until the audit has an event n times.
func (w *accessWorld) audited(t *testing.T, event string, n int) {
	t.Helper()
	apptest.Eventually(t, time.Minute, func() error {
		log := string(w.Admin.Do(t, "GET", "/audit/events?limit=1000", nil).Want(200).Body)
		if got := strings.Count(log, `"`+event+`"`); got != n {
			return fmt.Errorf("the audit has %s %d times instead of %d", event, got, n)
		}
		return nil
	})
}

// TestAccessRequestsLapse: a request that nobody decides in the tenant's time is over, and
// everybody who was asked hears of it. What approvers decide first, the queue's run says.
func TestAccessRequestsLapse(t *testing.T) {
	for _, backend := range dbtest.Backends() {
		t.Run(backend, func(t *testing.T) {
			s := apptest.StartServer(t, backend, "GATEHOUSE_ALLOW_TARGETS=127.0.0.0/8")
			w, queue := newAccessWorld(t, s), newApprovals(t)
			ear := newPager(t, s.Admin, "warning")
			made := s.Admin.Do(t, "POST", "/integrations", body{
				"name": "approvals", "kind": "approval_queue", "endpoint": queue.URL, "credential": "key-of-the-queue", "environment": "sandbox",
			}).Want(201).ID()
			life := func(hours any) *apptest.Response {
				return s.Admin.Do(t, "PUT", "/tenants/default", body{"settings": body{"access_request_hours": hours}})
			}
			for _, wrong := range []any{0, 2161, 1.5, "24"} {
				answer(t, life(wrong), 422, "")
			}
			lasts := func(id int64) time.Duration {
				r := w.request(t, id)
				filed, err := time.Parse(time.RFC3339, fmt.Sprint(r.Get("created_at")))
				end, err2 := time.Parse(time.RFC3339, fmt.Sprint(r.Get("lapses_at")))
				if err != nil || err2 != nil {
					t.Fatalf("%s", r.Body)
				}
				return end.Sub(filed)
			}
			if got := lasts(w.file(t, "default")); got != 7*24*time.Hour {
				t.Errorf("by default a request waits for %s", got)
			}
			life(2).Want(200)
			late, denied := w.file(t, "ada"), w.file(t, "bob")
			if got := lasts(late); got != 2*time.Hour {
				t.Errorf("the request waits for %s", got)
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
				t.Fatalf("request %d has no run", request)
				return nil
			}
			superseded := func(asked item, why string) {
				t.Helper()
				if r := run(asked.Data.Request); r["status"] != "superseded" || r["message"] != why || r["ended_at"] == nil {
					t.Errorf("the run is %v", r)
				}
				answer(t, asked.answer(t, s, body{"status": "approved"}), 409, "already_decided")
			}
			askedLate, askedDenied := queue.await(t, late), queue.await(t, denied)
			w.act(t, w.approver, denied, "deny", body{"reason": "no"}).Want(200)
			superseded(askedDenied, "the request for access is denied")

			w.passTime(t, "lapses_at", late)
			if r := w.request(t, late); r.Get("status") != "expired" || r.Get("decided_at") != nil || r.Get("starts_at") != nil {
				t.Errorf("nobody decided it: %s", r.Body)
			}
			answer(t, w.act(t, w.approver, late, "approve", body{"duration_seconds": 60}), 409, "already_decided")
			answer(t, w.act(t, w.app, late, "withdraw", nil), 409, "already_decided")
			ear.hears(t, "access_requested resolved access:%d", late)
			w.audited(t, "ACCESS_LAPSED", 1)
			superseded(askedLate, "the request for access is expired")
			if got := root(w.approver).Do(t, "GET", requests+"?status=expired", nil).Want(200).Get("total"); got != 1.0 {
				t.Errorf("%v are expired", got)
			}
			again := w.file(t, "ada")
			w.act(t, w.approver, again, "approve", body{"duration_seconds": 3600}).Want(200)
			w.says(t, "ada", "PERMIT")
		})
	}
}

// TestWithdrawnRequests: whoever filed a request takes it back, or whom it is for, and nobody else;
// then it is as if it had not been filed.
func TestWithdrawnRequests(t *testing.T) {
	for _, backend := range dbtest.Backends() {
		t.Run(backend, func(t *testing.T) {
			s := apptest.StartServer(t, backend, "GATEHOUSE_ALLOW_TARGETS=127.0.0.0/8")
			w := newAccessWorld(t, s)
			ear := newPager(t, s.Admin, "warning")
			s.Admin.Do(t, "POST", "/users", body{"id": "ada", "username": "ada", "email": "ada@example.com", "password": apptest.Password, "roles": []string{"viewer"}}).Want(201)
			ada := s.Login(t, "ada", apptest.Password)
			byApp, forAda := w.file(t, "bob"), w.file(t, "ADA@example.com")
			ear.hears(t, "access_requested firing access:%d", byApp)
			answer(t, w.act(t, w.approver, byApp, "withdraw", nil), 403, "permission_denied")
			answer(t, w.act(t, ada, byApp, "withdraw", nil), 404, "")
			answer(t, w.act(t, s.Key(t, s.Admin, "sandbox", "decisions:read"), byApp, "withdraw", nil), 404, "")
			back := w.act(t, w.app, byApp, "withdraw", nil).Want(200)
			if back.Get("status") != "withdrawn" || back.Get("ended_by") == nil || back.Get("ended_at") == nil || back.Get("decided_by") != nil {
				t.Errorf("withdrawn: %s", back.Body)
			}
			ear.hears(t, "access_requested resolved access:%d", byApp)
			answer(t, w.act(t, w.app, byApp, "withdraw", nil), 409, "already_decided")
			answer(t, w.act(t, w.approver, byApp, "approve", body{"duration_seconds": 60}), 409, "already_decided")
			w.says(t, "bob", "DENY")
			w.file(t, "bob")

			own := root(ada).Do(t, "POST", requests+"?environment=sandbox", body{"action": body{"name": "write"}, "resource": body{"id": "payroll"}, "reason": "x"}).Want(201).ID()
			w.act(t, ada, own, "withdraw", nil).Want(200)
			granted := w.file(t, "carol")
			w.act(t, w.approver, granted, "approve", body{"duration_seconds": 3600}).Want(200)
			answer(t, w.act(t, w.app, granted, "withdraw", nil), 409, "already_decided")
			w.says(t, "carol", "PERMIT")
			answer(t, w.act(t, ada, forAda, "withdraw", nil), 404, "") // of others' filings, people see those by their id
			if got := root(w.approver).Do(t, "GET", requests+"?status=withdrawn", nil).Want(200).Get("total"); got != 2.0 {
				t.Errorf("%v are withdrawn", got)
			}
			w.audited(t, "ACCESS_WITHDRAWN", 2)
		})
	}
}

// TestAgentsRequestAccess: the key of an AI agent files, lists and withdraws requests for that
// agent, and knows of no others.
func TestAgentsRequestAccess(t *testing.T) {
	apptest.Each(t, func(t *testing.T, s *apptest.Server) {
		w := newAccessWorld(t, s)
		agent := func(name string) (string, *apptest.Client) {
			id := s.Admin.Do(t, "POST", "/ai-agents", body{"name": name, "type": "llm"}).Want(201).ID()
			key, _ := s.Admin.Do(t, "POST", fmt.Sprintf("/ai-agents/%d/keys", id), body{}).Want(201).Get("key").(string)
			return fmt.Sprintf("agent:%d", id), &apptest.Client{Base: s.Admin.Base, APIKey: key}
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
			answer(t, file(who), 403, "other_subject")
		}
		id := file(nil).Want(201).ID()
		if r := w.request(t, id); r.Get("subject_id") != subject || r.Get("requested_by") != "clerk" {
			t.Errorf("filed: %s", r.Body)
		}
		answer(t, file(body{"type": "agent", "id": strings.TrimPrefix(subject, "agent:")}), 409, "already_requested")
		sees := func(c *apptest.Client, total float64) {
			t.Helper()
			if got := root(c).Do(t, "GET", requests, nil).Want(200); got.Get("total") != total {
				t.Errorf("%s instead of %v", got.Body, total)
			}
		}
		w.file(t, "ada")
		forOther := w.file(t, stranger) // an application may file for an agent
		sees(bot, 1)
		sees(other, 1)
		answer(t, w.act(t, other, id, "withdraw", nil), 404, "")
		w.act(t, other, forOther, "withdraw", nil).Want(200)
		answer(t, w.act(t, bot, id, "approve", body{"duration_seconds": 60}), 403, "permission_denied")
		answer(t, w.act(t, bot, id, "revoke", body{"reason": "x"}), 403, "permission_denied")
		w.act(t, bot, id, "withdraw", nil).Want(200)
		id = file(body{"id": subject}).Want(201).ID()
		w.act(t, w.approver, id, "approve", body{"duration_seconds": 3600}).Want(200)
		w.says(t, subject, "PERMIT")
		w.says(t, stranger, "DENY")
		s.Admin.Do(t, "PUT", "/ai-agents/"+strings.TrimPrefix(subject, "agent:"), body{"status": "inactive"}).Want(200)
		root(bot).Do(t, "GET", requests, nil).Want(401)
	})
}
