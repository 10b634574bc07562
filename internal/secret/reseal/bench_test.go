package reseal

import (
	"cmp"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/gatehouse-dev/gatehouse/internal/db/dbtest"
	"github.com/gatehouse-dev/gatehouse/internal/errtest"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

// BenchmarkRun measures a run in which nothing is under an old key, for each tenant.
func BenchmarkRun(b *testing.B) {
	const tenants = 20
	for _, backend := range dbtest.Backends() {
		b.Run(backend, func(b *testing.B) {
			c := dbtest.Open(b, backend)
			for i := range tenants {
				errtest.Must(b, c.CreateTenant(b.Context(), scope.TenantID(fmt.Sprint("bench", i))))
			}
			one := box(b, 1)
			key := map[string]string{"bouncer_credentials": "bouncer_id", "user_factors": "user_id", "domains": "domain", "bridge_keys": "kid", "mask_keys": "kid"}
			var columns []Column
			for _, name := range []string{
				"webhooks.secret", "webhooks.previous_secret", "notification_channels.credential", "pip_connections.credentials", "integrations.credential", "telemetry.api_key",
				"sign_on.sealed_secret", "ide_repositories.secret", "ide_repositories.access_token", "bouncer_credentials.sealed", "user_factors.sealed", "domains.sealed_key", "bridge_keys.sealed", "mask_keys.sealed",
			} {
				table, column, _ := strings.Cut(name, ".")
				columns = append(columns, Column{Table: table, Name: column, Key: cmp.Or(key[table], "id"), Box: one, Place: func(scope.TenantID, any) string { return "" }})
			}
			s := Sealer{Stores: c, Columns: columns, Logger: slog.New(slog.DiscardHandler)}
			errtest.Must(b, s.Run(b.Context()))
			for b.Loop() {
				errtest.Must(b, s.Run(b.Context()))
			}
			b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(b.N)/(tenants+2), "µs/tenant")
		})
	}
}
