package delivery_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/app/apptest"
	"github.com/gatehouse-dev/gatehouse/internal/db/dbtest"
)

// openGlass opens a break-glass grant of ada as an operator.
func (w *accessWorld) openGlass(t *testing.T, seconds int) int64 {
	t.Helper()
	return root(w.approver).Do(t, "POST", requests+"/break-glass?environment=sandbox", body{
		"subject": body{"id": "ada"}, "action": body{"name": "read"}, "resource": body{"id": "payroll"}, "reason": "INC-7", "duration_seconds": seconds,
	}).Want(201).ID()
}

// TestBreakGlassAtABouncer: a bouncer lets a request pass while a break-glass grant lasts, and
// refuses it after the end, by itself.
func TestBreakGlassAtABouncer(t *testing.T) {
	for _, backend := range dbtest.Backends() {
		t.Run(backend, func(t *testing.T) {
			w := newAccessWorld(t, apptest.StartServer(t, backend))
			apptest.Enforce(t, w.Admin, "sandbox")
			app, _ := apptest.Application(t)
			b := w.Bouncer(t, w.Admin, body{"name": "b", "environment": "sandbox", "resource_ids": []int64{w.resource}}, app)
			ada, bob := b.As("ada", ""), b.As("bob", "")
			apptest.WaitForStatus(t, ada, "/payroll", 403, time.Minute)
			// passed: the grant reached the bouncer before its end. A busy machine may need longer
			// for the bundle than a short grant lasts.
			passed := func(seconds int) (passed bool) {
				id := w.openGlass(t, seconds)
				apptest.Eventually(t, 3*time.Minute, func() error {
					r, err := ada.Try("GET", "/payroll", nil)
					if passed = err == nil && r.Status == 200; passed || w.request(t, id).Get("status") == "expired" {
						return nil
					}
					return fmt.Errorf("%v %v", r, err)
				})
				return passed
			}
			for seconds := 5; !passed(seconds); seconds *= 2 {
				if seconds > 80 {
					t.Fatalf("a grant of %d seconds did not reach the bouncer", seconds)
				}
			}
			apptest.WaitForStatus(t, bob, "/payroll", 403, time.Minute)
			w.Kill() // nobody tells the bouncer of the end
			apptest.WaitForStatus(t, ada, "/payroll", 403, 3*time.Minute)
		})
	}
}

// TestBreakGlassEndsByItself: channels and the break-glass system hear of the end of a grant that
// nobody ended, once.
func TestBreakGlassEndsByItself(t *testing.T) {
	for _, backend := range dbtest.Backends() {
		t.Run(backend, func(t *testing.T) {
			s := apptest.StartServer(t, backend, "GATEHOUSE_ALLOW_TARGETS=127.0.0.0/8")
			w, told := newAccessWorld(t, s), newApprovals(t)
			ear := newPager(t, s.Admin, "critical")
			s.Admin.Do(t, "POST", "/integrations", body{"name": "glass", "kind": "break_glass_bridge", "endpoint": told.URL, "credential": glassKey, "environment": "sandbox"}).Want(201)
			id := w.openGlass(t, 3600)
			w.says(t, "ada", "PERMIT")
			ear.hears(t, "break_glass firing break_glass:%d", id)

			w.passTime(t, "expires_at", id)
			w.says(t, "ada", "DENY")
			ear.hears(t, "break_glass resolved break_glass:%d", id)
			w.audited(t, "BREAK_GLASS_ENDED", 1)
			apptest.Eventually(t, time.Minute, func() error {
				told.mu.Lock()
				defer told.mu.Unlock()
				for _, it := range told.got {
					if it.Type == "break_glass.ended" && it.Data.Request == id {
						return nil
					}
				}
				return fmt.Errorf("no end among %d messages", len(told.got))
			})
			if r := w.request(t, id); r.Get("status") != "expired" || r.Get("ended_at") != r.Get("expires_at") || r.Get("ended_by") != nil {
				t.Errorf("the grant is %s", r.Body)
			}
			if log := string(w.Admin.Do(t, "GET", "/audit/events?limit=1000", nil).Want(200).Body); strings.Count(log, `"BREAK_GLASS_ENDED"`) != 1 || strings.Contains(log, "ACCESS_EXPIRED") {
				t.Errorf("the audit is %s", log)
			}
		})
	}
}
