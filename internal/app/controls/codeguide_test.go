package controls_test

import (
	"regexp"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/gatehouse-dev/gatehouse/internal/app/apptest"
	"github.com/gatehouse-dev/gatehouse/internal/db/dbtest"
)

// TestPoliciesAsCodeGuide runs the commands of docs/policies-as-code.md.
func TestPoliciesAsCodeGuide(t *testing.T) {
	s := apptest.StartServer(t, dbtest.SQLite)
	key := s.Key(t, s.Admin, "sandbox", "policies:write", "resources:write").APIKey
	both := s.Admin.Do(t, "POST", "/tenants/default/api-keys", body{"name": "both", "scopes": []string{"policies:write"}}).Want(201).Text("key")
	here := strings.NewReplacer("http://localhost:8080", s.URL, "gh_sandbox_…", key, "gh_…", both)
	script := "set -eu\n" + strings.Join(apptest.Fences(here.Replace(apptest.Page(t, "policies-as-code.md"))), "") + "echo guide-done\n"
	apptest.WantTexts(t, apptest.RunShell(t, t.TempDir(), script),
		"1 control valid", "3 of 3 passed", "would be deployed to sandbox: 1 created", "deployed to sandbox: 1 created", "sandbox matches the files",
		"changed_outside", "drift: exit code 1", "\npayments/owners.rego\n", "wrote payments/gatehouse.yaml",
		"a copy stays in sandbox as policy 2", "replaces policy 1, inactive since its version", "a copy stays in sandbox as policy 3", "production matches the files", "guide-done",
	)
}

// ciCommands matches the commands of the CI examples.
var ciCommands = regexp.MustCompile(`gatehouse policy [^\n]*`)

// TestCIExamples parses the CI examples and runs their commands in a repository with the controls that
// they expect.
func TestCIExamples(t *testing.T) {
	s := apptest.StartServer(t, dbtest.SQLite)
	key := s.Key(t, s.Admin, "sandbox", "policies:write").APIKey
	for _, name := range []string{"github-actions.yml", "gitlab-ci.yml"} {
		t.Run(name, func(t *testing.T) {
			text := apptest.Page(t, "ci/"+name)
			var doc map[string]any
			if err := yaml.Unmarshal([]byte(text), &doc); err != nil || len(doc) < 4 {
				t.Fatalf("docs/ci/%s has %d members (%v), want at least 4", name, len(doc), err)
			}
			dir := t.TempDir()
			apptest.WriteFiles(t, dir, "controls/owners.rego", ownersRego, "controls/owners_test.rego", ownersTest)
			commands := ciCommands.FindAllString(text, -1)
			if len(commands) < 5 {
				t.Fatalf("docs/ci/%s has the commands %q, want at least 5", name, commands)
			}
			for _, c := range commands {
				apptest.RunShell(t, dir, "export GATEHOUSE_URL="+s.URL+" GATEHOUSE_API_KEY="+key+"\n"+c+"\n")
			}
		})
	}
}
