package delivery_test

import (
	"fmt"
	"testing"

	"github.com/gatehouse-dev/gatehouse/internal/app/apptest"
	"github.com/gatehouse-dev/gatehouse/internal/db/dbtest"
)

// TestAccessMessages checks that a channel gets a message about each request for access and about
// its decision, whoever made it, and that a removed agent keeps no grant.
func TestAccessMessages(t *testing.T) {
	for _, backend := range dbtest.Backends() {
		t.Run(backend, func(t *testing.T) {
			s := apptest.StartServer(t, backend, "GATEHOUSE_ALLOW_TARGETS=127.0.0.0/8")
			w := newAccessFixture(t, s)
			ch := newChannel(t, s.Admin, "warning")
			wantMessage := func(status string, id int64) {
				t.Helper()
				ch.waitFor(t, "access_requested %s access:%d", status, id)
			}

			agent := s.Admin.Do(t, "POST", "/ai-agents", body{"name": "clerk", "type": "llm"}).Want(201).ID()
			subject := fmt.Sprintf("agent:%d", agent)
			granted, denied, left := w.fileRequest(t, "ada"), w.fileRequest(t, "bob"), w.fileRequest(t, subject)
			for _, id := range []int64{granted, denied, left} {
				wantMessage("firing", id)
			}
			w.act(t, w.approver, granted, "approve", body{"duration_seconds": 3600}).Want(200)
			wantMessage("resolved", granted)
			w.act(t, w.approver, denied, "deny", body{"reason": "no"}).Want(200)
			wantMessage("resolved", denied)

			s.Admin.Do(t, "DELETE", fmt.Sprintf("/ai-agents/%d", agent), nil).Want(200)
			wantMessage("resolved", left)
			if res := w.request(t, left); res.Get("status") != "denied" || res.Get("decision_reason") != "the agent was removed" {
				t.Errorf("the removed agent's request = %s, want denied because the agent was removed", res.Body)
			}
		})
	}
}
