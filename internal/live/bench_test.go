package live

import (
	"testing"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/db/dbtest"
)

// BenchmarkRefresh measures what a tenant with an open stream costs every two seconds.
func BenchmarkRefresh(b *testing.B) {
	for _, backend := range []string{dbtest.SQLite, dbtest.Postgres} {
		b.Run(backend, func(b *testing.B) {
			s := &Service{Stores: dbtest.Open(b, backend)}
			s.Now = time.Now
			h := &hub{service: s, tenant: everything.Tenant, streams: map[*Stream]struct{}{}}
			for b.Loop() {
				must(b, h.refresh(b.Context(), true))
			}
		})
	}
}
