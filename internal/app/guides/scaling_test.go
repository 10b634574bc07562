package guides_test

import (
	"strings"
	"testing"

	"github.com/gatehouse-dev/gatehouse/internal/app/apptest"
	"github.com/gatehouse-dev/gatehouse/internal/cache/cachetest"
	"github.com/gatehouse-dev/gatehouse/internal/db/dbtest"
	"github.com/gatehouse-dev/gatehouse/internal/freeport"
	"github.com/gatehouse-dev/gatehouse/internal/fulltest"
)

// TestScalingGuide runs the commands of docs/operations/scaling.md: two servers on PostgreSQL and Redis
// with one key. A change at one decides at the other.
func TestScalingGuide(t *testing.T) {
	fulltest.Only(t)
	dir := t.TempDir()
	first, second := freeport.Addr(t), freeport.Addr(t)
	here := strings.NewReplacer(
		"/var/lib/", dir+"/", "10.0.0.1:8080", first, "10.0.0.2:8080", second,
		"postgres://gatehouse@db.internal/gatehouse", "'"+dbtest.Config(t, dbtest.Postgres).URL+"'", "redis://redis.internal:6379", cachetest.Start(t).URL(),
	)
	script := setUp + waitFor
	for _, block := range apptest.Fences(here.Replace(apptest.Page(t, "operations/scaling.md"))) {
		script += started.ReplaceAllString(block, "gatehouse $1 & echo $$! >> pids\nwait_for http://$$GATEHOUSE_LISTEN/health/ready")
	}
	run(t, dir, script+"echo\ncurl -s http://"+second+"/api/v1/health\nkill $(cat pids)\nwait\n",
		`"name":"readers"`, `"decision":"PERMIT"`, `"policy_name":"readers"`, `"status":"up"`,
	)
}
