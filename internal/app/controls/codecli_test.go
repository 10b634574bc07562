package controls_test

import (
	"encoding/json"
	"encoding/xml"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gatehouse-dev/gatehouse/internal/app/apptest"
	"github.com/gatehouse-dev/gatehouse/internal/db/dbtest"
	"github.com/gatehouse-dev/gatehouse/internal/errtest"
	"github.com/gatehouse-dev/gatehouse/internal/freeport"
)

// repository writes a small valid repository.
func repository(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	apptest.WriteFiles(t, dir, "pay/owners.rego", ownersRego, "pay/owners_test.rego", ownersTest,
		"pay/gatehouse.yaml", "name: owners\ntests:\n  - {name: the owner may, input: {user: {id: ada}, resource: {attributes: {owner: ada}}}, expected: true}\n",
		".git/x.rego", "not rego", "node_modules/y.rego", "not rego", "README.md", "# hello")
	return dir
}

// TestPolicyCommandExitCodes checks each exit code, with and without a server.
func TestPolicyCommandExitCodes(t *testing.T) {
	s := apptest.StartServer(t, dbtest.SQLite)
	server := []string{"GATEHOUSE_URL=" + s.URL, "GATEHOUSE_API_KEY=" + s.Key(t, s.Admin, "sandbox", "policies:write").APIKey}
	wrong := []string{"GATEHOUSE_URL=" + s.URL, "GATEHOUSE_API_KEY=" + s.Key(t, s.Admin, "sandbox", "policies:write").APIKey[:20]}
	gone := []string{"GATEHOUSE_URL=http://" + freeport.Addr(t), "GATEHOUSE_API_KEY=k"}
	good, broken, failing, empty := repository(t), repository(t), repository(t), t.TempDir()
	apptest.WriteFiles(t, broken, "pay/owners.rego", "package payments\n\nallow if nonsense(1)\n")
	apptest.WriteFiles(t, failing, "pay/owners.rego", strings.Replace(ownersRego, ".owner", ".nobody", 1))
	for _, c := range []struct {
		name, dir string
		env, args []string
		code      int
		out, err  string
	}{
		{"valid", good, nil, []string{"validate"}, 0, "1 control valid", ""},
		{"valid on the server", good, server, []string{"validate", "--remote"}, 0, "1 control valid", ""},
		{"invalid", broken, nil, []string{"validate"}, 1, "pay/owners.rego:3:10: error: undefined function nonsense", ""},
		{"invalid on the server", broken, server, []string{"validate", "--remote"}, 1, "pay/owners.rego:3:10: error: undefined function nonsense", ""},
		{"tests pass", good, nil, []string{"test"}, 0, "3 of 3 passed", ""},
		{"tests pass on the server", good, server, []string{"test", "--remote"}, 0, "3 of 3 passed", ""},
		{"tests fail", failing, nil, []string{"test"}, 1, "FAIL payments_test.test_owner pay/owners_test.rego:5", ""},
		{"too little coverage", good, nil, []string{"test", "--min-coverage", "100.5"}, 1, "less than 100.50 %", ""},
		{"an unknown flag", good, nil, []string{"validate", "--nonsense"}, 2, "", "unknown flag"},
		{"an unknown format", good, nil, []string{"validate", "-o", "xml"}, 2, "", "must be one of"},
		{"no such path", good, nil, []string{"validate", "nowhere"}, 2, "", "nowhere"},
		{"no controls", empty, nil, []string{"test"}, 2, "", "no .rego files"},
		{"no server named", good, []string{"GATEHOUSE_URL=", "GATEHOUSE_API_KEY="}, []string{"deploy"}, 2, "", "GATEHOUSE_URL"},
		{"no server named for --remote", good, []string{"GATEHOUSE_URL=", "GATEHOUSE_API_KEY="}, []string{"validate", "--remote"}, 2, "", "GATEHOUSE_URL"},
		{"no address", good, []string{"GATEHOUSE_URL=nowhere", "GATEHOUSE_API_KEY=k"}, []string{"deploy"}, 2, "", "like https://"},
		{"the server is away", good, gone, []string{"test", "--remote", "--timeout", "300ms"}, 3, "", "connect"},
		{"the key is wrong", good, wrong, []string{"deploy"}, 3, "", "401"},
		{"drift before", good, server, []string{"diff"}, 1, "added", ""},
		{"a deployment that is refused", broken, server, []string{"deploy"}, 1, "nothing was changed", ""},
		{"a deployment whose tests fail", failing, server, []string{"deploy"}, 1, "FAIL payments_test.test_owner", ""},
		{"a dry run", good, server, []string{"deploy", "--dry-run"}, 0, "would be deployed to sandbox: 1 created", ""},
		{"a deployment", good, server, []string{"deploy"}, 0, "deployed to sandbox: 1 created", ""},
		{"no drift", good, server, []string{"diff"}, 0, "sandbox matches the files", ""},
		{"drift", failing, server, []string{"diff"}, 1, "changed", ""},
		{"nothing in production", empty, server, []string{"pull", "--environment", "production"}, 3, "", "403"},
		{"pull", empty, server, []string{"pull"}, 0, "wrote pay/owners.rego", ""},
		{"what was pulled is the same", empty, server, []string{"diff"}, 0, "sandbox matches the files", ""},
		{"a file would be lost", failing, server, []string{"pull"}, 2, "", "--force"},
		{"pull has no SARIF", empty, server, []string{"pull", "-o", "sarif"}, 2, "", "text and json"},
	} {
		out, errs, code := apptest.PolicyCommand(t, c.dir, c.env, c.args...)
		if code != c.code || !strings.Contains(out, c.out) || !strings.Contains(errs, c.err) {
			t.Errorf("%s = %d, want its exit code and output\n%s\n%s", c.name, code, out, errs)
		}
		if strings.Contains(out, "\x1b") {
			t.Errorf("%s writes colours into a pipe", c.name)
		}
	}
	if got := s.Admin.Do(t, http.MethodGet, "/policies", nil).Get("total"); got != 1.0 {
		t.Errorf("the server has %v controls, want 1", got)
	}
}

// TestPolicyCommandFormats parses each format of each command.
func TestPolicyCommandFormats(t *testing.T) {
	s := apptest.StartServer(t, dbtest.SQLite)
	server := []string{"GATEHOUSE_URL=" + s.URL, "GATEHOUSE_API_KEY=" + s.Key(t, s.Admin, "sandbox", "policies:write").APIKey}
	good, bad := repository(t), repository(t)
	apptest.WriteFiles(t, good, "pay/gatehouse.yaml", "name: owners\nresource: null\n")
	apptest.WriteFiles(t, bad, "pay/owners.rego", strings.Replace(ownersRego, ".owner", ".nobody", 1))
	broken := repository(t)
	apptest.WriteFiles(t, broken, "a b/ü.rego", "package b\n\nallow if nonsense(\"<&\\u0001\")\n")
	for _, c := range []struct {
		dir     string
		args    []string
		issues  int // at least
		failing int // JUnit failures and errors, exactly
	}{
		{good, []string{"validate"}, 0, 0},
		{broken, []string{"validate"}, 1, 1},
		{broken, []string{"validate", "--remote"}, 1, 1},
		{good, []string{"test"}, 0, 0},
		{bad, []string{"test"}, 2, 2},
		{bad, []string{"test", "--remote"}, 2, 2},
		{good, []string{"test", "--min-coverage", "101"}, 1, 1},
		{bad, []string{"deploy"}, 2, 2},
		{broken, []string{"deploy"}, 1, 1},
		{good, []string{"diff"}, 1, 1},
		{good, []string{"deploy"}, 0, 0},
		{good, []string{"diff"}, 0, 0},
	} {
		for _, format := range []string{"json", "sarif", "junit"} {
			out, errs, code := apptest.PolicyCommand(t, c.dir, server, append(c.args, "-o", format)...)
			if (code == 0) != (c.issues == 0) || code > 1 {
				t.Fatalf("%v as %s = %d, want 0 without and 1 with problems\n%s\n%s", c.args, format, code, out, errs)
			}
			switch format {
			case "json":
				if !json.Valid([]byte(out)) || len(out) < 10 {
					t.Errorf("%v = %s, want JSON", c.args, out)
				}
			case "sarif":
				if n := checkSARIF(t, out); n < c.issues || c.issues == 0 && n != 0 {
					t.Errorf("%v has %d results in %s", c.args, n, out)
				}
			case "junit":
				if n := checkJUnit(t, out); n != c.failing {
					t.Errorf("%v has %d problems in %s", c.args, n, out)
				}
			}
		}
	}
}

// checkSARIF checks the rules of the SARIF 2.1.0 schema that a log can break, and returns the
// number of results.
func checkSARIF(t *testing.T, text string) int {
	t.Helper()
	var log struct {
		Schema  string `json:"$schema"`
		Version string
		Runs    []struct {
			Tool struct {
				Driver struct {
					Name  string
					Rules []struct{ ID string }
				}
			}
			Results []struct {
				RuleID    string
				RuleIndex int
				Level     string
				Message   struct{ Text string }
				Locations []struct {
					PhysicalLocation struct {
						ArtifactLocation struct{ URI string }
						Region           *struct{ StartLine, StartColumn int }
					}
				}
			}
		}
	}
	if err := json.Unmarshal([]byte(text), &log); err != nil || log.Version != "2.1.0" || log.Schema == "" || len(log.Runs) != 1 || log.Runs[0].Tool.Driver.Name != "gatehouse" || log.Runs[0].Results == nil {
		t.Fatalf("the log is no SARIF of gatehouse (%v): %s", err, text)
	}
	run := log.Runs[0]
	for _, r := range run.Results {
		if r.Message.Text == "" || r.Level != "error" && r.Level != "warning" || r.RuleIndex >= len(run.Tool.Driver.Rules) || run.Tool.Driver.Rules[r.RuleIndex].ID != r.RuleID {
			t.Errorf("the result %+v has no text, level or rule", r)
		}
		for _, l := range r.Locations {
			if uri := l.PhysicalLocation.ArtifactLocation.URI; uri == "" || strings.ContainsAny(uri, " ü") || strings.HasPrefix(uri, "/") {
				t.Errorf("the URI %q is not relative", uri)
			}
			if at := l.PhysicalLocation.Region; at != nil && (at.StartLine < 1 || at.StartColumn < 0) {
				t.Errorf("the region %+v starts before line 1", at)
			}
		}
	}
	return len(run.Results)
}

// checkJUnit parses a report, compares its counts with its cases, and returns the number of
// failures and errors.
func checkJUnit(t *testing.T, text string) int {
	t.Helper()
	var all struct {
		XMLName  xml.Name `xml:"testsuites"`
		Tests    int      `xml:"tests,attr"`
		Failures int      `xml:"failures,attr"`
		Errors   int      `xml:"errors,attr"`
		Suites   []struct {
			Name  string `xml:"name,attr"`
			Tests int    `xml:"tests,attr"`
			Cases []struct {
				Name    string  `xml:"name,attr"`
				Class   string  `xml:"classname,attr"`
				Time    float64 `xml:"time,attr"`
				Failure *struct {
					Message string `xml:"message,attr"`
				} `xml:"failure"`
				Error *struct {
					Message string `xml:"message,attr"`
				} `xml:"error"`
			} `xml:"testcase"`
		} `xml:"testsuite"`
	}
	if err := xml.Unmarshal([]byte(text), &all); err != nil {
		t.Fatalf("the report is no XML (%v): %s", err, text)
	}
	tests, bad := 0, 0
	for _, s := range all.Suites {
		if s.Tests != len(s.Cases) || s.Name == "" {
			t.Errorf("the suite %+v has a wrong count or no name", s)
		}
		for _, c := range s.Cases {
			tests++
			if c.Failure != nil || c.Error != nil {
				bad++
			}
		}
	}
	if tests != all.Tests || bad != all.Failures+all.Errors {
		t.Errorf("the counts differ from the cases: %s", text)
	}
	return bad
}

// TestPullStaysInside checks that a pull writes nothing outside of its directory, whatever links are in it.
func TestPullStaysInside(t *testing.T) {
	s := apptest.StartServer(t, dbtest.SQLite)
	server := []string{"GATEHOUSE_URL=" + s.URL, "GATEHOUSE_API_KEY=" + s.Key(t, s.Admin, "sandbox", "policies:write").APIKey}
	if out, errs, code := apptest.PolicyCommand(t, repository(t), server, "deploy"); code != 0 {
		t.Fatal(out, errs)
	}
	outside, dir := t.TempDir(), t.TempDir()
	errtest.Must(t, os.Symlink(outside, filepath.Join(dir, "pay")))
	out, errs, code := apptest.PolicyCommand(t, dir, server, "pull", "--force")
	left, err := os.ReadDir(outside)
	if code == 0 || err != nil || len(left) > 0 {
		t.Errorf("pull wrote %d files outside (%v) and ended with %d, want none and a failure\n%s\n%s", len(left), err, code, out, errs)
	}
}
