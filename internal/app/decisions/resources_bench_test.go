package decisions_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/app/apptest"
	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/db/dbtest"
	"github.com/gatehouse-dev/gatehouse/internal/errtest"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

// apiControl permits resources that are classified as an API.
const apiControl = `package kindly

default allow := false

allow if input.resource.resource_kind == "api"
`

// fillResources adds a hundred thousand resources to the store of a server. It stops the server meanwhile.
func fillResources(b *testing.B, s *apptest.Server) {
	b.Helper()
	ctx := context.Background()
	s.Stop()
	c, err := db.Open(ctx, db.Config{URL: s.DatabaseURL(), Dir: s.Dir})
	errtest.Must(b, err)
	store, err := c.Tenant(ctx, scope.DefaultTenant)
	if err == nil {
		err = store.Write(ctx, func(tx *db.Tx) error {
			_, err := tx.Exec(ctx, `WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 100000)
				INSERT INTO resources (name, type, environment, path, url, auto_discovered, business_context, description, version, created_at, updated_at)
				SELECT 'service ' || i, CASE WHEN i % 10 = 0 THEN 'database' ELSE 'api' END, CASE WHEN i % 100 = 0 THEN 'production' ELSE 'sandbox' END,
					'/svc' || i || '/{id}', '', FALSE, CASE WHEN i % 3 = 0 THEN 'keeps email and card of customers' ELSE 'reports' END,
					'A resource with a description of some length, as people write them, so that rows are not too small.', 1, 0, 0 FROM n`)
			return err
		})
	}
	errtest.Must(b, err)
	errtest.Must(b, c.Close())
	s.Start()
}

// BenchmarkResources measures calls over HTTP in a tenant with a hundred thousand resources (the goal is
// 300 ms), and the time from a change until decisions and a bouncer use it.
func BenchmarkResources(b *testing.B) {
	for _, backend := range []string{dbtest.SQLite, dbtest.Postgres} {
		b.Run(backend, func(b *testing.B) {
			s := apptest.StartServer(b, backend)
			fillResources(b, s)
			a := s.Admin
			apptest.Enforce(b, a, "sandbox")
			apptest.Activate(b, a, "kindly", "sandbox", apiControl, nil)
			upstream := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
			defer upstream.Close()
			var ids []int64
			for id := int64(1); len(ids) < 1000; id++ {
				if id%100 != 0 {
					ids = append(ids, id)
				}
			}
			bouncer := s.Bouncer(b, a, body{"name": "edge", "environment": "sandbox", "resource_ids": ids}, strings.TrimPrefix(upstream.URL, "http://"))
			caller := bouncer.As("ann", "staff")
			waitForDecision := func(id int64, want string) {
				apptest.Eventually(b, 30*time.Second, func() error {
					got := a.Do(b, "POST", "/decisions/evaluate?environment=sandbox", body{"user": body{"id": "ann"}, "resource": body{"id": id}, "action": body{"name": "read", "method": "GET"}}).Want(200)
					if got.Get("decision") != want {
						return fmt.Errorf("the decision = %s, want %s", got.Body, want)
					}
					return nil
				})
			}
			waitForDecision(1, "DENY")
			apptest.WaitForStatus(b, caller, "/svc1/x", 403, 30*time.Second)
			for name, path := range map[string]string{
				"list": "/resources?environment=sandbox", "list deep": "/resources?environment=sandbox&skip=98000&limit=100",
				"list 1000 deep": "/resources?skip=99000&limit=1000", "list of a type": "/resources?type=database&skip=9000", "list of a type and environment": "/resources?environment=sandbox&type=api&skip=88000&limit=100",
				"inventory": "/resources/inventory-summary?environment=sandbox", "inventory of both": "/resources/inventory-summary",
			} {
				b.Run(name, func(b *testing.B) {
					median(b, func() { a.Do(b, "GET", path, nil).Want(200) })
				})
			}
			began := time.Now()
			took := func() float64 { return float64(time.Since(began).Microseconds()) / 1000 }
			a.Do(b, "POST", "/resources/auto-classify-bulk?environment=sandbox&limit=1000", nil).Want(200)
			call := took()
			waitForDecision(1, "PERMIT")
			decided := took()
			apptest.WaitForStatus(b, caller, "/svc1/x", 200, 30*time.Second)
			enforced := took()
			b.Run("bulk classification of all that a bouncer has", func(b *testing.B) { // it runs only once
				for b.Loop() {
				}
				b.ReportMetric(0, "ns/op")
				b.ReportMetric(call, "call-ms")
				b.ReportMetric(decided, "decisions-ms")
				b.ReportMetric(enforced, "bouncer-ms")
			})
			b.Run("bulk classification", func(b *testing.B) {
				median(b, func() {
					a.Do(b, "POST", "/resources/auto-classify-bulk?environment=sandbox&limit=1000", nil).Want(200)
				})
			})
			kinds := []string{"api", "tool"}
			b.Run("one change", func(b *testing.B) {
				n := 0
				median(b, func() {
					n++
					a.Do(b, "PUT", "/resources/1/enrich", body{"resource_kind": kinds[n%2]}).Want(200)
				})
			})
			b.Run("one change reaches decisions", func(b *testing.B) {
				n := 0
				median(b, func() {
					n++
					a.Do(b, "PUT", "/resources/2/enrich", body{"resource_kind": kinds[n%2]}).Want(200)
					waitForDecision(2, []string{"PERMIT", "DENY"}[n%2])
				})
			})
			b.Run("one change reaches its bouncer", func(b *testing.B) {
				n := 0
				median(b, func() {
					n++
					a.Do(b, "PUT", "/resources/2/enrich", body{"resource_kind": kinds[n%2]}).Want(200)
					apptest.WaitForStatus(b, caller, "/svc2/x", []int{200, 403}[n%2], 30*time.Second)
				})
			})
		})
	}
}
