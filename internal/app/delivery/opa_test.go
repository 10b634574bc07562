package delivery_test

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/app/apptest"
)

// permitOnly is a control that permits one user.
func permitOnly(user string) string {
	return "package only\n\nallow if input.user.id == \"" + user + "\"\n"
}

// TestStockOPA goes through the life of an unmodified OPA as a bouncer.
func TestStockOPA(t *testing.T) {
	apptest.OPA(t)
	apptest.Each(t, func(t *testing.T, s *apptest.Server) {
		a := s.Admin
		policy := a.Do(t, "POST", "/policies", body{"name": "only", "rego_code": permitOnly("alice"), "environment": "production", "status": "active"}).Want(201).ID()
		o := apptest.StartOPA(t, s, body{"name": "opa", "environment": "production"})
		o.WaitForDecision(t, 20*time.Second, "alice", "PERMIT")
		o.WaitForDecision(t, time.Second, "bob", "DENY")
		row := func() map[string]any {
			list, _ := a.Do(t, "GET", "/deployments/revisions/production", nil).Want(200).Get("bouncers").([]any)
			for _, b := range list {
				if b := b.(map[string]any); b["bouncer_id"] == float64(o.ID) {
					return b
				}
			}
			t.Fatalf("the revisions have the bouncers %v, want %d", list, o.ID)
			return nil
		}
		waitForRevision := func(revision float64) {
			t.Helper()
			apptest.Eventually(t, 30*time.Second, func() error {
				if r := row(); r["active_revision"] != revision || r["status"] != "connected" {
					return fmt.Errorf("the bouncer is %v, want connected with revision %v", r, revision)
				}
				return nil
			})
		}
		waitForRevision(1)
		a.Do(t, "PUT", fmt.Sprint("/policies/", policy), body{"rego_code": permitOnly("bob")}).Want(200)
		o.WaitForDecision(t, 5*time.Second, "bob", "PERMIT")
		waitForRevision(2)
		a.Do(t, "PUT", fmt.Sprint("/policies/", policy), body{"rego_code": permitOnly("alice")}).Want(200)
		o.WaitForDecision(t, 5*time.Second, "alice", "PERMIT")
		waitForRevision(3)
		// Our log has each of OPA's decisions once. Kills of the server lose none.
		ids := map[string]bool{}
		for i := range 60 {
			var out struct {
				ID string `json:"decision_id"`
			}
			o.Do(t, http.MethodPost, "/v1/data/gatehouse/decision", body{"input": body{"user": body{"id": "alice"}, "n": i}}).Want(200).Into(&out)
			ids[out.ID] = true
			if i%20 == 10 {
				s.Kill()
				s.Start()
			}
		}
		a = s.Login(t, "admin", apptest.Password)
		apptest.Eventually(t, 30*time.Second, func() error {
			seen := map[string]bool{}
			for _, e := range apptest.DecisionLog(t, a, "production") {
				if !ids[e.ID] {
					continue
				}
				if seen[e.ID] || e.BouncerID != o.ID || e.PolicyName != "only" {
					t.Fatalf("the log has the entry %+v, want one by OPA and only", e)
				}
				seen[e.ID] = true
			}
			if len(seen) < len(ids) {
				return fmt.Errorf("the log has %d of %d decisions\n%s", len(seen), len(ids), o.Log)
			}
			return nil
		})
		waitForRevision(3)
		// After its token was replaced, OPA keeps its bundle, and the record shows that it is cut off.
		a.Do(t, "POST", fmt.Sprintf("/bouncers/%d/rotate-token", o.ID), body{}).Want(200, 201)
		waitForBouncer(t, a, o.ID, "degraded", "")
		o.WaitForDecision(t, time.Second, "alice", "PERMIT")
	})
}

// TestStockOPASigned checks that a stock OPA accepts signed bundles with the configuration of its
// registration.
func TestStockOPASigned(t *testing.T) {
	apptest.OPA(t)
	apptest.Each(t, func(t *testing.T, s *apptest.Server) {
		a := s.Admin
		a.Do(t, "POST", "/policies", body{"name": "only", "rego_code": permitOnly("alice"), "environment": "production", "status": "active"}).Want(201)
		members := body{"name": "opa", "environment": "production", "configuration": body{"signing": "signed"}}
		o := apptest.StartOPA(t, s, members)
		o.WaitForDecision(t, 20*time.Second, "alice", "PERMIT")
	})
}
