package guides_test

import (
	"testing"

	"github.com/gatehouse-dev/gatehouse/internal/app/apptest"
	"github.com/gatehouse-dev/gatehouse/internal/db/dbtest"
)

// TestSignOnGuide runs the commands of docs/sign-on.md with a real provider.
func TestSignOnGuide(t *testing.T) {
	s := apptest.StartServer(t, dbtest.SQLite, "GATEHOUSE_ALLOW_TARGETS=127.0.0.0/8,::1/128")
	issuer := apptest.StartIDP(t, s.URL+"/api/v1/auth/sso/callback")
	out := run(t, t.TempDir(), commands(t, "sign-on.md", s, "https://login.example.com/", issuer),
		`"client_secret_set":true`, `"backchannel_logout_uri":"`+s.URL+`/api/v1/auth/sso/backchannel-logout?tenant_id=default"`,
		`"available":true,"name":"Example Login","password_login":true`, "302 "+issuer+"auth?", `"subject":"248289761001"`, `"sessions":[]`, `"ended":0`,
	)
	wantNone(t, out, `"error":"`)
}
