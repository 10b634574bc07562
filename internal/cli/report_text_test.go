package cli

import (
	"bytes"
	"strings"
	"testing"

	"github.com/gatehouse-dev/gatehouse/internal/controlfile"
	"github.com/gatehouse-dev/gatehouse/internal/errtest"
	"github.com/gatehouse-dev/gatehouse/internal/policycode"
	"github.com/gatehouse-dev/gatehouse/internal/rego"
	"github.com/gatehouse-dev/gatehouse/internal/rego/lang"
	"github.com/gatehouse-dev/gatehouse/internal/rego/suite"
)

// TestColours checks that the output has colours only if they are requested, and never escape
// sequences from names or outputs.
func TestColours(t *testing.T) {
	r := controlfile.NewTestReport(nil, suite.ModuleReport{
		Tests: []suite.ModuleTest{{File: "a\x1b[2J.rego", Line: 3, Package: "p", Name: "test_x\x1b]0;gone\x07", Status: suite.TestFailed, Output: "print\x1b[31m\u009b2J"}},
		Coverage: []suite.Coverage{
			{File: "a.rego", Percent: 50, Covered: 4, Uncovered: []int{9, 3, 4, 5}},
		},
	}, nil)
	for _, colour := range []bool{false, true} {
		var out bytes.Buffer
		o := Options{Format: FormatText, Colour: colour, Out: &out}
		errtest.Must(t, o.write("test", Report{Text: func(p *printer) { p.tests(r, 80) }}))
		text := out.String()
		if strings.Contains(text, "\x1b[31m") != colour || strings.ContainsAny(text, "\x07\u009b") || strings.Contains(text, "\x1b[2J") || strings.Contains(text, "\x1b]") {
			t.Errorf("colour %t: the output is %q, want our colours alone, if any", colour, text)
		}
		if !strings.Contains(text, "not reached: 3-5, 9") || !strings.Contains(text, "less than 80.00 %") {
			t.Errorf("the output is %s, want the lines that are not reached", text)
		}
	}
}

// TestCaseWords checks that the error of a control is also shown for a case that passed. A case that
// could not be evaluated does not report the expected result.
func TestCaseWords(t *testing.T) {
	rep := controlfile.NewTestReport(nil, suite.ModuleReport{}, []controlfile.CaseResult{
		{Control: "a.rego", Result: suite.TestResult{Name: "broken", Passed: true, Effect: "DENY", Error: "cannot lower 7"}},
		{Control: "a.rego", Result: suite.TestResult{Name: "endless", Effect: "DENY", Reason: rego.ReasonLimit, Error: "out of time"}},
		{Control: "a.rego", Result: suite.TestResult{Name: "shut", Expected: true, Effect: "DENY", Reason: "no"}},
	})
	for format, want := range map[string][]string{
		FormatText:  {"PASS a.rego: broken", "cannot lower 7", "FAIL a.rego: endless", "out of time: DENY", "expected true, got false: DENY, no"},
		FormatJUnit: {`tests="3" failures="2"`, "<system-out>cannot lower 7</system-out>", `message="out of time: DENY (evaluation_limit)"`, `message="expected true, got false: DENY (no)"`},
	} {
		var out bytes.Buffer
		report := testReport(rep)
		report.Text = func(p *printer) { p.tests(rep, 0) }
		o := Options{Format: format, Out: &out}
		errtest.Must(t, o.write("test", report))
		for _, w := range want {
			if !strings.Contains(out.String(), w) {
				t.Errorf("%s: the output is %s, want %q in it", format, out.String(), w)
			}
		}
		if strings.Contains(out.String(), "expected false") {
			t.Errorf("%s: the output is %s, want no expected result for a limit", format, out.String())
		}
	}
}

// TestSARIFOrder checks that results have the right indexes of rules, and a region only if there is a
// line.
func TestSARIFOrder(t *testing.T) {
	log := sarifOf([]lang.FileIssue{
		{Issue: lang.Issue{Message: "of no file", Severity: lang.SeverityError, Rule: "coverage"}},
		{File: "a b/c#d?.rego", Issue: lang.Issue{Line: 3, Column: 0, Message: "m", Severity: lang.SeverityWarning, Rule: "style/x"}},
		{File: "c.rego", Issue: lang.Issue{Message: "whole", Severity: lang.SeverityError, Rule: "coverage"}},
	}, "1.0")
	run := log.Runs[0]
	for _, r := range run.Results {
		if run.Tool.Driver.Rules[r.RuleIndex].ID != r.RuleID {
			t.Errorf("the result %+v has the index of rule %s", r, run.Tool.Driver.Rules[r.RuleIndex].ID)
		}
	}
	first, second, last := run.Results[0], run.Results[1], run.Results[2]
	if first.Level != "warning" || first.Locations[0].Physical.Artifact.URI != "a%20b/c%23d%3F.rego" || first.Locations[0].Physical.Region.StartLine != 3 {
		t.Errorf("the first result is %+v, want a warning in line 3 of the escaped file", first)
	}
	if second.Locations[0].Physical.Region != nil || len(last.Locations) != 0 {
		t.Errorf("the other results are %+v and %+v, want no region and no location", second, last)
	}
}

// TestDriftWords checks that each state of drift has a text.
func TestDriftWords(t *testing.T) {
	for _, state := range []string{policycode.Added, policycode.Changed, policycode.ChangedOutside, policycode.Missing} {
		if driftMeaning[state] == "" {
			t.Errorf("drift state %s has no text", state)
		}
	}
}

// TestClean checks that text of others cannot control the terminal, or hide what it says.
func TestClean(t *testing.T) {
	for in, want := range map[string]string{
		"a\tb\nc é 中":             "a\tb\nc é 中",
		"\x1b[31mred\x07\r":       "\uFFFD[31mred\uFFFD\uFFFD",
		"\u009b2J\x7f":            "\uFFFD2J\uFFFD",
		"allow \u202Eyned\u2066 ": "allow \uFFFDyned\uFFFD ",
		"one\u2028two\u2029":      "one\uFFFDtwo\uFFFD",
	} {
		if got := clean(in); got != want {
			t.Errorf("clean(%q) = %q, want %q", in, got, want)
		}
	}
}
