package delivery_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/app/apptest"
	"github.com/gatehouse-dev/gatehouse/internal/db/dbtest"
	"github.com/gatehouse-dev/gatehouse/internal/fulltest"
)

// TestAccessMessages: a channel hears of each request for access, and that it was decided,
// whoever or whatever decided it. An agent that is removed keeps no grant.
func TestAccessMessages(t *testing.T) {
	fulltest.Only(t)
	for _, backend := range dbtest.Backends() {
		t.Run(backend, func(t *testing.T) {
			var mu sync.Mutex
			heard := map[string]int{}
			pager := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
				var m struct{ Alert, Status, Fault string }
				if err := json.NewDecoder(r.Body).Decode(&m); err != nil {
					t.Error(err)
				}
				mu.Lock()
				heard[m.Alert+" "+m.Status+" "+m.Fault]++
				mu.Unlock()
			}))
			t.Cleanup(pager.Close)
			s := apptest.StartServer(t, backend, "GATEHOUSE_ALLOW_TARGETS=127.0.0.0/8")
			w := newAccessWorld(t, s)
			s.Admin.Do(t, "POST", "/notifications/channels", body{"name": "approvers", "type": "webhook", "endpoint": pager.URL, "environment": "sandbox", "severity_threshold": "warning"}).Want(201)
			hears := func(status string, id int64) {
				t.Helper()
				message := fmt.Sprintf("access_requested %s access:%d", status, id)
				apptest.Eventually(t, time.Minute, func() error {
					mu.Lock()
					defer mu.Unlock()
					if heard[message] == 0 {
						return fmt.Errorf("no %q among %v", message, heard)
					}
					return nil
				})
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
