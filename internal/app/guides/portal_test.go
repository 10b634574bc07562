package guides_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gatehouse-dev/gatehouse/internal/app/apptest"
	"github.com/gatehouse-dev/gatehouse/internal/db/dbtest"
	"github.com/gatehouse-dev/gatehouse/internal/errtest"
)

// TestPortalGuide runs the steps of the developer portal's first guide, and those that register a bouncer
// and enforce.
func TestPortalGuide(t *testing.T) {
	s := apptest.StartServer(t, dbtest.SQLite)
	files, err := filepath.Glob("../../devdocs/guides/code/first-control-*.sh") // sorted
	if err != nil || len(files) != 6 {
		t.Fatalf("the guide has the steps %v (%v), want 6", files, err)
	}
	var steps []string
	for _, name := range append(files, "../../devdocs/guides/code/bouncer-register.sh", "../../devdocs/guides/code/bouncer-enforce.sh") {
		text, err := os.ReadFile(name)
		errtest.Must(t, err)
		steps = append(steps, strings.ReplaceAll(string(text), "http://127.0.0.1:8080", s.URL)+"\n")
	}
	steps[0] = setUp + steps[0]
	outputs := runSteps(t, t.TempDir(), steps)
	for i, want := range [][]string{
		{},
		{"resource "},
		{`"valid":true`},
		{`"failed":0`, `"passed":2`},
		{`"status":"active"`},
		{`"decision":"PERMIT"`, `"decision":"DENY"`, "only staff may read orders"},
		{`"token":"gh_bouncer_`},
		{`"mode":"enforce"`},
	} {
		apptest.WantTexts(t, outputs[i], want...)
	}
}
