package guides_test

import (
	"regexp"
	"strings"
	"testing"

	"github.com/gatehouse-dev/gatehouse/internal/app/apptest"
	"github.com/gatehouse-dev/gatehouse/internal/db/dbtest"
)

// TestSimulatorGuide runs the commands of docs/simulator.md.
func TestSimulatorGuide(t *testing.T) {
	s := apptest.StartServer(t, dbtest.SQLite)
	out := run(t, t.TempDir(), commands(t, "simulator.md", s),
		`"status":"draft"`, `"key":"user.role"`, `"reason":"only HR and finance may read salaries"`, `"decision":"ALLOW"`, "a live decision uses the registered resource",
		`"last_used":"20`, `"total":3`, `"type":"POLICY_SIMULATION_RUN"`,
	)
	wantNone(t, out, `{"detail"`, `"error":"`)
	sum := regexp.MustCompile(`(?m)^([0-9a-f]{64})  -$`).FindStringSubmatch(out)
	if sum == nil || !strings.Contains(out, `"checksum":"sha256:`+sum[1]+`"`) {
		t.Errorf("the page's command computes the checksum %v, want that of the answer:\n%s", sum, out)
	}
}
