package guides_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"

	"github.com/gatehouse-dev/gatehouse/internal/app/apptest"
	"github.com/gatehouse-dev/gatehouse/internal/db/dbtest"
)

// TestTelemetryGuide pastes docs/telemetry.md into a shell, with a license server of its own.
func TestTelemetryGuide(t *testing.T) {
	text, err := os.ReadFile("../../../docs/telemetry.md")
	if err != nil {
		t.Fatal(err)
	}
	license := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if req.Header.Get("Authorization") != "Bearer the-key-of-the-guide" {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		_, _ = io.WriteString(w, `{"subscription_tier":"pro"}`)
	}))
	t.Cleanup(license.Close)
	s := apptest.StartServer(t, dbtest.SQLite, "GATEHOUSE_ALLOW_TARGETS=127.0.0.0/8")
	var script strings.Builder
	script.WriteString("set -eu\nexport GATEHOUSE_ADMIN_PASSWORD='" + apptest.Password + "' LICENSE_KEY=the-key-of-the-guide\n")
	for _, block := range apptest.Fences(string(text)) {
		script.WriteString(strings.NewReplacer("http://127.0.0.1:8080", s.URL, "https://license.example.com", license.URL).Replace(block[1]))
	}
	script.WriteString("\necho guide-done\n")
	out, code := apptest.Shell(t, t.TempDir(), script.String())
	if code != 0 {
		t.Fatalf("the guide ended with %d\n%s", code, out)
	}
	for _, want := range []string{
		`"tier":"community"`, `"api_key_configured":true`, `"message":"the license server is connected"`, `"customer_id":"anon-`, `"scheduler_running":true`,
		`"records_sent":1`, `"response_code":200`, `"status":"healthy"`, `"reason":"licensed"`, `"message":"The license was updated"`, `"tier":"enterprise"`, "guide-done",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("the guide does not show %q:\n%s", want, out)
		}
	}
	if strings.Contains(out, `{"detail"`) || strings.Contains(out, `"error":"`) || strings.Contains(out, "the-key-of-the-guide") {
		t.Errorf("a command of the guide failed, or the key was shown:\n%s", out)
	}
}
