package resource

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/db/dbtest"
	"github.com/gatehouse-dev/gatehouse/internal/errtest"
	"github.com/gatehouse-dev/gatehouse/internal/patch"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

// many is the number of resources that one tenant must be able to have.
const many = 100_000

// populate creates different resources: a tenth are model endpoints, a third hold
// personal data, and one in a hundred is in production.
func populate(b *testing.B, store *db.DB) {
	b.Helper()
	ctx := context.Background()
	err := store.Write(ctx, func(tx *db.Tx) error {
		_, err := tx.Exec(ctx, `WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < `+fmt.Sprint(many)+`)
			INSERT INTO resources (name, type, environment, path, url, original_host, auto_discovered, business_context, description, resource_kind,
				data_classification, compliance_tags, classification_source, version, created_at, updated_at)
			SELECT 'service ' || i, CASE WHEN i % 10 = 0 THEN 'llm' ELSE 'api' END, CASE WHEN i % 100 = 0 THEN 'production' ELSE 'sandbox' END,
				'/svc' || i || '/{id}', 'https://h' || (i % 500) || '.example.com' || CASE WHEN i % 10 = 0 THEN '/v1/chat/completions' ELSE '/svc' END,
				'h' || (i % 500) || '.example.com', i % 7 = 0, CASE WHEN i % 3 = 0 THEN 'keeps email and card of customers' ELSE 'internal reports' END,
				'A resource with a description of some length, as people write them, so that rows are not too small.',
				CASE WHEN i % 4 = 0 THEN 'api' ELSE '' END, CASE WHEN i % 5 = 0 THEN 'internal' ELSE '' END, CASE WHEN i % 6 = 0 THEN '["GDPR","SOX"]' ELSE '[]' END,
				CASE WHEN i % 50 = 0 THEN 'manual' ELSE '' END, 1, 0, 0 FROM n`)
		if err != nil {
			return err
		}
		_, err = tx.Exec(ctx, `WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 2000)
			INSERT INTO policies (name, name_folded, status, environment, rego_code, version, resource_id, created_at, updated_at)
			SELECT 'c' || i, 'c' || i, 'active', 'sandbox', 'package c', 1, i * 7, 0, 0 FROM n`)
		return err
	})
	errtest.Must(b, err)
}

// complete classifies all resources, and binds a control to all but the last one. So
// almost no resource needs attention.
func complete(b *testing.B, store *db.DB) {
	b.Helper()
	ctx := context.Background()
	err := store.Write(ctx, func(tx *db.Tx) error {
		_, err := tx.Exec(ctx, `UPDATE resources SET resource_kind = 'api', data_classification = 'internal', classification_source = 'manual'`)
		if err != nil {
			return err
		}
		_, err = tx.Exec(ctx, `INSERT INTO policies (name, name_folded, status, environment, rego_code, version, resource_id, created_at, updated_at)
			SELECT name, name, 'active', environment, 'package c', 1, id, 0, 0 FROM resources WHERE id < `+fmt.Sprint(many))
		return err
	})
	errtest.Must(b, err)
}

// BenchmarkHundredThousand measures each call on a tenant with that many resources.
// The goal is 300 ms for each call.
func BenchmarkHundredThousand(b *testing.B) {
	for _, backend := range []string{dbtest.SQLite, dbtest.Postgres} {
		b.Run(backend, func(b *testing.B) {
			ctx, c := context.Background(), dbtest.Open(b, backend)
			store := tenantStore(b, c)
			populate(b, store)
			s := service(c, nil, nil)
			s.Now = time.Now
			s.PoliciesOf = func(ctx context.Context, tx *db.Tx, first, last int64) (map[int64][]int64, error) { return nil, nil }
			made, err := s.Create(ctx, sc(scope.Sandbox), Draft{Name: "hostless", Type: "api", Path: "/none/of/these"})
			errtest.Must(b, err)
			n, hostless := int64(0), made.ID
			for _, call := range []struct {
				name string
				do   func() error
			}{
				{"list/first", func() error { _, err := s.List(ctx, sc(scope.Sandbox), Filter{Limit: 100}); return err }},
				{"list/last", func() error { _, err := s.List(ctx, sc(scope.Sandbox), Filter{Limit: 100, Skip: 98_000}); return err }},
				{"list/1000", func() error { _, err := s.List(ctx, sc(""), Filter{Limit: 1000, Skip: 99_000}); return err }},
				{"list/type", func() error { _, err := s.List(ctx, sc(""), Filter{Limit: 100, Skip: 9000, Type: "llm"}); return err }},
				{"shadows", func() error {
					return store.Read(ctx, func(tx *db.Tx) error {
						_, err := Shadows(ctx, tx, scope.Sandbox, []int64{hostless})
						return err
					})
				}},
				{"inventory", func() error { _, err := s.Inventory(ctx, sc(scope.Sandbox)); return err }},
				{"inventory/both", func() error { _, err := s.Inventory(ctx, sc("")); return err }},
				{"bulk/100", func() error { _, err := s.ClassifyBulk(ctx, sc(scope.Sandbox), 100); return err }},
				{"bulk/1000", func() error { _, err := s.ClassifyBulk(ctx, sc(scope.Sandbox), 1000); return err }},
				{"enrich", func() error {
					n++
					_, err := s.Enrich(ctx, sc(""), n, EnrichmentChange{OwnerTeam: patch.Set(fmt.Sprint("team ", n))}, 0)
					return err
				}},
				{"changes", func() error {
					return store.Read(ctx, func(tx *db.Tx) error {
						to, err := tx.Revision(ctx, Revision(scope.Sandbox))
						if err == nil {
							_, _, err = DocsSince(ctx, tx, scope.Sandbox, to-1, to)
						}
						return err
					})
				}},
				{"inventory/complete", func() error { _, err := s.Inventory(ctx, sc("")); return err }},
				{"docs", func() error {
					return store.Read(ctx, func(tx *db.Tx) error { _, err := Docs(ctx, tx, scope.Sandbox); return err })
				}},
			} {
				if call.name == "inventory/complete" {
					complete(b, store)
				}
				b.Run(call.name, func(b *testing.B) {
					worst := time.Duration(0)
					for b.Loop() {
						begun := time.Now()
						errtest.Must(b, call.do())
						worst = max(worst, time.Since(begun))
					}
					b.ReportMetric(float64(worst.Microseconds())/1000, "worst-ms")
				})
			}
		})
	}
}
