package guides_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/app/apptest"
	"github.com/gatehouse-dev/gatehouse/internal/db/dbtest"
)

// TestDataSourcesGuide runs the commands of docs/data-sources.md, and uses its control.
func TestDataSourcesGuide(t *testing.T) {
	source := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/people" || r.Header.Get("Authorization") != "Bearer a-secret-token" {
			w.WriteHeader(http.StatusForbidden)
			return
		}
		fmt.Fprint(w, `{"people":[{"id":"ada","job":{"grade":7}}]}`)
	}))
	defer source.Close()
	s := apptest.StartServer(t, dbtest.SQLite, "GATEHOUSE_ALLOW_TARGETS=127.0.0.0/8")
	out := run(t, t.TempDir(), "export SOURCE="+source.URL+"\n"+commands(t, "data-sources.md", s),
		`"success":true`, `"sample_data":[{"grade":7}]`, `"credentials_set":true`, `"sync_job_id":`, `"data_age_seconds"`,
	)
	wantNone(t, out, `"error":"validation`, "a-secret-token")
	_, control, _ := strings.Cut(apptest.Page(t, "data-sources.md"), "```rego\n")
	control, _, _ = strings.Cut(control, "```")
	apptest.Activate(t, s.Admin, "by grade", "production", control, nil)
	apptest.Eventually(t, time.Minute, func() error {
		res := s.Admin.With("X-Environment", "production").Do(t, "POST", "/decisions/evaluate", body{
			"user": body{"id": "ada"}, "resource": body{"type": "api", "path": "/x"}, "action": body{"name": "read"},
		}).Want(200)
		if res.Get("decision") != "PERMIT" {
			return fmt.Errorf("the decision of the page's control = %s, want PERMIT", res.Body)
		}
		return nil
	})
}
