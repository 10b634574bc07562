package controls_test

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/gatehouse-dev/gatehouse/internal/app/apptest"
	"github.com/gatehouse-dev/gatehouse/internal/db/dbtest"
)

// TestPoliciesAsCodeGuide pastes docs/policies-as-code.md into a shell.
func TestPoliciesAsCodeGuide(t *testing.T) {
	text, err := os.ReadFile("../../../docs/policies-as-code.md")
	if err != nil {
		t.Fatal(err)
	}
	s := apptest.StartServer(t, dbtest.SQLite)
	key := s.Key(t, s.Admin, "sandbox", "policies:write", "resources:write").APIKey
	both, _ := s.Admin.Do(t, "POST", "/tenants/default/api-keys", body{"name": "both", "scopes": []string{"policies:write"}}).Want(201).Get("key").(string)
	here := strings.NewReplacer("http://localhost:8080", s.URL, "gh_sandbox_…", key, "gh_…", both)
	var script strings.Builder
	script.WriteString("set -eu\n")
	for _, block := range apptest.Fences(here.Replace(string(text))) {
		script.WriteString(block[1])
	}
	script.WriteString("echo guide-done\n")
	out, code := apptest.Shell(t, t.TempDir(), script.String())
	if code != 0 {
		t.Fatalf("the guide ended with %d\n%s", code, out)
	}
	for _, want := range []string{
		"1 control valid", "3 of 3 passed", "would be deployed to sandbox: 1 created", "deployed to sandbox: 1 created", "sandbox matches the files",
		"changed_outside", "drift: exit code 1", "\npayments/owners.rego\n", "wrote payments/gatehouse.yaml",
		"a copy stays in sandbox as policy 2", "replaces policy 1, inactive since its version", "a copy stays in sandbox as policy 3", "production matches the files", "guide-done",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("the guide does not show %q:\n%s", want, out)
		}
	}
}

// ciCommands finds what the CI examples run.
var ciCommands = regexp.MustCompile(`gatehouse policy [^\n]*`)

// TestCIExamples parses the CI examples and runs each of their commands on a
// repository with the controls that they expect.
func TestCIExamples(t *testing.T) {
	s := apptest.StartServer(t, dbtest.SQLite)
	key := s.Key(t, s.Admin, "sandbox", "policies:write").APIKey
	for _, name := range []string{"github-actions.yml", "gitlab-ci.yml"} {
		t.Run(name, func(t *testing.T) {
			text, err := os.ReadFile("../../../docs/ci/" + name)
			if err != nil {
				t.Fatal(err)
			}
			var doc map[string]any
			if err := yaml.Unmarshal(text, &doc); err != nil || len(doc) < 4 {
				t.Fatalf("%d members, %v", len(doc), err)
			}
			dir := t.TempDir()
			apptest.WriteFiles(t, dir, "controls/owners.rego", ownersRego, "controls/owners_test.rego", ownersTest)
			commands := ciCommands.FindAllString(string(text), -1)
			if len(commands) < 5 {
				t.Fatalf("%d commands", len(commands))
			}
			for _, c := range commands {
				out, code := apptest.Shell(t, dir, "export GATEHOUSE_URL="+s.URL+" GATEHOUSE_API_KEY="+key+"\n"+c+"\n")
				if code != 0 {
					t.Errorf("%s ended with %d\n%s", c, code, out)
				}
			}
		})
	}
}
