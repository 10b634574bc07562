package suite

import (
	"slices"
	"strings"
	"testing"

	"github.com/gatehouse-dev/gatehouse/internal/errtest"
	"github.com/gatehouse-dev/gatehouse/internal/rego"
)

const testedControl = `package pay

default allow := false

allow if input.user.id == "ada"

allow if {
	input.user.role == "admin"
	count(input.items) > 0
}
`

func runModules(t *testing.T, files ...string) ModuleReport {
	t.Helper()
	var mods []Module
	for i := 0; i < len(files); i += 2 {
		mods = append(mods, Module{Path: files[i], Content: files[i+1]})
	}
	rep, err := TestModules(t.Context(), mods)
	errtest.Must(t, err)
	return rep
}

// TestModulesStatuses runs tests that pass, fail, are skipped, hit a bound and
// print, from another directory than their control.
func TestModulesStatuses(t *testing.T) {
	rep := runModules(t, "pay/pay.rego", testedControl, "tests/pay_test.rego", `package pay_test

import data.pay

test_ada if pay.allow with input as {"user": {"id": "ada"}}

test_eve if {
	print("eve is", "here")
	pay.allow with input as {"user": {"id": "eve"}}
}

todo_test_later if false

test_limit if count(numbers.range(1, input.n)) > 0 with input as {"n": 1000000000}

test_roles[name] if {
	some name, ok in {"admin": true, "guest": false}
	pay.allow == ok with input as {"user": {"role": name}, "items": [1]}
}

test_bad_roles[name] if {
	some name in ["admin", "guest"]
	pay.allow with input as {"user": {"role": name}, "items": [1]}
}
`)
	if len(rep.Issues) > 0 {
		t.Fatalf("issues: %+v", rep.Issues)
	}
	got := map[string]ModuleTest{}
	for _, r := range rep.Tests {
		got[r.Name] = r
	}
	want := map[string]string{"test_ada": TestPassed, "test_eve": TestFailed, "todo_test_later": TestSkipped, "test_limit": TestError, "test_roles": TestPassed, "test_bad_roles": TestFailed}
	for name, status := range want {
		if got[name].Status != status || got[name].File != "tests/pay_test.rego" || got[name].Line == 0 {
			t.Errorf("%s: %+v, want %s", name, got[name], status)
		}
	}
	if got["test_eve"].Output != "eve is here\n" || got["test_ada"].Output != "" {
		t.Errorf("output: %q, %q", got["test_eve"].Output, got["test_ada"].Output)
	}
	if !slices.Equal(got["test_bad_roles"].FailedCases, []string{"guest"}) {
		t.Errorf("failed cases: %v", got["test_bad_roles"].FailedCases)
	}
	if !strings.Contains(got["test_limit"].Error, rego.ReasonLimit) {
		t.Errorf("a range of a billion: %+v", got["test_limit"])
	}
	if len(rep.Coverage) != 1 || rep.Coverage[0].Percent != 100 || len(rep.Coverage[0].Uncovered) != 0 {
		t.Errorf("coverage: %+v", rep.Coverage)
	}
}

// TestModulesCoverage names the lines that no test reached.
func TestModulesCoverage(t *testing.T) {
	rep := runModules(t, "pay.rego", testedControl, "pay_test.rego", `package pay

test_ada if allow with input as {"user": {"id": "ada"}}
`, "other.rego", "package other\n\nallow if true\n")
	if len(rep.Issues) > 0 || len(rep.Tests) != 1 || rep.Tests[0].Status != TestPassed {
		t.Fatalf("%+v", rep)
	}
	byFile := map[string]Coverage{}
	for _, c := range rep.Coverage {
		byFile[c.File] = c
	}
	if c := byFile["pay.rego"]; !slices.Contains(c.Uncovered, 9) || slices.Contains(c.Uncovered, 5) || c.Percent <= 0 || c.Percent >= 100 {
		t.Errorf("pay.rego: %+v", c)
	}
	if c := byFile["other.rego"]; c.Percent != 0 || !slices.Contains(c.Uncovered, 3) {
		t.Errorf("other.rego: %+v", c)
	}
}

// TestModulesRefuse has each kind of file that may not run.
func TestModulesRefuse(t *testing.T) {
	for name, c := range map[string]struct {
		files      []string
		rule, file string
		line       int
	}{
		"forbidden in a test":       {[]string{"a_test.rego", "package a\n\ntest_x if http.send({\"url\": \"http://x\"})\n"}, "forbidden_builtin", "a_test.rego", 3},
		"forbidden through with":    {[]string{"a_test.rego", "package a\n\ntest_x if count([1]) with count as http.send\n"}, "forbidden_builtin", "a_test.rego", 3},
		"the runner's own":          {[]string{"a_test.rego", "package a\n\ntest_x if internal.test_case([1])\n"}, "forbidden_builtin", "a_test.rego", 3},
		"forbidden in a control":    {[]string{"a.rego", "package a\n\nallow if opa.runtime().env\n"}, "forbidden_builtin", "a.rego", 3},
		"reserved package":          {[]string{"a_test.rego", "package system.x\n"}, "reserved_package", "a_test.rego", 1},
		"does not parse":            {[]string{"a_test.rego", "package a\n\ntest_x if {\n"}, "rego_parse_error", "a_test.rego", 3},
		"undefined function":        {[]string{"a_test.rego", "package a\n\ntest_x if nonsense(1)\n"}, "rego_type_error", "a_test.rego", 3},
		"two controls, one package": {[]string{"a.rego", "package a\n", "b.rego", "package a\n", "a_test.rego", "package a\n\ntest_x if true\n"}, "ambiguous_package", "b.rego", 1},
	} {
		t.Run(name, func(t *testing.T) {
			rep := runModules(t, c.files...)
			if len(rep.Issues) == 0 || rep.Issues[0].Rule != c.rule || rep.Issues[0].File != c.file || rep.Issues[0].Line != c.line {
				t.Errorf("%+v", rep.Issues)
			}
			if len(rep.Tests) > 0 {
				t.Errorf("tests ran: %+v", rep.Tests)
			}
		})
	}
}

// TestModulesOutputBound holds a flood of prints to its bounds.
func TestModulesOutputBound(t *testing.T) {
	var tests strings.Builder
	tests.WriteString("package flood\n\n")
	for range 40 {
		tests.WriteString("test_flood if {\n\tsome i in numbers.range(1, 150)\n\tprint(i, \"" + strings.Repeat("x", 100) + "\")\n\ti == 150\n}\n\n")
	}
	rep := runModules(t, "flood_test.rego", tests.String())
	if len(rep.Issues) > 0 || len(rep.Tests) != 40 {
		t.Fatalf("%d tests, %+v", len(rep.Tests), rep.Issues)
	}
	total := 0
	for _, r := range rep.Tests {
		if r.Status != TestPassed || len(r.Output) > maxTestOutput+20 {
			t.Fatalf("%s with %d bytes", r.Status, len(r.Output))
		}
		total += len(r.Output)
	}
	if total > maxTestsOutput+40*20 || total < maxTestsOutput/2 {
		t.Errorf("%d bytes in all", total)
	}
}

// TestModulesLibraries tests a library, and a control that uses it.
func TestModulesLibraries(t *testing.T) {
	lib := "package lib.text\n\nshort(s) if count(s) < 4\n"
	control := "package p\n\nimport data.lib.text\n\nallow if text.short(input.user.id)\n"
	rep := runModules(t, "lib/text.rego", lib, "lib/text_test.rego", "package lib.text_test\n\nimport data.lib.text\n\ntest_short if text.short(\"ada\")\n",
		"p/p.rego", control, "p/p_test.rego", "package p_test\n\nimport data.p\n\ntest_allow if p.allow with input as {\"user\": {\"id\": \"ada\"}}\n\ntest_deny if not p.allow with input as {\"user\": {\"id\": \"adalbert\"}}\n")
	if len(rep.Issues) > 0 || len(rep.Tests) != 3 {
		t.Fatalf("%+v", rep)
	}
	for _, r := range rep.Tests {
		if r.Status != TestPassed {
			t.Errorf("%+v", r)
		}
	}
	rep = runModules(t, "a.rego", lib, "b.rego", lib)
	if len(rep.Issues) == 0 || rep.Issues[0].Rule != "library_package" {
		t.Errorf("two libraries of one package: %+v", rep.Issues)
	}
}
