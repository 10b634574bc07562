package delivery_test

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/gatehouse-dev/gatehouse/internal/app/apptest"
)

// TestAccessOfLeavers checks that a disabled or deleted person loses all grants and waiting requests,
// under each of their names. They do not come back, and a later person with the same id gets and sees
// none of them.
func TestAccessOfLeavers(t *testing.T) {
	apptest.Each(t, func(t *testing.T, s *apptest.Server) {
		w := newAccessFixture(t, s)
		hour := body{"duration_seconds": 3600}
		ada := body{"id": "ada", "username": "ada.lee", "email": "ada@example.com", "password": apptest.Password, "roles": []string{"viewer"}}
		add := func() { s.Admin.Do(t, "POST", "/users", ada).Want(201) }
		add()
		granted := map[string]int64{}
		for _, name := range []string{"ada", "Ada.Lee", "ada@example.com", "bob"} {
			granted[name] = w.fileRequest(t, name)
			w.act(t, w.approver, granted[name], "approve", hour).Want(200)
			w.wantDecision(t, name, "PERMIT")
		}
		ask := func(c *apptest.Client) int64 {
			return root(c).Do(t, "POST", requests+"?environment=sandbox", body{"action": body{"name": "write"}, "resource": body{"id": "payroll"}, "reason": "x"}).Want(201).ID()
		}
		waiting := ask(s.Login(t, "ada.lee", apptest.Password))

		s.Admin.Do(t, "PUT", "/users/ada", body{"status": "disabled"}).Want(200)
		wantEnded := func() {
			t.Helper()
			for name := range granted {
				want := "DENY"
				if name == "bob" {
					want = "PERMIT"
				}
				w.wantDecision(t, name, want)
			}
		}
		wantEnded()
		for id, want := range map[int64]string{waiting: "denied", granted["ada"]: "revoked", granted["Ada.Lee"]: "revoked", granted["bob"]: "approved"} {
			if res := w.request(t, id); res.Get("status") != want || want != "approved" && res.Get("decision_reason") != "the person was disabled" {
				t.Errorf("the request %d is %s, want %s because the person was disabled", id, res.Body, want)
			}
		}
		w.act(t, w.approver, waiting, "approve", hour).WantError(409, "already_decided")
		for _, name := range []string{"ada", "Ada.Lee", "ada@example.com"} { // an application does not know that the person is disabled
			id := w.fileRequest(t, name)
			w.act(t, w.approver, id, "approve", hour).WantError(409, "subject_disabled")
			w.act(t, w.approver, id, "deny", body{"reason": "left"}).Want(200)
		}
		s.Admin.Do(t, "PUT", "/users/ada", body{"status": "active"}).Want(200)
		wantEnded()

		again := w.fileRequest(t, "ada")
		w.act(t, w.approver, again, "approve", hour).Want(200)
		w.wantDecision(t, "ada", "PERMIT")
		waiting = ask(s.Login(t, "ada.lee", apptest.Password))
		s.Admin.Do(t, "DELETE", "/users/ada", nil).Want(200)
		add()
		wantEnded()
		w.act(t, w.approver, waiting, "approve", hour).Want(404)
		if res := root(s.Login(t, "ada.lee", apptest.Password)).Do(t, "GET", requests, nil).Want(200); res.Get("total") != 0.0 {
			t.Errorf("the new person's requests are %s, want none", res.Body)
		}
		log := string(s.Admin.Do(t, "GET", "/audit/events?limit=1000", nil).Want(200).Body)
		if n := strings.Count(log, `"ACCESS_REVOKED"`); n != 4 {
			t.Errorf("the audit has %d revocations, want 4: %s", n, log)
		}
	})
}

// TestAccessOfRemovedResource checks that a grant ends with its resource, and does not apply to a later
// one with the same name.
func TestAccessOfRemovedResource(t *testing.T) {
	apptest.Each(t, func(t *testing.T, s *apptest.Server) {
		w := newAccessFixture(t, s)
		granted, waiting := w.fileRequest(t, "ada"), w.fileRequest(t, "bob")
		w.act(t, w.approver, granted, "approve", body{"duration_seconds": 3600}).Want(200)
		w.wantDecision(t, "ada", "PERMIT")
		control := fmt.Sprintf("/policies/%v", s.Admin.Do(t, "GET", "/policies?environment=sandbox", nil).Want(200).Get("policies", "0", "id"))
		s.Admin.Do(t, "PUT", control, body{"resource_id": nil}).Want(200)
		s.Admin.Do(t, "DELETE", fmt.Sprintf("/resources/%d", w.resource), nil).Want(200)
		w.resource = s.Admin.Do(t, "POST", "/resources", body{"name": "payroll", "type": "api", "path": "/payroll", "environment": "sandbox"}).Want(201).ID()
		s.Admin.Do(t, "PUT", control, body{"resource_id": w.resource}).Want(200)
		w.wantDecision(t, "ada", "DENY")
		for id, want := range map[int64]string{granted: "revoked", waiting: "denied"} {
			if res := w.request(t, id); res.Get("status") != want || res.Get("decision_reason") != "the resource was removed" {
				t.Errorf("the request %d is %s, want %s because the resource was removed", id, res.Body, want)
			}
		}
	})
}

// request returns a request as an approver sees it.
func (w *accessFixture) request(t *testing.T, id int64) *apptest.Response {
	t.Helper()
	return root(w.approver).Do(t, "GET", requests+"/"+strconv.FormatInt(id, 10), nil).Want(200)
}
