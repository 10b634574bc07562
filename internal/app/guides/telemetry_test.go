package guides_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/gatehouse-dev/gatehouse/internal/app/apptest"
	"github.com/gatehouse-dev/gatehouse/internal/db/dbtest"
)

// TestTelemetryGuide runs the commands of docs/telemetry.md with its own license server.
func TestTelemetryGuide(t *testing.T) {
	license := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if req.Header.Get("Authorization") != "Bearer the-key-of-the-guide" {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		_, _ = io.WriteString(w, `{"subscription_tier":"pro"}`)
	}))
	t.Cleanup(license.Close)
	s := apptest.StartServer(t, dbtest.SQLite, "GATEHOUSE_ALLOW_TARGETS=127.0.0.0/8")
	out := run(t, t.TempDir(), "export LICENSE_KEY=the-key-of-the-guide\n"+commands(t, "telemetry.md", s, "https://license.example.com", license.URL),
		`"tier":"community"`, `"api_key_configured":true`, `"message":"the license server is connected"`, `"customer_id":"anon-`, `"scheduler_running":true`,
		`"records_sent":1`, `"response_code":200`, `"status":"healthy"`, `"reason":"licensed"`, `"message":"The license was updated"`, `"tier":"enterprise"`,
	)
	wantNone(t, out, `{"detail"`, `"error":"`, "the-key-of-the-guide")
}
