package guides_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gatehouse-dev/gatehouse/internal/app/apptest"
	"github.com/gatehouse-dev/gatehouse/internal/db/dbtest"
)

// TestReplayGuide runs the commands of docs/replay.md one by one.
func TestReplayGuide(t *testing.T) {
	t.Parallel()
	s := apptest.StartServer(t, dbtest.SQLite)
	resource, policy := apptest.RecordDecisions(t, s.Admin, "production", 300, 12)
	key := s.Key(t, s.Admin, "production", "policies:write", "audit:read").APIKey
	dir := t.TempDir()
	env := fmt.Sprintf("set -eu\nexport API=%s/api/v1 TENANT=default TOKEN=%s RESOURCE=%d POLICY=%d GATEHOUSE_URL=%s GATEHOUSE_API_KEY=%s\n", s.URL, s.Admin.Bearer, resource, policy, s.URL, key)
	wants := []struct {
		text string
		code int
	}{
		{`"size_mib":64`, 0},
		{`"audit_level":"detailed"`, 0},
		{"12 of 300 decisions of the last 24 h in production would flip (4 %)", 0},
		{"", 0},
		{`"evaluated":300`, 0},
		{`"impact_gate":"block"`, 0},
		{`"skipped":[]`, 0},
		{`"examined":1`, 0},
	}
	blocks := apptest.Blocks(apptest.Page(t, "replay.md"), "bash")
	if len(blocks) != len(wants) {
		t.Fatalf("docs/replay.md has %d blocks, want %d", len(blocks), len(wants))
	}
	for i, block := range blocks {
		out, code := apptest.Shell(t, dir, env+block)
		if code != wants[i].code || !strings.Contains(out, wants[i].text) {
			t.Errorf("%s\nended with %d, want %d and %q:\n%s", block, code, wants[i].code, wants[i].text, out)
		}
	}
	var run struct{ Result apptest.ImpactFigures }
	written, err := os.ReadFile(filepath.Join(dir, "impact.json"))
	if err != nil || json.Unmarshal(written, &run) != nil || run.Result.NewlyBlocked != 12 {
		t.Errorf("impact.json is %s (%v), want 12 newly blocked decisions", written, err)
	}
	for _, c := range []struct {
		command, text string
		code          int
	}{
		{"gatehouse replay --control invoices.rego --policy-id $POLICY --max-blocked-percent 3.9", "[##############################] 300 of 300 decisions", 1},
		{"gatehouse replay --control invoices.rego --policy-id $POLICY --max-blocked-percent 4 -q", "deny  12    invoices  12", 0},
		{"gatehouse replay --without $POLICY --max-blocked-percent 10 -q", "share of newly blocked decisions", 1},
		{"gatehouse replay", "nothing to replay", 2},
		{"gatehouse replay --policy-id 987654 -q", "no policy 987654 in production", 1},
		{"echo 'package x' > broken.rego; echo 'allow if nothing(1)' >> broken.rego; gatehouse replay --control broken.rego -q", "does not compile", 1},
		{"GATEHOUSE_API_KEY=gh_none gatehouse replay --policy-id $POLICY -q", "401", 3},
		{"gatehouse replay --policy-id $POLICY --window 0s", "the window is from 1h", 2},
	} {
		out, code := apptest.Shell(t, dir, env+c.command)
		if code != c.code || !strings.Contains(out, c.text) {
			t.Errorf("%s\nended with %d, want %d and %q:\n%s", c.command, code, c.code, c.text, out)
		}
	}
}
