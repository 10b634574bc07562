package decisions_test

import (
	"testing"

	"github.com/gatehouse-dev/gatehouse/internal/app/apptest"
	"github.com/gatehouse-dev/gatehouse/internal/db/dbtest"
)

// TestBulkClassifyEnvironment checks that a bulk classification uses the environment of the query, the
// header or the key, by default sandbox, and is refused if two of them differ.
func TestBulkClassifyEnvironment(t *testing.T) {
	s := apptest.StartServer(t, dbtest.SQLite)
	a := s.Admin
	sandbox := s.Key(t, a, "sandbox", "resources:write")
	production := s.Key(t, a, "production", "resources:write")
	for name, c := range map[string]struct {
		by     *apptest.Client
		query  string
		status int
		want   any
	}{
		"nothing":             {a, "", 200, "sandbox"},
		"query":               {a, "?environment=production", 200, "production"},
		"header":              {a.With("X-Environment", "production"), "", 200, "production"},
		"two that differ":     {a.With("X-Environment", "sandbox"), "?environment=production", 400, nil},
		"key":                 {production, "", 200, "production"},
		"key, same query":     {sandbox, "?environment=sandbox", 200, "sandbox"},
		"key, another query":  {sandbox, "?environment=production", 403, nil},
		"key, another header": {production.With("X-Environment", "sandbox"), "", 403, nil},
	} {
		res := c.by.Do(t, "POST", "/resources/auto-classify-bulk"+c.query, nil)
		if res.Status != c.status || c.want != nil && res.Get("environment") != c.want {
			t.Errorf("the bulk classification with %s = %d %s, want %d in %v", name, res.Status, res.Body, c.status, c.want)
		}
	}
}
