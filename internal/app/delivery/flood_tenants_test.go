package delivery_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/app/apptest"
	"github.com/gatehouse-dev/gatehouse/internal/db/dbtest"
)

// TestFloodsAreApart checks that a flood in one tenant and environment is counted in common entries,
// and that the same refusals of other tenants, or in the other environment, have their own entries.
func TestFloodsAreApart(t *testing.T) {
	t.Parallel()
	s := apptest.StartServer(t, dbtest.SQLite)
	type source struct{ tenant, env string }
	const flood, quiet = 4000, 900
	sent := map[source]int{}
	refuse := func(of source, n int) {
		t.Helper()
		items := make([]body, n)
		for i := range items {
			items[i] = body{"user": body{"id": "u"}, "action": body{"name": "read"}, "resource": body{"type": "api", "path": "/closed"}}
		}
		s.Admin.With("X-Tenant-ID", of.tenant).Do(t, "POST", "/decisions/evaluate/bulk?environment="+of.env, body{"decisions": items}).Want(200)
		sent[of] += n
	}
	for _, id := range []string{"acme", "beta"} {
		s.Admin.Do(t, "POST", "/tenants", body{"id": id, "name": id}).Want(201)
	}
	loud := source{"acme", "sandbox"}
	for range flood / 1000 {
		refuse(loud, 1000)
	}
	others := []source{{"acme", "production"}, {"beta", "sandbox"}, {"default", "sandbox"}}
	for _, of := range others {
		refuse(of, quiet)
	}
	refuse(loud, 1000) // it goes on
	for of, n := range sent {
		apptest.Eventually(t, 60*time.Second, func() error {
			own, folded, counted := 0, 0, 0
			for _, e := range apptest.DecisionLog(t, s.Admin.With("X-Tenant-ID", of.tenant), of.env) {
				if e.Folded != nil {
					folded, counted = folded+1, counted+int(e.Folded.Count)
				} else {
					own++
				}
			}
			if own+counted != n || of == loud && folded == 0 || of != loud && folded != 0 {
				return fmt.Errorf("the log of %s has %d entries of one refusal and %d of %d together, want %d refusals in all", of, own, folded, counted, n)
			}
			return nil
		})
	}
}
