package guides_test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/app/apptest"
	"github.com/gatehouse-dev/gatehouse/internal/db/dbtest"
)

// TestPortalGuide pastes the steps of the developer portal's first guide, and those
// that register a bouncer and enforce, into one shell: they do what the guide says.
func TestPortalGuide(t *testing.T) {
	s := apptest.StartServer(t, dbtest.SQLite)
	steps, err := filepath.Glob("../../devdocs/guides/code/first-control-*.sh")
	if err != nil || len(steps) != 6 {
		t.Fatalf("%d steps, %v", len(steps), err)
	}
	steps = append(steps, "../../devdocs/guides/code/bouncer-register.sh", "../../devdocs/guides/code/bouncer-enforce.sh")
	script := "set -eu\nexport GATEHOUSE_ADMIN_PASSWORD='" + apptest.Password + "'\n"
	const mark = "----- next step -----"
	for _, name := range steps { // Glob sorts
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		script += strings.ReplaceAll(string(text), "http://127.0.0.1:8080", s.URL) + "\necho; echo '" + mark + "'\n"
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "bash", "-s")
	cmd.Dir = t.TempDir()
	cmd.Stdin = strings.NewReader(script)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("the guide ended: %v\n%s", err, out)
	}
	said := strings.Split(string(out), mark)
	for i, want := range [][]string{
		{},
		{"resource "},
		{`"valid":true`},
		{`"failed":0`, `"passed":2`},
		{`"status":"active"`},
		{`"decision":"PERMIT"`, `"decision":"DENY"`, "only staff may read orders"},
		{`"token":"gh_bouncer_`},
		{`"mode":"enforce"`},
	} {
		for _, text := range want {
			if !strings.Contains(said[i], text) {
				t.Errorf("step %d does not show %q:\n%s", i+1, text, said[i])
			}
		}
	}
}
