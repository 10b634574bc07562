// Package connections_test tests the program's connections to other systems: data sources, channels,
// webhooks, integrations, agents, telemetry and tracing.
package connections_test

import (
	"testing"

	"github.com/gatehouse-dev/gatehouse/internal/app/apptest"
	"github.com/gatehouse-dev/gatehouse/internal/db/dbtest"
)

type body = apptest.Body

func TestMain(m *testing.M) { apptest.Main(m) }

// each runs a test on each backend, with a server that may call this machine.
func each(t *testing.T, test func(t *testing.T, s *apptest.Server), env ...string) {
	for _, backend := range dbtest.Backends() {
		t.Run(backend, func(t *testing.T) {
			test(t, apptest.StartServer(t, backend, append(env, "GATEHOUSE_ALLOW_TARGETS=127.0.0.0/8")...))
		})
	}
}
