package guides_test

import (
	"strings"
	"testing"

	"github.com/gatehouse-dev/gatehouse/internal/app/apptest"
	"github.com/gatehouse-dev/gatehouse/internal/db/dbtest"
)

// TestOEMGuide runs the commands of docs/oem.md.
func TestOEMGuide(t *testing.T) {
	s := apptest.StartServer(t, dbtest.SQLite)
	out := run(t, t.TempDir(), commands(t, "oem.md", s)+"\ncat first.json\n",
		"same-answer", `"region":"eu-west-1"`, `"max_users":100`, `"status":"suspended"`, `"users_used":1`, `"months":[{"month":"`, `"tenant_id":"acme"`,
		`"key":"gh_tenant_`, `"token":"gh_bouncer_`, `"message":"Vendor removed"`, `"error":"invalid_credentials"`,
	)
	if n := strings.Count(out, `"error":"`); n != 1 { // only the last command fails, with the key of a deleted vendor
		t.Errorf("the output has %d errors, want 1:\n%s", n, out)
	}
}
