package guides_test

import (
	"os"
	"strings"
	"testing"

	"github.com/gatehouse-dev/gatehouse/internal/app/apptest"
	"github.com/gatehouse-dev/gatehouse/internal/db/dbtest"
)

// TestSignOnGuide pastes docs/sign-on.md into a shell, with a real provider.
func TestSignOnGuide(t *testing.T) {
	text, err := os.ReadFile("../../../docs/sign-on.md")
	if err != nil {
		t.Fatal(err)
	}
	s := apptest.StartServer(t, dbtest.SQLite, "GATEHOUSE_ALLOW_TARGETS=127.0.0.0/8,::1/128")
	issuer := apptest.StartIDP(t, s.URL+"/api/v1/auth/sso/callback")
	script := "set -eu\nexport GATEHOUSE_ADMIN_PASSWORD='" + apptest.Password + "'\n"
	for _, block := range apptest.Fences(string(text)) {
		script += strings.NewReplacer("http://127.0.0.1:8080", s.URL, "https://login.example.com/", issuer).Replace(block[1])
	}
	out, code := apptest.Shell(t, t.TempDir(), script+"\necho guide-done\n")
	if code != 0 || strings.Contains(out, `"error":"`) {
		t.Fatalf("the guide ended with %d:\n%s", code, out)
	}
	for _, want := range []string{
		`"client_secret_set":true`, `"backchannel_logout_uri":"` + s.URL + `/api/v1/auth/sso/backchannel-logout?tenant_id=default"`,
		`"available":true,"name":"Example Login","password_login":true`, "302 " + issuer + "auth?", `"subject":"248289761001"`, `"sessions":[]`, `"ended":0`, "guide-done",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("the guide does not show %q:\n%s", want, out)
		}
	}
}
