package live

import (
	"testing"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/db/dbtest"
	"github.com/gatehouse-dev/gatehouse/internal/errtest"
)

// BenchmarkRefresh measures what a tenant with an open stream costs every two seconds.
func BenchmarkRefresh(b *testing.B) {
	for _, backend := range []string{dbtest.SQLite, dbtest.Postgres} {
		b.Run(backend, func(b *testing.B) {
			s := &Service{Stores: dbtest.Open(b, backend)}
			s.Now = time.Now
			h := &hub{service: s, tenant: everything.Tenant, streams: map[*Stream]struct{}{}}
			for b.Loop() {
				errtest.Must(b, h.refresh(b.Context(), true))
			}
		})
	}
}
