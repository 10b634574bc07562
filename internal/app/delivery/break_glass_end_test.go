package delivery_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/app/apptest"
	"github.com/gatehouse-dev/gatehouse/internal/db/dbtest"
)

// openBreakGlass opens a break-glass grant for ada as an operator.
func (w *accessFixture) openBreakGlass(t *testing.T, seconds int) int64 {
	t.Helper()
	return root(w.approver).Do(t, "POST", requests+"/break-glass?environment=sandbox", body{
		"subject": body{"id": "ada"}, "action": body{"name": "read"}, "resource": body{"id": "payroll"}, "reason": "INC-7", "duration_seconds": seconds,
	}).Want(201).ID()
}

// TestBreakGlassAtABouncer checks that a bouncer permits a request during a break-glass grant, and
// refuses it after the grant's end without the server.
func TestBreakGlassAtABouncer(t *testing.T) {
	for _, backend := range dbtest.Backends() {
		t.Run(backend, func(t *testing.T) {
			w := newAccessFixture(t, apptest.StartServer(t, backend))
			apptest.Enforce(t, w.Admin, "sandbox")
			app, _ := apptest.Application(t)
			b := w.Bouncer(t, w.Admin, body{"name": "b", "environment": "sandbox", "resource_ids": []int64{w.resource}}, app)
			ada, bob := b.As("ada", ""), b.As("bob", "")
			apptest.WaitForStatus(t, ada, "/payroll", 403, time.Minute)
			// grantReaches reports whether a grant reaches the bouncer before its end. On a busy machine,
			// the bundle may need longer than a short grant.
			grantReaches := func(seconds int) (reached bool) {
				id := w.openBreakGlass(t, seconds)
				apptest.Eventually(t, 3*time.Minute, func() error {
					r, err := ada.Try("GET", "/payroll", nil)
					if reached = err == nil && r.Status == 200; reached || w.request(t, id).Get("status") == "expired" {
						return nil
					}
					return fmt.Errorf("GET /payroll at the bouncer = %v %v, want 200", r, err)
				})
				return reached
			}
			for seconds := 5; !grantReaches(seconds); seconds *= 2 {
				if seconds > 80 {
					t.Fatalf("a grant of %d seconds ended before it reached the bouncer", seconds)
				}
			}
			apptest.WaitForStatus(t, bob, "/payroll", 403, time.Minute)
			w.Kill() // the bouncer ends the grant alone
			apptest.WaitForStatus(t, ada, "/payroll", 403, 3*time.Minute)
		})
	}
}

// TestBreakGlassEndsByItself checks that channels and the break-glass system get one message about the
// end of a grant that nobody ended.
func TestBreakGlassEndsByItself(t *testing.T) {
	for _, backend := range dbtest.Backends() {
		t.Run(backend, func(t *testing.T) {
			s := apptest.StartServer(t, backend, "GATEHOUSE_ALLOW_TARGETS=127.0.0.0/8")
			w, system := newAccessFixture(t, s), newApprovals(t)
			ch := newChannel(t, s.Admin, "critical")
			s.Admin.Do(t, "POST", "/integrations", body{"name": "glass", "kind": "break_glass_bridge", "endpoint": system.URL, "credential": glassKey, "environment": "sandbox"}).Want(201)
			id := w.openBreakGlass(t, 3600)
			w.wantDecision(t, "ada", "PERMIT")
			ch.waitFor(t, "break_glass firing break_glass:%d", id)

			w.movePast(t, "expires_at", id)
			w.wantDecision(t, "ada", "DENY")
			ch.waitFor(t, "break_glass resolved break_glass:%d", id)
			w.waitForAudit(t, "BREAK_GLASS_ENDED", 1)
			system.waitFor(t, "break_glass.ended", id)
			if r := w.request(t, id); r.Get("status") != "expired" || r.Get("ended_at") != r.Get("expires_at") || r.Get("ended_by") != nil {
				t.Errorf("the grant is %s, want expired and ended by nobody", r.Body)
			}
			if log := string(w.Admin.Do(t, "GET", "/audit/events?limit=1000", nil).Want(200).Body); strings.Count(log, `"BREAK_GLASS_ENDED"`) != 1 || strings.Contains(log, "ACCESS_EXPIRED") {
				t.Errorf("the audit is %s, want one BREAK_GLASS_ENDED and no ACCESS_EXPIRED", log)
			}
		})
	}
}
