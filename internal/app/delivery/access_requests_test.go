package delivery_test

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/app/apptest"
	"github.com/gatehouse-dev/gatehouse/internal/db/dbtest"
)

const granted = `package granted

allow if {
	some grant in data.grants[input.user.id]
	grant.resource.name == "payroll"
}
`

// accessWorld is a server with a resource whose denials can be requested.
type accessWorld struct {
	*apptest.Server
	resource int64
	approver *apptest.Client
	app      *apptest.Client
}

func newAccessWorld(t *testing.T, s *apptest.Server) *accessWorld {
	t.Helper()
	w := &accessWorld{Server: s}
	w.resource = s.Admin.Do(t, "POST", "/resources", body{"name": "payroll", "type": "api", "path": "/payroll", "environment": "sandbox", "attributes": body{"request_access": true}}).Want(201).ID()
	apptest.Activate(t, s.Admin, "granted", "sandbox", granted, body{"resource_id": w.resource})
	s.Admin.Do(t, "POST", "/users", body{"id": "boss", "username": "boss", "email": "boss@example.com", "password": apptest.Password, "roles": []string{"resource_manager", "auditor"}}).Want(201)
	w.approver = s.Login(t, "boss", apptest.Password)
	w.app = s.Key(t, s.Admin, "sandbox", "decisions:read")
	return w
}

func (w *accessWorld) decide(t *testing.T, user string) *apptest.Response {
	t.Helper()
	return w.app.Do(t, "POST", "/decisions/evaluate?environment=sandbox", body{"user": body{"id": user}, "action": body{"name": "read"}, "resource": body{"id": w.resource}}).Want(200)
}

func (w *accessWorld) says(t *testing.T, user, decision string) {
	t.Helper()
	apptest.Eventually(t, 20*time.Second, func() error {
		if got := w.decide(t, user).Get("decision"); got != decision {
			return fmt.Errorf("%s for %s", got, user)
		}
		return nil
	})
}

// root is the client for paths at the host's root.
func root(c *apptest.Client) *apptest.Client {
	at := *c
	at.Base = strings.TrimSuffix(c.Base, "/api/v1")
	return &at
}

// file sends what a denial says that can be requested.
func (w *accessWorld) file(t *testing.T, user string) int64 {
	t.Helper()
	hint, ok := w.decide(t, user).Get("request_access").(map[string]any)
	if !ok {
		t.Fatalf("the denial of %s cannot be requested", user)
	}
	hint["reason"] = "the audit of May"
	return root(w.app).Do(t, "POST", "/access/v1/requests?environment=sandbox", hint).Want(201).ID()
}

func (w *accessWorld) act(t *testing.T, c *apptest.Client, id int64, verb string, doc body) *apptest.Response {
	t.Helper()
	return root(c).Do(t, "POST", fmt.Sprintf("/access/v1/requests/%d/%s", id, verb), doc)
}

// TestAccessRequests: who may request and decide, and that a grant counts while it lasts.
func TestAccessRequests(t *testing.T) {
	apptest.Each(t, testAccessRequests)
}

func testAccessRequests(t *testing.T, s *apptest.Server) {
	w := newAccessWorld(t, s)
	id := w.file(t, "ada")
	code := func(r *apptest.Response, status int, want string) {
		t.Helper()
		if got := r.Want(status).Get("error"); got != want {
			t.Errorf("%v instead of %s", got, want)
		}
	}
	again := body{"subject": body{"id": "ada"}, "action": body{"name": "read"}, "resource": body{"id": "payroll"}, "reason": "again"}
	code(root(w.app).Do(t, "POST", "/access/v1/requests?environment=sandbox", again), 409, "already_requested")
	code(root(w.approver).Do(t, "POST", "/access/v1/requests?environment=sandbox", again), 403, "other_subject")
	code(w.act(t, w.app, id, "approve", body{"duration_seconds": 60}), 403, "permission_denied")
	root(w.app).Do(t, "POST", "/access/v1/requests?environment=sandbox", body{"subject": body{"id": "ada"}, "action": body{"name": "read"}, "resource": body{"id": "99"}, "reason": "x"}).Want(404)
	key := w.Key(t, w.Admin, "sandbox", "decisions:read", "resources:write")
	code(w.act(t, key, id, "approve", body{"duration_seconds": 60}), 403, "person_required")
	closed := w.Admin.Do(t, "POST", "/resources", body{"name": "closed", "type": "api", "path": "/closed", "environment": "sandbox"}).Want(201).ID()
	code(root(w.app).Do(t, "POST", "/access/v1/requests?environment=sandbox", body{"subject": body{"id": "ada"}, "action": body{"name": "read"}, "resource": body{"id": fmt.Sprint(closed)}, "reason": "x"}), 403, "not_requestable")

	// Nobody decides their own, whatever they are called in it.
	for _, name := range []string{"boss", "BOSS", "boss@example.com"} {
		own := w.file(t, name)
		code(w.act(t, w.approver, own, "approve", body{"duration_seconds": 60}), 403, "own_request")
		w.act(t, w.Admin, own, "deny", body{"reason": "no"}).Want(200)
	}

	// Of many approvals at once, one counts.
	var wg sync.WaitGroup
	statuses := make(chan int, 8)
	for range 8 {
		wg.Go(func() {
			r, err := root(w.approver).Try("POST", fmt.Sprintf("/access/v1/requests/%d/approve", id), body{"duration_seconds": 3600})
			if err == nil {
				statuses <- r.Status
			}
		})
	}
	wg.Wait()
	close(statuses)
	count := map[int]int{}
	for s := range statuses {
		count[s]++
	}
	if count[200] != 1 || count[409] != 7 {
		t.Errorf("approvals: %v", count)
	}
	w.says(t, "ada", "PERMIT")
	w.says(t, "bob", "DENY")
	w.Kill()
	w.Start()
	w.says(t, "ada", "PERMIT")
	w.approver = w.Login(t, "boss", apptest.Password)
	w.act(t, w.approver, id, "revoke", body{"reason": "done"}).Want(200)
	w.says(t, "ada", "DENY")
	code(w.act(t, w.approver, id, "revoke", body{"reason": "done"}), 409, "not_granted")
	if got := root(w.approver).Do(t, "GET", "/access/v1/requests?status=revoked", nil).Want(200).Get("total"); got != 1.0 {
		t.Errorf("%v revoked", got)
	}
	if got := root(w.approver).Do(t, "GET", "/access/v1/requests?mine=true&status=approved", nil).Want(200).Get("total"); got != 0.0 {
		t.Errorf("%v of others are mine", got)
	}
	seen := string(w.Login(t, "admin", apptest.Password).Do(t, "GET", "/audit/events?limit=200", nil).Want(200).Body)
	for _, want := range []string{"ACCESS_REQUESTED", "ACCESS_APPROVED", "ACCESS_DENIED", "ACCESS_REVOKED"} {
		if !strings.Contains(seen, want) {
			t.Errorf("the audit has no %s", want)
		}
	}
}

// TestGrantEndsWithoutTheServer: bouncers and stock OPAs get a grant, and end it by themselves.
func TestGrantEndsWithoutTheServer(t *testing.T) {
	apptest.OPA(t)
	w := newAccessWorld(t, apptest.StartServer(t, dbtest.SQLite))
	apptest.Enforce(t, w.Admin, "sandbox")
	app, _ := apptest.Application(t)
	b := w.Bouncer(t, w.Admin, body{"name": "b", "environment": "sandbox", "resource_ids": []int64{w.resource}}, app)
	o := apptest.StartOPA(t, w.Server, body{"name": "opa", "environment": "sandbox", "resource_ids": []int64{w.resource}})
	asked := body{"input": body{"user": body{"id": "ada"}, "action": body{"name": "read"}, "resource": body{"id": w.resource}}}
	passes := func(status int) error {
		r, err := b.As("ada", "").Try("GET", "/payroll", nil)
		if err != nil || r.Status != status {
			return fmt.Errorf("%v %v", r, err)
		}
		return nil
	}
	opa := func(decision string) error {
		r, err := o.Try("POST", "/v1/data/gatehouse/decision", asked)
		if err != nil {
			return err
		}
		var answer struct{ Result struct{ Decision string } }
		if err := r.Decode(&answer); err != nil || answer.Result.Decision != decision {
			return fmt.Errorf("%s %v", r.Body, err)
		}
		return nil
	}
	both := func(status int, decision string) {
		t.Helper()
		apptest.Eventually(t, 3*time.Minute, func() error { return errors.Join(passes(status), opa(decision)) })
	}
	both(403, "DENY")
	// counts: a grant of some seconds reaches everyone before it ends.
	counts := func(seconds int) (reached bool) {
		id := w.file(t, "ada")
		w.act(t, w.approver, id, "approve", body{"duration_seconds": seconds}).Want(200)
		apptest.Eventually(t, 3*time.Minute, func() error {
			err := errors.Join(passes(200), opa("PERMIT"))
			if reached = err == nil; reached {
				return nil
			}
			if root(w.approver).Do(t, "GET", fmt.Sprintf("/access/v1/requests/%d", id), nil).Want(200).Get("status") == "expired" {
				return nil
			}
			return err
		})
		return reached
	}
	// A busy machine may need longer for the bundles than a short grant lasts.
	seconds := 5
	for ; !counts(seconds); seconds *= 2 {
		if seconds > 80 {
			t.Fatalf("a grant of %d seconds reached nobody", seconds)
		}
	}
	w.Kill()
	both(403, "DENY")
	w.Start()
	w.says(t, "ada", "DENY")
	apptest.Eventually(t, 3*time.Minute, func() error {
		if seen := string(w.Login(t, "admin", apptest.Password).Do(t, "GET", "/audit/events?limit=200", nil).Want(200).Body); !strings.Contains(seen, "ACCESS_EXPIRED") {
			return fmt.Errorf("the end is not in the audit")
		}
		return nil
	})
}
