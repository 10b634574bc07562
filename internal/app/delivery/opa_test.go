package delivery_test

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/app/apptest"
)

func only(user string) string {
	return "package only\n\nallow if input.user.id == \"" + user + "\"\n"
}

// TestStockOPA walks an unmodified OPA through its life as a bouncer.
func TestStockOPA(t *testing.T) {
	apptest.OPA(t)
	apptest.Each(t, func(t *testing.T, s *apptest.Server) {
		a := s.Admin
		policy := a.Do(t, "POST", "/policies", body{"name": "only", "rego_code": only("alice"), "environment": "production", "status": "active"}).Want(201).ID()
		o := apptest.StartOPA(t, s, body{"name": "opa", "environment": "production"})
		t.Logf("from nothing to a decision: %s", o.WaitForDecision(t, 20*time.Second, "alice", "PERMIT").Round(time.Millisecond))
		o.WaitForDecision(t, time.Second, "bob", "DENY")
		row := func() map[string]any {
			list, _ := a.Do(t, "GET", "/deployments/revisions/production", nil).Want(200).Get("bouncers").([]any)
			for _, b := range list {
				if b := b.(map[string]any); b["bouncer_id"] == float64(o.ID) {
					return b
				}
			}
			t.Fatal("not in the revisions")
			return nil
		}
		runs := func(revision float64) {
			t.Helper()
			apptest.Eventually(t, 30*time.Second, func() error {
				if r := row(); r["active_revision"] != revision || r["status"] != "connected" {
					return fmt.Errorf("%v", r)
				}
				return nil
			})
		}
		runs(1)
		a.Do(t, "PUT", fmt.Sprint("/policies/", policy), body{"rego_code": only("bob")}).Want(200)
		t.Logf("from a change to the next decision: %s", o.WaitForDecision(t, 5*time.Second, "bob", "PERMIT").Round(time.Millisecond))
		runs(2)
		a.Do(t, "PUT", fmt.Sprint("/policies/", policy), body{"rego_code": only("alice")}).Want(200)
		t.Logf("from a rollback to the next decision: %s", o.WaitForDecision(t, 5*time.Second, "alice", "PERMIT").Round(time.Millisecond))
		runs(3)
		// What OPA decided is in our log, once each, and a kill -9 in between loses none.
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
			left := len(ids)
			seen := map[any]int{}
			for cursor := ""; ; {
				page := a.Do(t, "GET", "/decisions/audit?limit=1000&cursor="+cursor, nil).Want(200)
				logs, _ := page.Get("logs").([]any)
				for _, l := range logs {
					e := l.(map[string]any)
					if id, _ := e["decision_id"].(string); ids[id] {
						if seen[id]++; seen[id] > 1 {
							t.Fatalf("%s is in the log twice", id)
						}
						if e["bouncer_id"] != float64(o.ID) || e["policy_name"] != "only" {
							t.Fatalf("%v", e)
						}
						left--
					}
				}
				if cursor, _ = page.Get("next_cursor").(string); cursor == "" {
					break
				}
			}
			if left > 0 {
				return fmt.Errorf("%d of %d decisions have not arrived\n%s", left, len(ids), o.Log)
			}
			return nil
		})
		runs(3)
		// The end of its token: it stays on what it has and is seen to be cut off.
		a.Do(t, "POST", fmt.Sprintf("/bouncers/%d/rotate-token", o.ID), body{}).Want(200, 201)
		apptest.Eventually(t, 30*time.Second, func() error {
			if r := a.Do(t, "GET", fmt.Sprint("/bouncers/", o.ID), nil).Want(200); r.Get("status") != "degraded" {
				return fmt.Errorf("%s", r.Body)
			}
			return nil
		})
		o.WaitForDecision(t, time.Second, "alice", "PERMIT")
	})
}

// TestStockOPASigned: signed bundles are taken, and with another key refused for
// all to see.
func TestStockOPASigned(t *testing.T) {
	apptest.OPA(t)
	apptest.Each(t, func(t *testing.T, s *apptest.Server) {
		a := s.Admin
		a.Do(t, "POST", "/policies", body{"name": "only", "rego_code": only("alice"), "environment": "production", "status": "active"}).Want(201)
		members := body{"name": "opa", "environment": "production", "configuration": body{"signing": "signed"}}
		o := apptest.StartOPA(t, s, members)
		o.WaitForDecision(t, 20*time.Second, "alice", "PERMIT")
	})
}
