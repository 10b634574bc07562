package delivery_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/app/apptest"
	"github.com/gatehouse-dev/gatehouse/internal/db/dbtest"
)

// TestFloodsAreApart: a flood of one tenant, or in one environment, is counted
// together. The same refusals of another tenant on the server, or in the other
// environment, have entries of their own: nobody uses up another's share of the log.
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
			for cursor := ""; ; {
				var page struct {
					Logs []struct {
						Folded *struct{ Count int } `json:"folded"`
					} `json:"logs"`
					Next string `json:"next_cursor"`
				}
				s.Admin.With("X-Tenant-ID", of.tenant).Do(t, "GET", "/decisions/audit?limit=1000&environment="+of.env+"&cursor="+cursor, nil).Want(200).Into(&page)
				for _, e := range page.Logs {
					if e.Folded != nil {
						folded, counted = folded+1, counted+e.Folded.Count
					} else {
						own++
					}
				}
				if cursor = page.Next; cursor == "" {
					break
				}
			}
			if own+counted != n || of == loud && folded == 0 || of != loud && folded != 0 {
				return fmt.Errorf("%s: %d entries of their own and %d with a count of %d, of %d refusals", of, own, folded, counted, n)
			}
			return nil
		})
	}
}
