package guides_test

import (
	"os"
	"strings"
	"testing"

	"github.com/gatehouse-dev/gatehouse/internal/app/apptest"
	"github.com/gatehouse-dev/gatehouse/internal/db/dbtest"
)

// TestAccessRequestsGuide pastes docs/access-requests.md into a shell.
func TestAccessRequestsGuide(t *testing.T) {
	text, err := os.ReadFile("../../../docs/access-requests.md")
	if err != nil {
		t.Fatal(err)
	}
	s := apptest.StartServer(t, dbtest.SQLite)
	script := "set -eu\nexport GATEHOUSE_ADMIN_PASSWORD='" + apptest.Password + "'\n"
	for _, block := range apptest.Fences(string(text)) {
		script += strings.ReplaceAll(block[1], "http://127.0.0.1:8080", s.URL)
	}
	out, code := apptest.Shell(t, t.TempDir(), script+"\necho guide-done\n")
	if code != 0 || strings.Contains(out, `"error":"`) {
		t.Fatalf("the guide ended with %d:\n%s", code, out)
	}
	for _, want := range []string{`"request_access":{"subject":{"id":"ada"}`, `"status":"pending"`, `"status":"approved"`, `"decision":"PERMIT"`, `"status":"revoked"`, "guide-done"} {
		if !strings.Contains(out, want) {
			t.Errorf("the guide does not show %q:\n%s", want, out)
		}
	}
}
