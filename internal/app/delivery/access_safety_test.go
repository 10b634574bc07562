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

// TestAccessIsolation checks that tenants and environments see nothing of each other's requests, and
// that a subject cannot approve their own request.
func TestAccessIsolation(t *testing.T) {
	apptest.Each(t, func(t *testing.T, s *apptest.Server) {
		w := newAccessFixture(t, s)
		waiting, active := w.fileRequest(t, "ada"), w.fileRequest(t, "bob")
		w.act(t, w.approver, active, "approve", body{"duration_seconds": 3600}).Want(200)
		verbs := map[string]body{"approve": {"duration_seconds": 60}, "deny": {"reason": "x"}, "revoke": {"reason": "x"}}

		s.Admin.Do(t, "POST", "/tenants", body{"name": "Other"}).Want(201)
		other := s.Admin.With("X-Tenant-ID", "other")
		s.Admin.Do(t, "POST", "/users", body{"id": "mallory", "username": "mallory", "email": "m@example.com", "password": apptest.Password, "roles": []string{"viewer"}}).Want(201)
		viewer := s.Login(t, "mallory", apptest.Password)
		production := s.Key(t, s.Admin, "production", "decisions:read", "resources:write", "audit:read")
		// wantHidden checks that a caller sees neither request, and that both look like unknown ones.
		wantHidden := func(who string, c *apptest.Client, list string, hide bool) {
			t.Helper()
			if got := root(c).Do(t, "GET", requests+list, nil).Want(200).Get("total"); got != 0.0 {
				t.Errorf("%s sees %v requests, want none", who, got)
			}
			never := root(c).Do(t, "GET", requests+"/999999", nil).Want(404).Get("message")
			for _, id := range []int64{waiting, active} {
				if got := root(c).Do(t, "GET", fmt.Sprintf("%s/%d", requests, id), nil).Want(404).Get("message"); got != never {
					t.Errorf("%s gets %v for the request %d, want %v as for an unknown one", who, got, id, never)
				}
				for verb, doc := range verbs {
					got := w.act(t, c, id, verb, doc)
					machine := verb != "revoke" && c.APIKey != "" // a key learns that people decide, whatever it names
					if machine && got.Get("error") != "person_required" || hide && !machine && got.Status != 404 || got.Status < 400 {
						t.Errorf("%s of the request %d by %s = %d %s, want a refusal", verb, id, who, got.Status, got.Body)
					}
				}
			}
		}
		wantHidden("another tenant", other, "", true)
		wantHidden("a production key", production, "", true)
		wantHidden("a colleague", viewer, "", false)
		for method, path := range map[string]string{"GET": requests + "?environment=sandbox", "POST": fmt.Sprintf("%s/%d/revoke?environment=sandbox", requests, active)} {
			if got := root(production).Do(t, method, path, verbs["revoke"]); got.Status != 403 || got.Get("error") != "environment_denied" {
				t.Errorf("%s %s: %d %s", method, path, got.Status, got.Body)
			}
		}
		ask := body{"subject": body{"id": "eve"}, "action": body{"name": "read"}, "resource": body{"id": fmt.Sprint(w.resource)}, "reason": "x"}
		root(production).Do(t, "POST", requests+"?environment=sandbox", ask).WantError(403, "environment_denied")
		root(production).Do(t, "POST", requests, ask).Want(404)
		root(other).Do(t, "POST", requests+"?environment=sandbox", body{"action": ask["action"], "resource": body{"id": "payroll"}, "reason": "x"}).Want(404)
		w.act(t, w.approver, waiting, "approve?environment=production", verbs["approve"]).Want(404)

		// The filer and the subject of a request cannot approve it.
		own := root(w.approver).Do(t, "POST", requests+"?environment=sandbox", body{"action": body{"name": "write"}, "resource": ask["resource"], "reason": "x"}).Want(201).ID()
		for _, verb := range []string{"approve", "deny"} {
			w.act(t, w.approver, own, verb, verbs[verb]).WantError(403, "own_request")
		}
		w.act(t, s.Admin, own, "approve", verbs["approve"]).Want(200)

		for id, status := range map[int64]string{waiting: "pending", active: "approved"} {
			if got := root(w.approver).Do(t, "GET", fmt.Sprintf("%s/%d", requests, id), nil).Want(200).Get("status"); got != status {
				t.Errorf("the request %d is %v, want %s", id, got, status)
			}
		}
		w.wantDecision(t, "ada", "DENY")
		w.wantDecision(t, "bob", "PERMIT")
	})
}

// inParallel sends requests in parallel, and counts the answers by status.
func inParallel(t *testing.T, sends ...func() (*apptest.Response, error)) map[int]int {
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

// TestAccessRaces checks that one of several parallel and contrary decisions counts, and that the audit
// has it once.
func TestAccessRaces(t *testing.T) {
	apptest.Each(t, func(t *testing.T, s *apptest.Server) {
		w := newAccessFixture(t, s)
		send := func(c *apptest.Client, path string, doc body) func() (*apptest.Response, error) {
			return func() (*apptest.Response, error) { return root(c).Try("POST", path, doc) }
		}
		ask := body{"subject": body{"id": "ada"}, "action": body{"name": "read"}, "resource": body{"id": "payroll"}, "reason": "x"}
		one := send(w.app, requests+"?environment=sandbox", ask)
		if got := inParallel(t, one, one, one, one, one, one); got[201] != 1 || got[409] != 5 {
			t.Errorf("the statuses of six equal requests = %v, want 201 once and 409", got)
		}
		want := map[string]int{"ACCESS_REQUESTED": 1}
		for id := int64(1); id <= 4; id++ {
			if id > 1 {
				if got := w.fileRequest(t, fmt.Sprintf("user-%d", id)); got != id {
					t.Fatalf("the new request is %d, want %d", got, id)
				}
				want["ACCESS_REQUESTED"]++
			}
			at := func(verb string) string { return fmt.Sprintf("%s/%d/%s", requests, id, verb) }
			approve, deny := send(w.approver, at("approve"), body{"duration_seconds": 3600}), send(s.Admin, at("deny"), body{"reason": "no"})
			if got := inParallel(t, approve, deny, approve, deny, approve, deny); got[200] != 1 || got[409] != 5 {
				t.Errorf("the statuses of six decisions = %v, want 200 once and 409", got)
			}
			r := w.request(t, id)
			granted := r.Get("status") == "approved"
			if granted {
				want["ACCESS_APPROVED"]++
			} else if want["ACCESS_DENIED"]++; r.Get("expires_at") != nil {
				t.Errorf("the denied request is %s, want no end", r.Body)
			}
			revoke := send(w.approver, at("revoke"), body{"reason": "done"})
			if got := inParallel(t, revoke, revoke, revoke, approve); granted && (got[200] != 1 || got[409] != 3) || !granted && got[409] != 4 {
				t.Errorf("the statuses of three revocations and an approval = %v, with a grant: %v, want one 200 for a grant and 409", got, granted)
			}
			if granted {
				want["ACCESS_REVOKED"]++
			}
		}
		log := string(s.Admin.Do(t, "GET", "/audit/events?limit=1000", nil).Want(200).Body)
		for kind, n := range want {
			if got := strings.Count(log, `"`+kind+`"`); got != n {
				t.Errorf("the audit has %s %d times, want %d", kind, got, n)
			}
		}
	})
}

// TestAccessHostileInput checks that bad values are refused, that limits apply, and that texts come back
// unchanged.
func TestAccessHostileInput(t *testing.T) {
	apptest.Each(t, func(t *testing.T, s *apptest.Server) {
		w := newAccessFixture(t, s)
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
			r.Expect(what, 422, 400)
		}
		hostile := `<img src=x onerror=alert(1)> "; DROP TABLE access_requests; -- ${jndi} 日本 🦀`
		id := file(hostile, hostile, "line one\nline two "+hostile).Want(201).ID()
		got := w.request(t, id)
		if got.Get("subject_id") != hostile || got.Get("action") != hostile || got.Get("reason") != "line one\nline two "+hostile {
			t.Errorf("the request is %s, want the texts as sent", got.Body)
		}
		for _, duration := range []string{"0", "-1", "2592001", "9223372036854775807", "9223372036854775808", "1e300", "1.5", `"60"`, "null", "true"} {
			root(w.approver).Do(t, "POST", fmt.Sprintf("%s/%d/approve", requests, id), []byte(`{"duration_seconds":`+duration+`}`)).Expect("a duration of "+duration, 422, 400)
		}
		for _, path := range []string{"/0", "/-1", "/9223372036854775808", "/x", "?status=open", "?limit=-1"} {
			if r := root(w.approver).Do(t, "GET", requests+path, nil); r.Status < 400 || r.Status >= 500 {
				t.Errorf("GET %s%s = %d %s, want a refusal", requests, path, r.Status, r.Body)
			}
		}
		w.act(t, w.approver, id, "approve", body{"duration_seconds": 2592000, "reason": hostile}).Want(200)
		w.wantDecision(t, hostile, "PERMIT")

		// A subject may have 20 open requests. Other subjects have their own limit.
		var sends []func() (*apptest.Response, error)
		for n := range 40 {
			doc := body{"subject": body{"id": "greedy"}, "action": body{"name": fmt.Sprint("act-", n)}, "resource": body{"id": "payroll"}, "reason": "x"}
			sends = append(sends, func() (*apptest.Response, error) {
				return root(w.app).Try("POST", requests+"?environment=sandbox", doc)
			})
		}
		if got := inParallel(t, sends...); got[201] != 20 || got[403] != 20 {
			t.Errorf("the statuses of 40 requests of one subject = %v, want 201 and 403 20 times each", got)
		}
		file("greedy", "more", "x").WantError(403, "limit_exceeded")
		w.fileRequest(t, "modest")
	})
}

// TestAccessIsForTheExactSubject checks that a grant is for the subject as the account spells it,
// whatever spelling of their own name a person writes in a request.
func TestAccessIsForTheExactSubject(t *testing.T) {
	s := apptest.StartServer(t, dbtest.SQLite)
	w := newAccessFixture(t, s)
	s.Admin.Do(t, "POST", "/users", body{"id": "U-kim", "username": "kim", "email": "kim@example.com", "password": apptest.Password, "roles": []string{"viewer"}}).Want(201)
	kim := root(s.Login(t, "kim", apptest.Password))
	for written, want := range map[string]string{"kim": "kim", "KIM": "kim", "\u212aim": "kim", " kim ": "kim", "u-KIM": "U-kim", "kim@example.com": "kim@example.com", "KIM@Example.COM": "kim@example.com", "\u212aim@example.com": "kim@example.com"} {
		filed := kim.Do(t, "POST", requests+"?environment=sandbox", body{"subject": body{"type": "user", "id": written}, "action": body{"name": "read"}, "resource": body{"id": fmt.Sprint(w.resource)}, "reason": "x"}).Want(201)
		if got := filed.Get("subject_id"); got != want {
			t.Errorf("a request for %q has the subject %q, want %q", written, got, want)
		}
		kim.Do(t, "POST", fmt.Sprintf("%s/%d/withdraw", requests, filed.ID()), nil).Want(200)
	}
}
