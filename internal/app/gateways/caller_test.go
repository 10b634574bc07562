package gateways_test

import (
	"testing"

	"github.com/gatehouse-dev/gatehouse/internal/app/apptest"
	"github.com/gatehouse-dev/gatehouse/internal/db/dbtest"
)

// TestBouncerAsCaller: what a bouncer is told of itself is what its record says.
func TestBouncerAsCaller(t *testing.T) {
	apptest.Inner(t)
	for _, backend := range []string{dbtest.SQLite, dbtest.Postgres} {
		s := apptest.StartServer(t, backend)
		made := s.Admin.Do(t, "POST", "/bouncers", body{"name": "edge", "environment": "sandbox", "hostname": "127.0.0.1", "port": 8080}).Want(201)
		c := s.Anonymous()
		c.Bearer, _ = made.Get("token").(string)
		me := c.Do(t, "GET", "/auth/me", nil).Want(200)
		if ps, ok := me.Get("permissions").([]any); !ok || len(ps) != 0 {
			t.Errorf("%s: permissions are %v", backend, me.Get("permissions"))
		}
		if at := made.Get("created_at"); at == nil || me.Get("created_at") != at || me.Get("updated_at") != made.Get("updated_at") {
			t.Errorf("%s: since %v, changed %v: %s", backend, at, made.Get("updated_at"), me.Body)
		}
	}
}
