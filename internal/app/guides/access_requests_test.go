package guides_test

import (
	"testing"

	"github.com/gatehouse-dev/gatehouse/internal/app/apptest"
	"github.com/gatehouse-dev/gatehouse/internal/db/dbtest"
)

// TestAccessRequestsGuide runs the commands of docs/access-requests.md.
func TestAccessRequestsGuide(t *testing.T) {
	s := apptest.StartServer(t, dbtest.SQLite)
	out := run(t, t.TempDir(), commands(t, "access-requests.md", s),
		`"request_access":{"subject":{"id":"ada"}`, `"status":"pending"`, `"status":"approved"`, `"decision":"PERMIT"`, `"status":"revoked"`,
	)
	wantNone(t, out, `"error":"`)
}
