package delivery_test

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/app/apptest"
	"github.com/gatehouse-dev/gatehouse/internal/db/dbtest"
)

const glassKey = "a-key-of-24-random-bytes-or-more"

// glass is a break-glass system with the credential of its integration.
type glass struct {
	s   *apptest.Server
	id  int64
	key string
}

// send sends a message, signed for a time.
func (g glass) send(t *testing.T, id string, at time.Time, doc body) *apptest.Response {
	t.Helper()
	raw, err := json.Marshal(doc)
	if err != nil {
		t.Fatal(err)
	}
	stamp := strconv.FormatInt(at.Unix(), 10)
	mac := hmac.New(sha256.New, []byte(g.key))
	mac.Write([]byte(id + "." + stamp + "." + string(raw)))
	c := g.s.Anonymous().With("Webhook-Id", id).With("Webhook-Timestamp", stamp).With("Webhook-Signature", "v1,"+base64.StdEncoding.EncodeToString(mac.Sum(nil)))
	return c.Do(t, "POST", fmt.Sprintf("/integrations/%d/break-glass", g.id), raw)
}

// TestBreakGlass: a break-glass system and an operator open grants in an emergency, loudly, and
// end them. What is not signed, old, sent twice, or asks for too much opens nothing.
func TestBreakGlass(t *testing.T) {
	for _, backend := range dbtest.Backends() {
		t.Run(backend, func(t *testing.T) {
			s := apptest.StartServer(t, backend, "GATEHOUSE_ALLOW_TARGETS=127.0.0.0/8")
			w, told := newAccessWorld(t, s), newApprovals(t)
			a := s.Admin
			draft := body{"name": "glass", "kind": "break_glass_bridge", "endpoint": told.URL, "credential": "short", "environment": "sandbox", "settings": body{"longest_grant": "15m"}}
			answer(t, a.Do(t, "POST", "/integrations", draft), 422, "validation_failed")
			draft["credential"] = glassKey
			g := glass{s, a.Do(t, "POST", "/integrations", draft).Want(201).ID(), glassKey}
			draft["name"] = "another"
			other := glass{s, a.Do(t, "POST", "/integrations", draft).Want(201).ID(), glassKey}
			a.Do(t, "POST", "/notifications/channels", body{"name": "on call", "type": "webhook", "endpoint": told.URL + "/pager", "environment": "sandbox", "severity_threshold": "critical"}).Want(201)
			open := func(more body) body {
				m := body{"type": "open", "subject": body{"id": "ada"}, "action": body{"name": "read"}, "resource": body{"id": "payroll"}, "reason": "INC-1", "duration_seconds": 900, "by": "carol"}
				for name, v := range more {
					m[name] = v
				}
				return m
			}
			now := time.Now()
			list := func(query string) *apptest.Response {
				t.Helper()
				return root(w.approver).Do(t, "GET", requests+query, nil).Want(200)
			}

			// What is wrong opens nothing.
			thief := g
			thief.key += "x"
			answer(t, thief.send(t, "m1", now, open(nil)), 401, "invalid_signature")
			answer(t, g.send(t, "m1", now.Add(-6*time.Minute), open(nil)), 401, "invalid_signature")
			answer(t, g.send(t, "m1", now.Add(6*time.Minute), open(nil)), 401, "invalid_signature")
			answer(t, glass{s, 4711, glassKey}.send(t, "m1", now, open(nil)), 401, "invalid_signature")
			for _, wrong := range []body{{"reason": " "}, {"duration_seconds": 901}, {"duration_seconds": 0}, {"subject": body{}}, {"subject": body{"id": "a\u202eb"}}, {"action": body{"name": "a\nb"}}, {"environment": "production"}, {"type": "close"}, {"colour": "red"}} {
				answer(t, g.send(t, "m1", now, open(wrong)), 422, "validation_failed")
			}
			answer(t, g.send(t, "m1", now, open(body{"resource": body{"id": "nothing"}})), 404, "not_found")
			if got := list(""); got.Get("total") != 0.0 {
				t.Errorf("opened: %s", got.Body)
			}

			// A grant counts at once, and everybody hears of it.
			w.says(t, "ada", "DENY")
			opened := g.send(t, "m1", now, open(nil)).Want(200)
			id := int64(opened.Get("request_id").(float64))
			w.says(t, "ada", "PERMIT")
			answer(t, g.send(t, "m1", now, open(nil)), 409, "already_received")
			got := root(w.approver).Do(t, "GET", fmt.Sprintf("%s/%d", requests, id), nil).Want(200)
			for member, want := range map[string]any{"status": "approved", "break_glass": true, "requested_by": "glass: carol", "reason": "INC-1", "expires_at": opened.Get("expires_at")} {
				if got.Get(member) != want {
					t.Errorf("%s is %v, want %v", member, got.Get(member), want)
				}
			}
			hears := func(kind string, request int64) {
				t.Helper()
				apptest.Eventually(t, time.Minute, func() error {
					told.mu.Lock()
					defer told.mu.Unlock()
					for _, it := range told.got {
						if it.Type == kind && it.Data.Request == request {
							return nil
						}
					}
					return fmt.Errorf("no %s of %d among %d messages", kind, request, len(told.got))
				})
			}
			hears("break_glass.opened", id)
			deliveries := a.Do(t, "GET", "/notifications/deliveries?alert=break_glass&environment=sandbox", nil).Want(200)
			if deliveries.Get("total") != 1.0 || !strings.Contains(string(deliveries.Body), `"critical"`) {
				t.Errorf("deliveries: %s", deliveries.Body)
			}

			// Its bridge ends it, and no other.
			end := body{"type": "end", "request_id": id, "reason": "solved", "by": "carol"}
			answer(t, other.send(t, "e1", now, end), 404, "not_found")
			w.says(t, "ada", "PERMIT")
			answer(t, g.send(t, "e2", now, end), 200, "")
			w.says(t, "ada", "DENY")
			answer(t, g.send(t, "e3", now, end), 409, "not_granted")
			hears("break_glass.ended", id)
			a.Do(t, "PUT", fmt.Sprintf("/integrations/%d", g.id), body{"enabled": false}).Want(200)
			answer(t, g.send(t, "m2", now, open(nil)), 409, "integration_disabled")

			// An operator opens one too, not for themselves, and revokes it.
			ask := body{"subject": body{"id": "dan"}, "action": body{"name": "read"}, "resource": body{"id": "payroll"}, "reason": "INC-2", "duration_seconds": 600}
			own := body{"action": body{"name": "read"}, "resource": body{"id": "payroll"}, "reason": "INC-2", "duration_seconds": 600, "subject": body{"id": "BOSS"}}
			at := requests + "/break-glass?environment=sandbox"
			answer(t, root(w.approver).Do(t, "POST", at, own), 403, "own_request")
			answer(t, root(w.app).Do(t, "POST", at, ask), 403, "permission_denied")
			answer(t, root(w.Key(t, a, "sandbox", "decisions:read", "resources:write")).Do(t, "POST", at, ask), 403, "person_required")
			ask["duration_seconds"] = 86401
			answer(t, root(w.approver).Do(t, "POST", at, ask), 422, "validation_failed")
			ask["duration_seconds"] = 600
			dan := root(w.approver).Do(t, "POST", at, ask).Want(201).ID()
			w.says(t, "dan", "PERMIT")
			w.act(t, w.approver, dan, "revoke", body{"reason": "solved"}).Want(200)
			w.says(t, "dan", "DENY")

			log := string(a.Do(t, "GET", "/audit/events?limit=1000", nil).Want(200).Body)
			if strings.Count(log, `"BREAK_GLASS_OPENED"`) != 2 || strings.Count(log, `"BREAK_GLASS_ENDED"`) != 2 || strings.Contains(log+s.Log.String(), glassKey) {
				t.Errorf("the audit is %s", log)
			}
		})
	}
}
