package guides_test

import (
	"testing"

	"github.com/gatehouse-dev/gatehouse/internal/app/apptest"
	"github.com/gatehouse-dev/gatehouse/internal/db/dbtest"
)

// TestSCIMGuide runs the commands of docs/scim.md.
func TestSCIMGuide(t *testing.T) {
	s := apptest.StartServer(t, dbtest.SQLite)
	out := run(t, t.TempDir(), commands(t, "scim.md", s),

		`"base_url":"`+s.URL+`/scim/v2"`, `"name":"Okta"`, `"totalResults":0`, `"displayName":"Security"`, `"roles":["auditor","policy_author","viewer"]`, `"active":false`,
		`"match_subject":true`)
	wantNone(t, out, `"error":"`, "messages:2.0:Error")
}
