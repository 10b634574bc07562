package guides_test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/app/apptest"
	"github.com/gatehouse-dev/gatehouse/internal/freeport"
)

// started are the commands that go on until they are stopped.
var started = regexp.MustCompile(`(?m)^gatehouse (server|bouncer)$`)

// TestDeployingGuide pastes docs/operations/deploying.md into a shell: a server
// and a bouncer as an operator would start them, enforcement, recovery.
func TestDeployingGuide(t *testing.T) {
	text, err := os.ReadFile("../../../docs/operations/deploying.md")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	api, edge := freeport.Addr(t), freeport.Addr(t)
	upstream, _ := apptest.Application(t)
	here := strings.NewReplacer(
		"/var/lib/", dir+"/", "0.0.0.0:8080", api, "https://gatehouse.example.com", "http://"+api, "0.0.0.0:8081", edge,
		"http://127.0.0.1:9000", "http://"+upstream, "gh_bouncer_…", `$(sed 's/.*"token":"\([^"]*\)".*/\1/' bouncer.json)`,
		"curl -s $API/bouncers", "curl -s $API/bouncers -o bouncer.json",
	)
	var script strings.Builder
	script.WriteString("set -eu\nexport GATEHOUSE_ADMIN_PASSWORD='" + apptest.Password + "'\nwait_for() { for i in $(seq 400); do curl -sf -o /dev/null \"$1\" && return; sleep 0.05; done; echo \"no $1\"; exit 1; }\n")
	for _, block := range apptest.Fences(here.Replace(string(text))) {
		commands := started.ReplaceAllString(block[1], "gatehouse $1 & echo $$! >> pids")
		script.WriteString(commands)
		if strings.Contains(commands, "gatehouse server &") {
			script.WriteString("wait_for http://" + api + "/health/ready\nAPI=http://" + api + "/api/v1\n" +
				`TOKEN=$(curl -s $API/auth/login -H 'Content-Type: application/json' -d "{\"username\":\"admin\",\"password\":\"$GATEHOUSE_ADMIN_PASSWORD\"}" | sed 's/.*"access_token":"\([^"]*\)".*/\1/')` + "\n")
		}
		if strings.Contains(commands, "gatehouse bouncer &") {
			script.WriteString("wait_for http://" + edge + "/_bouncer/ready\ncurl -sf http://" + edge + "/anything\n")
		}
	}
	script.WriteString("gatehouse admin reset-password\ngatehouse audit verify\nkill $(cat pids)\nwait\necho guide-done\n")

	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "bash", "-s")
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "PATH="+filepath.Dir(apptest.Binary(t))+":"+os.Getenv("PATH"))
	cmd.Stdin = strings.NewReader(script.String())
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("the guide ended: %v\n%s", err, out)
	}
	for _, want := range []string{`"mode":"enforce"`, `"name":"Ada"`, "has a new password", "every chain is intact", "guide-done"} {
		if !strings.Contains(string(out), want) {
			t.Errorf("the guide does not show %q:\n%s", want, out)
		}
	}
}
