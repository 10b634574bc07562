package delivery_test

import (
	"fmt"
	"testing"

	"github.com/gatehouse-dev/gatehouse/internal/app/apptest"
	"github.com/gatehouse-dev/gatehouse/internal/db/dbtest"
)

// TestAccessMessages: a channel hears of each request for access, and that it was decided,
// whoever or whatever decided it. An agent that is removed keeps no grant.
func TestAccessMessages(t *testing.T) {
	for _, backend := range dbtest.Backends() {
		t.Run(backend, func(t *testing.T) {
			s := apptest.StartServer(t, backend, "GATEHOUSE_ALLOW_TARGETS=127.0.0.0/8")
			w := newAccessWorld(t, s)
			ear := newPager(t, s.Admin, "warning")
			hears := func(status string, id int64) {
				t.Helper()
				ear.hears(t, "access_requested %s access:%d", status, id)
			}

			agent := s.Admin.Do(t, "POST", "/ai-agents", body{"name": "clerk", "type": "llm"}).Want(201).ID()
			subject := fmt.Sprintf("agent:%d", agent)
			granted, denied, left := w.file(t, "ada"), w.file(t, "bob"), w.file(t, subject)
			for _, id := range []int64{granted, denied, left} {
				hears("firing", id)
			}
			w.act(t, w.approver, granted, "approve", body{"duration_seconds": 3600}).Want(200)
			hears("resolved", granted)
			w.act(t, w.approver, denied, "deny", body{"reason": "no"}).Want(200)
			hears("resolved", denied)

			s.Admin.Do(t, "DELETE", fmt.Sprintf("/ai-agents/%d", agent), nil).Want(200)
			hears("resolved", left)
			if res := w.request(t, left); res.Get("status") != "denied" || res.Get("decision_reason") != "the agent was removed" {
				t.Errorf("the agent's request: %s", res.Body)
			}
		})
	}
}
