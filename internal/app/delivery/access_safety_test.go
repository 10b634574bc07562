package delivery_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/gatehouse-dev/gatehouse/internal/app/apptest"
	"github.com/gatehouse-dev/gatehouse/internal/db/dbtest"
)

const requests = "/access/v1/requests"

// answer fails the test unless an answer has a status and an error code; "": none.
func answer(t *testing.T, r *apptest.Response, status int, code string) {
	t.Helper()
	if r.Want(status); code != "" && r.Get("error") != code {
		t.Errorf("%v instead of %s: %s", r.Get("error"), code, r.Body)
	}
}

// TestAccessIsolation: tenants and environments know nothing of each other's requests, and a subject does not approve their own.
func TestAccessIsolation(t *testing.T) {
	apptest.Each(t, func(t *testing.T, s *apptest.Server) {
		w := newAccessWorld(t, s)
		waiting, active := w.file(t, "ada"), w.file(t, "bob")
		w.act(t, w.approver, active, "approve", body{"duration_seconds": 3600}).Want(200)
		verbs := map[string]body{"approve": {"duration_seconds": 60}, "deny": {"reason": "x"}, "revoke": {"reason": "x"}}

		s.Admin.Do(t, "POST", "/tenants", body{"name": "Other"}).Want(201)
		other := s.Admin.With("X-Tenant-ID", "other")
		s.Admin.Do(t, "POST", "/users", body{"id": "mallory", "username": "mallory", "email": "m@example.com", "password": apptest.Password, "roles": []string{"viewer"}}).Want(201)
		viewer := s.Login(t, "mallory", apptest.Password)
		production := s.Key(t, s.Admin, "production", "decisions:read", "resources:write", "audit:read")
		// hidden: neither request is there for a caller, who learns no more than of one that never was.
		hidden := func(who string, c *apptest.Client, list string, hide bool) {
			t.Helper()
			if got := root(c).Do(t, "GET", requests+list, nil).Want(200).Get("total"); got != 0.0 {
				t.Errorf("%s sees %v requests", who, got)
			}
			never := root(c).Do(t, "GET", requests+"/999999", nil).Want(404).Get("message")
			for _, id := range []int64{waiting, active} {
				if got := root(c).Do(t, "GET", fmt.Sprintf("%s/%d", requests, id), nil).Want(404).Get("message"); got != never {
					t.Errorf("%s: %v instead of %v", who, got, never)
				}
				for verb, doc := range verbs {
					got := w.act(t, c, id, verb, doc)
					machine := verb != "revoke" && c.APIKey != "" // it is told that people decide, whatever it names
					if machine && got.Get("error") != "person_required" || hide && !machine && got.Status != 404 || got.Status < 400 {
						t.Errorf("%s: %s: %d %s", who, verb, got.Status, got.Body)
					}
				}
			}
		}
		hidden("another tenant", other, "", true)
		hidden("a production key", production, "", true)
		hidden("a colleague", viewer, "", false)
		for method, path := range map[string]string{"GET": requests + "?environment=sandbox", "POST": fmt.Sprintf("%s/%d/revoke?environment=sandbox", requests, active)} {
			if got := root(production).Do(t, method, path, verbs["revoke"]); got.Status != 403 || got.Get("error") != "environment_denied" {
				t.Errorf("%s %s: %d %s", method, path, got.Status, got.Body)
			}
		}
		ask := body{"subject": body{"id": "eve"}, "action": body{"name": "read"}, "resource": body{"id": fmt.Sprint(w.resource)}, "reason": "x"}
		answer(t, root(production).Do(t, "POST", requests+"?environment=sandbox", ask), 403, "environment_denied")
		answer(t, root(production).Do(t, "POST", requests, ask), 404, "")
		answer(t, root(other).Do(t, "POST", requests+"?environment=sandbox", body{"action": ask["action"], "resource": body{"id": "payroll"}, "reason": "x"}), 404, "")
		w.act(t, w.approver, waiting, "approve?environment=production", verbs["approve"]).Want(404)

		// Who filed or gets access does not approve, whoever else they are.
		own := root(w.approver).Do(t, "POST", requests+"?environment=sandbox", body{"action": body{"name": "write"}, "resource": ask["resource"], "reason": "x"}).Want(201).ID()
		for _, verb := range []string{"approve", "deny"} {
			answer(t, w.act(t, w.approver, own, verb, verbs[verb]), 403, "own_request")
		}
		w.act(t, s.Admin, own, "approve", verbs["approve"]).Want(200)

		for id, status := range map[int64]string{waiting: "pending", active: "approved"} {
			if got := root(w.approver).Do(t, "GET", fmt.Sprintf("%s/%d", requests, id), nil).Want(200).Get("status"); got != status {
				t.Errorf("request %d is %v", id, got)
			}
		}
		w.says(t, "ada", "DENY")
		w.says(t, "bob", "PERMIT")
	})
}

// atOnce sends requests together, and counts the answers by status.
func atOnce(t *testing.T, sends ...func() (*apptest.Response, error)) map[int]int {
	t.Helper()
	var (
		all   sync.WaitGroup
		mu    sync.Mutex
		count = map[int]int{}
	)
	for _, send := range sends {
		all.Go(func() {
			r, err := send()
			if err != nil {
				t.Error(err)
				return
			}
			mu.Lock()
			count[r.Status]++
			mu.Unlock()
		})
	}
	all.Wait()
	return count
}

// TestAccessRaces: of contrary decisions at once one counts, and the audit has it once.
func TestAccessRaces(t *testing.T) {
	apptest.Each(t, func(t *testing.T, s *apptest.Server) {
		w := newAccessWorld(t, s)
		send := func(c *apptest.Client, path string, doc body) func() (*apptest.Response, error) {
			return func() (*apptest.Response, error) { return root(c).Try("POST", path, doc) }
		}
		ask := body{"subject": body{"id": "ada"}, "action": body{"name": "read"}, "resource": body{"id": "payroll"}, "reason": "x"}
		one := send(w.app, requests+"?environment=sandbox", ask)
		if got := atOnce(t, one, one, one, one, one, one); got[201] != 1 || got[409] != 5 {
			t.Errorf("equal requests: %v", got)
		}
		want := map[string]int{"ACCESS_REQUESTED": 1}
		for id := int64(1); id <= 4; id++ {
			if id > 1 {
				if got := w.file(t, fmt.Sprintf("user-%d", id)); got != id {
					t.Fatalf("request %d instead of %d", got, id)
				}
				want["ACCESS_REQUESTED"]++
			}
			at := func(verb string) string { return fmt.Sprintf("%s/%d/%s", requests, id, verb) }
			approve, deny := send(w.approver, at("approve"), body{"duration_seconds": 3600}), send(s.Admin, at("deny"), body{"reason": "no"})
			if got := atOnce(t, approve, deny, approve, deny, approve, deny); got[200] != 1 || got[409] != 5 {
				t.Errorf("decisions: %v", got)
			}
			r := root(w.approver).Do(t, "GET", at("")[:len(at(""))-1], nil).Want(200)
			granted := r.Get("status") == "approved"
			if granted {
				want["ACCESS_APPROVED"]++
			} else if want["ACCESS_DENIED"]++; r.Get("expires_at") != nil {
				t.Errorf("a denied request ends: %s", r.Body)
			}
			revoke := send(w.approver, at("revoke"), body{"reason": "done"})
			if got := atOnce(t, revoke, revoke, revoke, approve); granted && (got[200] != 1 || got[409] != 3) || !granted && got[409] != 4 {
				t.Errorf("revocations of a grant (%v): %v", granted, got)
			}
			if granted {
				want["ACCESS_REVOKED"]++
			}
		}
		log := string(s.Admin.Do(t, "GET", "/audit/events?limit=1000", nil).Want(200).Body)
		for kind, n := range want {
			if got := strings.Count(log, `"`+kind+`"`); got != n {
				t.Errorf("the audit has %s %d times instead of %d", kind, got, n)
			}
		}
	})
}

// TestAccessHostileInput: bad values are refused with their place, bounds hold, and texts come back as they were sent.
func TestAccessHostileInput(t *testing.T) {
	apptest.Each(t, func(t *testing.T, s *apptest.Server) {
		w := newAccessWorld(t, s)
		file := func(subject, action, reason any) *apptest.Response {
			t.Helper()
			return root(w.app).Do(t, "POST", requests+"?environment=sandbox", body{"subject": body{"id": subject}, "action": body{"name": action}, "resource": body{"id": "payroll"}, "reason": reason})
		}
		for what, r := range map[string]*apptest.Response{
			"NUL in the subject": file("a\x00da", "read", "x"), "NUL in the action": file("ada", "re\x00ad", "x"), "NUL in the reason": file("ada", "read", "x\x00"),
			"escape in the subject": file("a\x1b[2Jda", "read", "x"), "line in the action": file("ada", "read\nwrite", "x"), "a direction": file("ada\u202e", "read", "x"),
			"a long subject": file(strings.Repeat("a", 257), "read", "x"), "a long reason": file("ada", "read", strings.Repeat("x", 501)),
			"a blank reason": file("ada", "read", " \t\n "), "an empty action": file("ada", "", "x"), "a number": file(7, "read", "x"), "no subject": file("", "read", "x"),
		} {
			if r.Status != 422 && r.Status != 400 {
				t.Errorf("%s: %d %s", what, r.Status, r.Body)
			}
		}
		hostile := `<img src=x onerror=alert(1)> "; DROP TABLE access_requests; -- ${jndi} 日本 🦀`
		id := file(hostile, hostile, "line one\nline two "+hostile).Want(201).ID()
		got := root(w.approver).Do(t, "GET", fmt.Sprintf("%s/%d", requests, id), nil).Want(200)
		if got.Get("subject_id") != hostile || got.Get("action") != hostile || got.Get("reason") != "line one\nline two "+hostile {
			t.Errorf("it came back as %s", got.Body)
		}
		for _, duration := range []string{"0", "-1", "2592001", "9223372036854775807", "9223372036854775808", "1e300", "1.5", `"60"`, "null", "true"} {
			r := root(w.approver).Do(t, "POST", fmt.Sprintf("%s/%d/approve", requests, id), []byte(`{"duration_seconds":`+duration+`}`))
			if r.Status != 422 && r.Status != 400 {
				t.Errorf("a duration of %s: %d %s", duration, r.Status, r.Body)
			}
		}
		for _, path := range []string{"/0", "/-1", "/9223372036854775808", "/x", "?status=open", "?limit=-1"} {
			if r := root(w.approver).Do(t, "GET", requests+path, nil); r.Status < 400 || r.Status >= 500 {
				t.Errorf("%s: %d %s", path, r.Status, r.Body)
			}
		}
		w.act(t, w.approver, id, "approve", body{"duration_seconds": 2592000, "reason": hostile}).Want(200)
		w.says(t, hostile, "PERMIT")

		// One subject has at most 20 open requests. Others still have theirs.
		var sends []func() (*apptest.Response, error)
		for n := range 40 {
			doc := body{"subject": body{"id": "greedy"}, "action": body{"name": fmt.Sprint("act-", n)}, "resource": body{"id": "payroll"}, "reason": "x"}
			sends = append(sends, func() (*apptest.Response, error) {
				return root(w.app).Try("POST", requests+"?environment=sandbox", doc)
			})
		}
		if got := atOnce(t, sends...); got[201] != 20 || got[403] != 20 {
			t.Errorf("requests of one subject: %v", got)
		}
		answer(t, file("greedy", "more", "x"), 403, "limit_exceeded")
		w.file(t, "modest")
	})
}

// TestAccessIsForTheExactSubject: a grant is for the subject as the account spells it, whatever
// spelling of themselves a person writes into a request.
func TestAccessIsForTheExactSubject(t *testing.T) {
	s := apptest.StartServer(t, dbtest.SQLite)
	w := newAccessWorld(t, s)
	s.Admin.Do(t, "POST", "/users", body{"id": "U-kim", "username": "kim", "email": "kim@example.com", "password": apptest.Password, "roles": []string{"viewer"}}).Want(201)
	kim := root(s.Login(t, "kim", apptest.Password))
	for written, want := range map[string]string{"kim": "kim", "KIM": "kim", "\u212aim": "kim", " kim ": "kim", "u-KIM": "U-kim", "kim@example.com": "kim@example.com", "KIM@Example.COM": "kim@example.com", "\u212aim@example.com": "kim@example.com"} {
		filed := kim.Do(t, "POST", requests+"?environment=sandbox", body{"subject": body{"type": "user", "id": written}, "action": body{"name": "read"}, "resource": body{"id": fmt.Sprint(w.resource)}, "reason": "x"}).Want(201)
		if got := filed.Get("subject_id"); got != want {
			t.Errorf("%q files for %q, want %q", written, got, want)
		}
		kim.Do(t, "POST", fmt.Sprintf("%s/%d/withdraw", requests, filed.ID()), nil).Want(200)
	}
}
