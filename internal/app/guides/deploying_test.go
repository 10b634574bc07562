package guides_test

import (
	"regexp"
	"strings"
	"testing"

	"github.com/gatehouse-dev/gatehouse/internal/app/apptest"
	"github.com/gatehouse-dev/gatehouse/internal/freeport"
)

// started matches the commands that run until they are stopped.
var started = regexp.MustCompile(`(?m)^gatehouse (server|bouncer)$`)

// TestDeployingGuide runs the commands of docs/operations/deploying.md: a server and a bouncer as an
// operator starts them, enforcement and recovery.
func TestDeployingGuide(t *testing.T) {
	dir := t.TempDir()
	api, edge := freeport.Addr(t), freeport.Addr(t)
	upstream, _ := apptest.Application(t)
	here := strings.NewReplacer(
		"/var/lib/", dir+"/", "0.0.0.0:8080", api, "https://gatehouse.example.com", "http://"+api, "0.0.0.0:8081", edge,
		"http://127.0.0.1:9000", "http://"+upstream, "gh_bouncer_…", `$(sed 's/.*"token":"\([^"]*\)".*/\1/' bouncer.json)`,
		"curl -s $API/bouncers", "curl -s $API/bouncers -o bouncer.json",
	)
	script := setUp + waitFor
	for _, block := range apptest.Fences(here.Replace(apptest.Page(t, "operations/deploying.md"))) {
		block = started.ReplaceAllString(block, "gatehouse $1 & echo $$! >> pids")
		script += block
		if strings.Contains(block, "gatehouse server &") {
			script += "wait_for http://" + api + "/health/ready\nAPI=http://" + api + "/api/v1\n" +
				`TOKEN=$(curl -s $API/auth/login -H 'Content-Type: application/json' -d "{\"username\":\"admin\",\"password\":\"$GATEHOUSE_ADMIN_PASSWORD\"}" | sed 's/.*"access_token":"\([^"]*\)".*/\1/')` + "\n"
		}
		if strings.Contains(block, "gatehouse bouncer &") {
			script += "wait_for http://" + edge + "/_bouncer/ready\ncurl -sf http://" + edge + "/anything\n"
		}
	}
	run(t, dir, script+"gatehouse admin reset-password\ngatehouse audit verify\nkill $(cat pids)\nwait\n",
		`"mode":"enforce"`, `"name":"Ada"`, "has a new password", "every chain is intact",
	)
}
