package guides_test

import (
	"context"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/app/apptest"
	"github.com/gatehouse-dev/gatehouse/internal/db/dbtest"
)

// TestSimulatorGuide pastes docs/simulator.md into a shell.
func TestSimulatorGuide(t *testing.T) {
	text, err := os.ReadFile("../../../docs/simulator.md")
	if err != nil {
		t.Fatal(err)
	}
	s := apptest.StartServer(t, dbtest.SQLite)
	var script strings.Builder
	script.WriteString("set -eu\n")
	for _, block := range apptest.Fences(string(text)) {
		script.WriteString(strings.ReplaceAll(block[1], "http://127.0.0.1:8080", s.URL))
	}
	script.WriteString("\necho guide-done\n")
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "bash", "-s")
	cmd.Dir = t.TempDir()
	cmd.Env = append(os.Environ(), "GATEHOUSE_ADMIN_PASSWORD="+apptest.Password)
	cmd.Stdin = strings.NewReader(script.String())
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("the guide ended: %v\n%s", err, out)
	}
	for _, want := range []string{
		`"status":"draft"`, `"key":"user.role"`, `"reason":"only HR and finance may read salaries"`, `"decision":"ALLOW"`, "a live decision uses the registered resource",
		`"last_used":"20`, `"total":3`, `"type":"POLICY_SIMULATION_RUN"`, "guide-done",
	} {
		if !strings.Contains(string(out), want) {
			t.Errorf("the guide does not show %q:\n%s", want, out)
		}
	}
	if strings.Contains(string(out), `{"detail"`) || strings.Contains(string(out), `"error":"`) {
		t.Errorf("a command of the guide failed:\n%s", out)
	}
	sum := regexp.MustCompile(`(?m)^([0-9a-f]{64})  -$`).FindStringSubmatch(string(out))
	if sum == nil || !strings.Contains(string(out), `"checksum":"sha256:`+sum[1]+`"`) {
		t.Errorf("the checksum cannot be computed as the guide says: %v\n%s", sum, out)
	}
}
