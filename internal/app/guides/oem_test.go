package guides_test

import (
	"os"
	"strings"
	"testing"

	"github.com/gatehouse-dev/gatehouse/internal/app/apptest"
	"github.com/gatehouse-dev/gatehouse/internal/db/dbtest"
)

// TestOEMGuide pastes docs/oem.md into a shell.
func TestOEMGuide(t *testing.T) {
	text, err := os.ReadFile("../../../docs/oem.md")
	if err != nil {
		t.Fatal(err)
	}
	s := apptest.StartServer(t, dbtest.SQLite)
	script := "set -eu\nexport GATEHOUSE_ADMIN_PASSWORD='" + apptest.Password + "'\n"
	for _, block := range apptest.Fences(string(text)) {
		script += strings.ReplaceAll(block[1], "http://127.0.0.1:8080", s.URL)
	}
	out, code := apptest.Shell(t, t.TempDir(), script+"\ncat first.json\necho guide-done\n")
	if code != 0 || strings.Count(out, `"error":"`) != 1 { // the last command's, with the key of a vendor who is gone
		t.Fatalf("the guide ended with %d:\n%s", code, out)
	}
	for _, want := range []string{
		"same-answer", `"region":"eu-west-1"`, `"max_users":100`, `"status":"suspended"`, `"users_used":1`, `"months":[{"month":"`, `"tenant_id":"acme"`,
		`"key":"gh_tenant_`, `"token":"gh_bouncer_`, `"message":"Vendor removed"`, `"error":"invalid_credentials"`, "guide-done",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("the guide does not show %q:\n%s", want, out)
		}
	}
}
