package guides_test

import (
	"os"
	"strings"
	"testing"

	"github.com/gatehouse-dev/gatehouse/internal/app/apptest"
	"github.com/gatehouse-dev/gatehouse/internal/cache/cachetest"
	"github.com/gatehouse-dev/gatehouse/internal/db/dbtest"
	"github.com/gatehouse-dev/gatehouse/internal/freeport"
)

// TestScalingGuide pastes docs/operations/scaling.md into a shell: two servers
// on PostgreSQL and Redis with one key. A change at one decides at the other.
func TestScalingGuide(t *testing.T) {
	text, err := os.ReadFile("../../../docs/operations/scaling.md")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	first, second := freeport.Addr(t), freeport.Addr(t)
	here := strings.NewReplacer(
		"/var/lib/", dir+"/", "10.0.0.1:8080", first, "10.0.0.2:8080", second,
		"postgres://gatehouse@db.internal/gatehouse", "'"+dbtest.Config(t, dbtest.Postgres).URL+"'", "redis://redis.internal:6379", cachetest.Start(t).URL(),
	)
	var script strings.Builder
	script.WriteString("set -eu\nexport GATEHOUSE_ADMIN_PASSWORD='" + apptest.Password + "'\n" +
		"wait_for() { for i in $(seq 400); do curl -sf -o /dev/null \"$1\" && return; sleep 0.05; done; echo \"no $1\"; exit 1; }\n")
	for _, block := range apptest.Fences(here.Replace(string(text))) {
		script.WriteString(started.ReplaceAllString(block[1], "gatehouse $1 & echo $$! >> pids\nwait_for http://$$GATEHOUSE_LISTEN/health/ready"))
	}
	script.WriteString("echo\ncurl -s http://" + second + "/api/v1/health\nkill $(cat pids)\nwait\necho guide-done\n")
	out, code := apptest.Shell(t, dir, script.String())
	if code != 0 {
		t.Fatalf("the guide ended with %d\n%s", code, out)
	}
	for _, want := range []string{`"name":"readers"`, `"decision":"PERMIT"`, `"policy_name":"readers"`, `"status":"up"`, "guide-done"} {
		if !strings.Contains(out, want) {
			t.Errorf("the guide does not show %q:\n%s", want, out)
		}
	}
}
