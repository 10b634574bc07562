package delivery_test

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/gatehouse-dev/gatehouse/internal/app/apptest"
)

// TestAccessOfLeavers: whoever is disabled or removed loses what was granted, by whichever
// name, and what waits; it does not come back, and a later person with the same id has and
// sees nothing of it.
func TestAccessOfLeavers(t *testing.T) {
	apptest.Each(t, func(t *testing.T, s *apptest.Server) {
		w := newAccessWorld(t, s)
		hour := body{"duration_seconds": 3600}
		ada := body{"id": "ada", "username": "ada.lee", "email": "ada@example.com", "password": apptest.Password, "roles": []string{"viewer"}}
		add := func() { s.Admin.Do(t, "POST", "/users", ada).Want(201) }
		add()
		granted := map[string]int64{}
		for _, name := range []string{"ada", "Ada.Lee", "ada@example.com", "bob"} {
			granted[name] = w.file(t, name)
			w.act(t, w.approver, granted[name], "approve", hour).Want(200)
			w.says(t, name, "PERMIT")
		}
		ask := func(c *apptest.Client) int64 {
			return root(c).Do(t, "POST", requests+"?environment=sandbox", body{"action": body{"name": "write"}, "resource": body{"id": "payroll"}, "reason": "x"}).Want(201).ID()
		}
		waiting := ask(s.Login(t, "ada.lee", apptest.Password))

		s.Admin.Do(t, "PUT", "/users/ada", body{"status": "disabled"}).Want(200)
		ended := func() {
			t.Helper()
			for name := range granted {
				want := "DENY"
				if name == "bob" {
					want = "PERMIT"
				}
				w.says(t, name, want)
			}
		}
		ended()
		for id, want := range map[int64]string{waiting: "denied", granted["ada"]: "revoked", granted["Ada.Lee"]: "revoked", granted["bob"]: "approved"} {
			if res := w.request(t, id); res.Get("status") != want || want != "approved" && res.Get("decision_reason") != "the person was disabled" {
				t.Errorf("want %s: %s", want, res.Body)
			}
		}
		answer(t, w.act(t, w.approver, waiting, "approve", hour), 409, "already_decided")
		for _, name := range []string{"ada", "Ada.Lee", "ada@example.com"} { // an application does not know of it
			id := w.file(t, name)
			answer(t, w.act(t, w.approver, id, "approve", hour), 409, "subject_disabled")
			w.act(t, w.approver, id, "deny", body{"reason": "left"}).Want(200)
		}
		s.Admin.Do(t, "PUT", "/users/ada", body{"status": "active"}).Want(200)
		ended()

		again := w.file(t, "ada")
		w.act(t, w.approver, again, "approve", hour).Want(200)
		w.says(t, "ada", "PERMIT")
		waiting = ask(s.Login(t, "ada.lee", apptest.Password))
		s.Admin.Do(t, "DELETE", "/users/ada", nil).Want(200)
		add()
		ended()
		answer(t, w.act(t, w.approver, waiting, "approve", hour), 404, "")
		if res := root(s.Login(t, "ada.lee", apptest.Password)).Do(t, "GET", requests, nil).Want(200); res.Get("total") != 0.0 {
			t.Errorf("the new person sees %s", res.Body)
		}
		log := string(s.Admin.Do(t, "GET", "/audit/events?limit=1000", nil).Want(200).Body)
		if n := strings.Count(log, `"ACCESS_REVOKED"`); n != 4 {
			t.Errorf("the audit has %d revocations: %s", n, log)
		}
	})
}

// TestAccessOfRemovedResource: a grant ends with its resource, and does not hold for a later
// one with the same name.
func TestAccessOfRemovedResource(t *testing.T) {
	apptest.Each(t, func(t *testing.T, s *apptest.Server) {
		w := newAccessWorld(t, s)
		granted, waiting := w.file(t, "ada"), w.file(t, "bob")
		w.act(t, w.approver, granted, "approve", body{"duration_seconds": 3600}).Want(200)
		w.says(t, "ada", "PERMIT")
		control := fmt.Sprintf("/policies/%v", first(s.Admin.Do(t, "GET", "/policies?environment=sandbox", nil).Want(200).Get("policies"))["id"])
		s.Admin.Do(t, "PUT", control, body{"resource_id": nil}).Want(200)
		s.Admin.Do(t, "DELETE", fmt.Sprintf("/resources/%d", w.resource), nil).Want(200)
		w.resource = s.Admin.Do(t, "POST", "/resources", body{"name": "payroll", "type": "api", "path": "/payroll", "environment": "sandbox"}).Want(201).ID()
		s.Admin.Do(t, "PUT", control, body{"resource_id": w.resource}).Want(200)
		w.says(t, "ada", "DENY")
		for id, want := range map[int64]string{granted: "revoked", waiting: "denied"} {
			if res := w.request(t, id); res.Get("status") != want || res.Get("decision_reason") != "the resource was removed" {
				t.Errorf("want %s: %s", want, res.Body)
			}
		}
	})
}

// request is a request as an approver sees it.
func (w *accessWorld) request(t *testing.T, id int64) *apptest.Response {
	t.Helper()
	return root(w.approver).Do(t, "GET", requests+"/"+strconv.FormatInt(id, 10), nil).Want(200)
}
