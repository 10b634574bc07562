package guides_test

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/app/apptest"
	"github.com/gatehouse-dev/gatehouse/internal/db/dbtest"
	"github.com/gatehouse-dev/gatehouse/internal/outbound"
)

// TestNotificationsGuide pastes docs/notifications.md into a shell.
func TestNotificationsGuide(t *testing.T) {
	text, err := os.ReadFile("../../../docs/notifications.md")
	if err != nil {
		t.Fatal(err)
	}
	signed := make(chan bool, 10)
	receiver := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		signed <- outbound.SignatureValid([]byte("a-long-random-key"), body, r.Header.Get("X-Service-Signature"))
	}))
	defer receiver.Close()
	s := apptest.StartServer(t, dbtest.SQLite, "GATEHOUSE_ALLOW_TARGETS=127.0.0.0/8")
	var script strings.Builder
	script.WriteString("set -eu\n")
	for _, block := range apptest.Fences(string(text)) {
		script.WriteString(strings.ReplaceAll(block[1], "http://127.0.0.1:8080", s.URL))
	}
	script.WriteString("\necho guide-done\n")
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "bash", "-s")
	cmd.Dir = t.TempDir()
	cmd.Env = append(os.Environ(), "GATEHOUSE_ADMIN_PASSWORD="+apptest.Password, "RECEIVER="+receiver.URL)
	cmd.Stdin = strings.NewReader(script.String())
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("the guide ended: %v\n%s", err, out)
	}
	for _, want := range []string{`"credential_set":true`, `"delivered":true`, `"alert":"test"`, `"status":"sent"`, `"severity_threshold":"error"`, `"enabled":false`, "guide-done"} {
		if !strings.Contains(string(out), want) {
			t.Errorf("the guide does not show %q:\n%s", want, out)
		}
	}
	if strings.Contains(string(out), `"error":"validation`) || strings.Contains(string(out), "long-random-key") || !<-signed {
		t.Errorf("a command of the guide failed:\n%s", out)
	}
}
