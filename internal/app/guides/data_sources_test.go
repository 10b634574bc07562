package guides_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/app/apptest"
	"github.com/gatehouse-dev/gatehouse/internal/db/dbtest"
)

// TestDataSourcesGuide pastes docs/data-sources.md into a shell, and uses its control.
func TestDataSourcesGuide(t *testing.T) {
	text, err := os.ReadFile("../../../docs/data-sources.md")
	if err != nil {
		t.Fatal(err)
	}
	source := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/people" || r.Header.Get("Authorization") != "Bearer a-secret-token" {
			w.WriteHeader(http.StatusForbidden)
			return
		}
		fmt.Fprint(w, `{"people":[{"id":"ada","job":{"grade":7}}]}`)
	}))
	defer source.Close()
	s := apptest.StartServer(t, dbtest.SQLite, "GATEHOUSE_ALLOW_TARGETS=127.0.0.0/8")
	var script strings.Builder
	script.WriteString("set -eu\n")
	_, control, _ := strings.Cut(string(text), "```rego\n")
	control, _, _ = strings.Cut(control, "```")
	for _, block := range apptest.Fences(string(text)) {
		script.WriteString(strings.ReplaceAll(block[1], "http://127.0.0.1:8080", s.URL))
	}
	script.WriteString("\necho guide-done\n")
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "bash", "-s")
	cmd.Dir = t.TempDir()
	cmd.Env = append(os.Environ(), "GATEHOUSE_ADMIN_PASSWORD="+apptest.Password, "SOURCE="+source.URL)
	cmd.Stdin = strings.NewReader(script.String())
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("the guide ended: %v\n%s", err, out)
	}
	for _, want := range []string{`"success":true`, `"sample_data":[{"grade":7}]`, `"credentials_set":true`, `"sync_job_id":`, `"data_age_seconds"`, "guide-done"} {
		if !strings.Contains(string(out), want) {
			t.Errorf("the guide does not show %q:\n%s", want, out)
		}
	}
	if strings.Contains(string(out), `"error":"validation`) || strings.Contains(string(out), "a-secret-token") {
		t.Errorf("a command of the guide failed:\n%s", out)
	}
	apptest.Activate(t, s.Admin, "by grade", "production", control, nil)
	apptest.Eventually(t, time.Minute, func() error {
		res := s.Admin.With("X-Environment", "production").Do(t, "POST", "/decisions/evaluate", apptest.Body{
			"user": apptest.Body{"id": "ada"}, "resource": apptest.Body{"type": "api", "path": "/x"}, "action": apptest.Body{"name": "read"},
		}).Want(200)
		if res.Get("decision") != "PERMIT" {
			return fmt.Errorf("the control of the guide says %s", res.Body)
		}
		return nil
	})
}
