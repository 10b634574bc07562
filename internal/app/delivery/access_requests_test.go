package delivery_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
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

// accessFixture is a server with a resource whose denials can be requested.
type accessFixture struct {
	*apptest.Server
	resource int64
	approver *apptest.Client
	app      *apptest.Client
}

func newAccessFixture(t *testing.T, s *apptest.Server) *accessFixture {
	t.Helper()
	w := &accessFixture{Server: s}
	w.resource = s.Admin.Do(t, "POST", "/resources", body{"name": "payroll", "type": "api", "path": "/payroll", "environment": "sandbox", "attributes": body{"request_access": true}}).Want(201).ID()
	apptest.Activate(t, s.Admin, "granted", "sandbox", granted, body{"resource_id": w.resource})
	s.Admin.Do(t, "POST", "/users", body{"id": "boss", "username": "boss", "email": "boss@example.com", "password": apptest.Password, "roles": []string{"resource_manager", "auditor"}}).Want(201)
	w.approver = s.Login(t, "boss", apptest.Password)
	w.app = s.Key(t, s.Admin, "sandbox", "decisions:read")
	return w
}

func (w *accessFixture) decide(t *testing.T, user string) *apptest.Response {
	t.Helper()
	return w.app.Do(t, "POST", "/decisions/evaluate?environment=sandbox", body{"user": body{"id": user}, "action": body{"name": "read"}, "resource": body{"id": w.resource}}).Want(200)
}

// wantDecision waits until the decision for a user is the wanted one.
func (w *accessFixture) wantDecision(t *testing.T, user, decision string) {
	t.Helper()
	apptest.Eventually(t, 20*time.Second, func() error {
		if got := w.decide(t, user).Get("decision"); got != decision {
			return fmt.Errorf("the decision for %s is %v, want %s", user, got, decision)
		}
		return nil
	})
}

// root returns the client with paths at the host's root.
func root(c *apptest.Client) *apptest.Client {
	at := *c
	at.Base = strings.TrimSuffix(c.Base, "/api/v1")
	return &at
}

// fileRequest files the request that a denial offers.
func (w *accessFixture) fileRequest(t *testing.T, user string) int64 {
	t.Helper()
	hint, ok := w.decide(t, user).Get("request_access").(map[string]any)
	if !ok {
		t.Fatalf("the denial for %s has no request_access", user)
	}
	hint["reason"] = "the audit of May"
	return root(w.app).Do(t, "POST", "/access/v1/requests?environment=sandbox", hint).Want(201).ID()
}

// act calls a verb of a request.
func (w *accessFixture) act(t *testing.T, c *apptest.Client, id int64, verb string, doc body) *apptest.Response {
	t.Helper()
	return root(c).Do(t, "POST", fmt.Sprintf("/access/v1/requests/%d/%s", id, verb), doc)
}

// TestAccessRequests checks who may request access and decide on requests, and that a grant applies
// until its end.
func TestAccessRequests(t *testing.T) {
	apptest.Each(t, testAccessRequests)
}

func testAccessRequests(t *testing.T, s *apptest.Server) {
	w := newAccessFixture(t, s)
	id := w.fileRequest(t, "ada")
	again := body{"subject": body{"id": "ada"}, "action": body{"name": "read"}, "resource": body{"id": "payroll"}, "reason": "again"}
	root(w.app).Do(t, "POST", "/access/v1/requests?environment=sandbox", again).WantError(409, "already_requested")
	root(w.approver).Do(t, "POST", "/access/v1/requests?environment=sandbox", again).WantError(403, "other_subject")
	w.act(t, w.app, id, "approve", body{"duration_seconds": 60}).WantError(403, "permission_denied")
	root(w.app).Do(t, "POST", "/access/v1/requests?environment=sandbox", body{"subject": body{"id": "ada"}, "action": body{"name": "read"}, "resource": body{"id": "99"}, "reason": "x"}).Want(404)
	key := w.Key(t, w.Admin, "sandbox", "decisions:read", "resources:write")
	w.act(t, key, id, "approve", body{"duration_seconds": 60}).WantError(403, "person_required")
	closed := w.Admin.Do(t, "POST", "/resources", body{"name": "closed", "type": "api", "path": "/closed", "environment": "sandbox"}).Want(201).ID()
	root(w.app).Do(t, "POST", "/access/v1/requests?environment=sandbox", body{"subject": body{"id": "ada"}, "action": body{"name": "read"}, "resource": body{"id": fmt.Sprint(closed)}, "reason": "x"}).WantError(403, "not_requestable")

	// Nobody decides on their own request, whatever name of theirs it has.
	for _, name := range []string{"boss", "BOSS", "boss@example.com"} {
		own := w.fileRequest(t, name)
		w.act(t, w.approver, own, "approve", body{"duration_seconds": 60}).WantError(403, "own_request")
		w.act(t, w.Admin, own, "deny", body{"reason": "no"}).Want(200)
	}

	// One of several parallel approvals succeeds.
	approve := func() (*apptest.Response, error) {
		return root(w.approver).Try("POST", fmt.Sprintf("/access/v1/requests/%d/approve", id), body{"duration_seconds": 3600})
	}
	if count := inParallel(t, slices.Repeat([]func() (*apptest.Response, error){approve}, 8)...); count[200] != 1 || count[409] != 7 {
		t.Errorf("the statuses of eight parallel approvals = %v, want 200 once and 409", count)
	}
	w.wantDecision(t, "ada", "PERMIT")
	w.wantDecision(t, "bob", "DENY")
	w.Kill()
	w.Start()
	w.wantDecision(t, "ada", "PERMIT")
	w.approver = w.Login(t, "boss", apptest.Password)
	w.act(t, w.approver, id, "revoke", body{"reason": "done"}).Want(200)
	w.wantDecision(t, "ada", "DENY")
	w.act(t, w.approver, id, "revoke", body{"reason": "done"}).WantError(409, "not_granted")
	if got := root(w.approver).Do(t, "GET", "/access/v1/requests?status=revoked", nil).Want(200).Get("total"); got != 1.0 {
		t.Errorf("the list of revoked requests has %v, want 1", got)
	}
	if got := root(w.approver).Do(t, "GET", "/access/v1/requests?mine=true&status=approved", nil).Want(200).Get("total"); got != 0.0 {
		t.Errorf("the approver's own requests are %v, want none", got)
	}
	seen := string(w.Login(t, "admin", apptest.Password).Do(t, "GET", "/audit/events?limit=200", nil).Want(200).Body)
	for _, want := range []string{"ACCESS_REQUESTED", "ACCESS_APPROVED", "ACCESS_DENIED", "ACCESS_REVOKED"} {
		if !strings.Contains(seen, want) {
			t.Errorf("the audit lacks %s", want)
		}
	}
}

// TestGrantEndsWithoutTheServer checks that bouncers and stock OPAs get a grant, and end it without the
// server.
func TestGrantEndsWithoutTheServer(t *testing.T) {
	apptest.OPA(t)
	w := newAccessFixture(t, apptest.StartServer(t, dbtest.SQLite))
	apptest.Enforce(t, w.Admin, "sandbox")
	app, _ := apptest.Application(t)
	b := w.Bouncer(t, w.Admin, body{"name": "b", "environment": "sandbox", "resource_ids": []int64{w.resource}}, app)
	o := apptest.StartOPA(t, w.Server, body{"name": "opa", "environment": "sandbox", "resource_ids": []int64{w.resource}})
	input := body{"input": body{"user": body{"id": "ada"}, "action": body{"name": "read"}, "resource": body{"id": w.resource}}}
	bouncerAnswers := func(status int) error {
		r, err := b.As("ada", "").Try("GET", "/payroll", nil)
		if err != nil || r.Status != status {
			return fmt.Errorf("GET /payroll at the bouncer = %v %v, want %d", r, err, status)
		}
		return nil
	}
	opaDecides := func(decision string) error {
		r, err := o.Try("POST", "/v1/data/gatehouse/decision", input)
		if err != nil {
			return err
		}
		var answer struct{ Result struct{ Decision string } }
		if err := r.Decode(&answer); err != nil || answer.Result.Decision != decision {
			return fmt.Errorf("OPA's decision = %s %v, want %s", r.Body, err, decision)
		}
		return nil
	}
	waitForBoth := func(status int, decision string) {
		t.Helper()
		apptest.Eventually(t, 3*time.Minute, func() error { return errors.Join(bouncerAnswers(status), opaDecides(decision)) })
	}
	waitForBoth(403, "DENY")
	// grantReaches reports whether a grant of some seconds reaches both before it ends.
	grantReaches := func(seconds int) (reached bool) {
		id := w.fileRequest(t, "ada")
		w.act(t, w.approver, id, "approve", body{"duration_seconds": seconds}).Want(200)
		apptest.Eventually(t, 3*time.Minute, func() error {
			err := errors.Join(bouncerAnswers(200), opaDecides("PERMIT"))
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
	// On a busy machine, the bundles may need longer than a short grant.
	seconds := 5
	for ; !grantReaches(seconds); seconds *= 2 {
		if seconds > 80 {
			t.Fatalf("a grant of %d seconds ended before it reached the bouncer and OPA", seconds)
		}
	}
	w.Kill()
	waitForBoth(403, "DENY")
	w.Start()
	w.wantDecision(t, "ada", "DENY")
	w.Admin = w.Login(t, "admin", apptest.Password)
	w.waitForAudit(t, "ACCESS_EXPIRED", 1)
}
