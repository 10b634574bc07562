package delivery_test

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/app/apptest"
	"github.com/gatehouse-dev/gatehouse/internal/db/dbtest"
	"github.com/gatehouse-dev/gatehouse/internal/errtest"
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
	errtest.Must(t, err)
	stamp := strconv.FormatInt(at.Unix(), 10)
	mac := hmac.New(sha256.New, []byte(g.key))
	mac.Write([]byte(id + "." + stamp + "." + string(raw)))
	c := g.s.Anonymous().With("Webhook-Id", id).With("Webhook-Timestamp", stamp).With("Webhook-Signature", "v1,"+base64.StdEncoding.EncodeToString(mac.Sum(nil)))
	return c.Do(t, "POST", fmt.Sprintf("/integrations/%d/break-glass", g.id), raw)
}

// TestBreakGlass checks that a break-glass system and an operator can open and end grants in an
// emergency, with messages to everybody. An unsigned, old, repeated or excessive message opens nothing.
func TestBreakGlass(t *testing.T) {
	for _, backend := range dbtest.Backends() {
		t.Run(backend, func(t *testing.T) {
			s := apptest.StartServer(t, backend, "GATEHOUSE_ALLOW_TARGETS=127.0.0.0/8")
			w, system := newAccessFixture(t, s), newApprovals(t)
			a := s.Admin
			draft := body{"name": "glass", "kind": "break_glass_bridge", "endpoint": system.URL, "credential": "short", "environment": "sandbox", "settings": body{"longest_grant": "15m"}}
			a.Do(t, "POST", "/integrations", draft).WantError(422, "validation_failed")
			draft["credential"] = glassKey
			g := glass{s, a.Do(t, "POST", "/integrations", draft).Want(201).ID(), glassKey}
			draft["name"] = "another"
			other := glass{s, a.Do(t, "POST", "/integrations", draft).Want(201).ID(), glassKey}
			a.Do(t, "POST", "/notifications/channels", body{"name": "on call", "type": "webhook", "endpoint": system.URL + "/pager", "environment": "sandbox", "severity_threshold": "critical"}).Want(201)
			open := func(more body) body {
				m := body{"type": "open", "subject": body{"id": "ada"}, "action": body{"name": "read"}, "resource": body{"id": "payroll"}, "reason": "INC-1", "duration_seconds": 900, "by": "carol"}
				maps.Copy(m, more)
				return m
			}
			now := time.Now()

			// A wrong message opens nothing.
			thief := g
			thief.key += "x"
			thief.send(t, "m1", now, open(nil)).WantError(401, "invalid_signature")
			g.send(t, "m1", now.Add(-6*time.Minute), open(nil)).WantError(401, "invalid_signature")
			g.send(t, "m1", now.Add(6*time.Minute), open(nil)).WantError(401, "invalid_signature")
			glass{s, 4711, glassKey}.send(t, "m1", now, open(nil)).WantError(401, "invalid_signature")
			for _, wrong := range []body{{"reason": " "}, {"duration_seconds": 901}, {"duration_seconds": 0}, {"subject": body{}}, {"subject": body{"id": "a\u202eb"}}, {"action": body{"name": "a\nb"}}, {"environment": "production"}, {"type": "close"}, {"colour": "red"}} {
				g.send(t, "m1", now, open(wrong)).WantError(422, "validation_failed")
			}
			g.send(t, "m1", now, open(body{"resource": body{"id": "nothing"}})).WantError(404, "not_found")
			if got := root(w.approver).Do(t, "GET", requests, nil).Want(200); got.Get("total") != 0.0 {
				t.Errorf("the grants after wrong messages are %s, want none", got.Body)
			}

			// A grant applies at once, and everybody gets a message.
			w.wantDecision(t, "ada", "DENY")
			opened := g.send(t, "m1", now, open(nil)).Want(200)
			id := int64(opened.Get("request_id").(float64))
			w.wantDecision(t, "ada", "PERMIT")
			g.send(t, "m1", now, open(nil)).WantError(409, "already_received")
			got := w.request(t, id)
			for member, want := range map[string]any{"status": "approved", "break_glass": true, "requested_by": "glass: carol", "reason": "INC-1", "expires_at": opened.Get("expires_at")} {
				if got.Get(member) != want {
					t.Errorf("the grant's %s is %v, want %v", member, got.Get(member), want)
				}
			}
			system.waitFor(t, "break_glass.opened", id)
			deliveries := a.Do(t, "GET", "/notifications/deliveries?alert=break_glass&environment=sandbox", nil).Want(200)
			if deliveries.Get("total") != 1.0 || !strings.Contains(string(deliveries.Body), `"critical"`) {
				t.Errorf("the deliveries are %s, want one critical", deliveries.Body)
			}

			// Only the bridge that opened the grant can end it.
			end := body{"type": "end", "request_id": id, "reason": "solved", "by": "carol"}
			other.send(t, "e1", now, end).WantError(404, "not_found")
			w.wantDecision(t, "ada", "PERMIT")
			g.send(t, "e2", now, end).Want(200)
			w.wantDecision(t, "ada", "DENY")
			g.send(t, "e3", now, end).WantError(409, "not_granted")
			system.waitFor(t, "break_glass.ended", id)
			a.Do(t, "PUT", fmt.Sprintf("/integrations/%d", g.id), body{"enabled": false}).Want(200)
			g.send(t, "m2", now, open(nil)).WantError(409, "integration_disabled")

			// An operator can open and revoke a grant, but not for themselves.
			ask := body{"subject": body{"id": "dan"}, "action": body{"name": "read"}, "resource": body{"id": "payroll"}, "reason": "INC-2", "duration_seconds": 600}
			own := body{"action": body{"name": "read"}, "resource": body{"id": "payroll"}, "reason": "INC-2", "duration_seconds": 600, "subject": body{"id": "BOSS"}}
			at := requests + "/break-glass?environment=sandbox"
			root(w.approver).Do(t, "POST", at, own).WantError(403, "own_request")
			root(w.app).Do(t, "POST", at, ask).WantError(403, "permission_denied")
			root(w.Key(t, a, "sandbox", "decisions:read", "resources:write")).Do(t, "POST", at, ask).WantError(403, "person_required")
			ask["duration_seconds"] = 86401
			root(w.approver).Do(t, "POST", at, ask).WantError(422, "validation_failed")
			ask["duration_seconds"] = 600
			dan := root(w.approver).Do(t, "POST", at, ask).Want(201).ID()
			w.wantDecision(t, "dan", "PERMIT")
			w.act(t, w.approver, dan, "revoke", body{"reason": "solved"}).Want(200)
			w.wantDecision(t, "dan", "DENY")

			log := string(a.Do(t, "GET", "/audit/events?limit=1000", nil).Want(200).Body)
			if strings.Count(log, `"BREAK_GLASS_OPENED"`) != 2 || strings.Count(log, `"BREAK_GLASS_ENDED"`) != 2 || strings.Contains(log+s.Log.String(), glassKey) {
				t.Errorf("the audit is %s, want two grants opened and ended, and no key", log)
			}
		})
	}
}
