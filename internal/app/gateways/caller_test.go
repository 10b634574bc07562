package gateways_test

import (
	"testing"

	"github.com/gatehouse-dev/gatehouse/internal/app/apptest"
)

// TestBouncerAsCaller checks that a bouncer sees of itself what its record has.
func TestBouncerAsCaller(t *testing.T) {
	apptest.Inner(t)
	apptest.Each(t, func(t *testing.T, s *apptest.Server) {
		made := s.Admin.Do(t, "POST", "/bouncers", body{"name": "edge", "environment": "sandbox", "hostname": "127.0.0.1", "port": 8080}).Want(201)
		c := s.WithToken(made.Text("token"))
		me := c.Do(t, "GET", "/auth/me", nil).Want(200)
		if ps, ok := me.Get("permissions").([]any); !ok || len(ps) != 0 {
			t.Errorf("the bouncer has the permissions %v, want an empty list", me.Get("permissions"))
		}
		if at := made.Get("created_at"); at == nil || me.Get("created_at") != at || me.Get("updated_at") != made.Get("updated_at") {
			t.Errorf("GET /auth/me = %s, want created_at %v and updated_at %v", me.Body, at, made.Get("updated_at"))
		}
	})
}
