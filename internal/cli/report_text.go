package cli

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"github.com/gatehouse-dev/gatehouse/internal/controlfile"
	"github.com/gatehouse-dev/gatehouse/internal/policy"
	"github.com/gatehouse-dev/gatehouse/internal/policycode"
	"github.com/gatehouse-dev/gatehouse/internal/rego/lang"
	"github.com/gatehouse-dev/gatehouse/internal/rego/suite"
)

// printer writes text, with colours if colour is set.
type printer struct {
	text   strings.Builder
	colour bool
}

// The colours of a terminal (ECMA-48, SGR).
const (
	red, green, yellow, dim = "31", "32", "33", "2"
)

func (p *printer) line(format string, args ...any) {
	fmt.Fprintf(&p.text, format+"\n", args...)
}

func (p *printer) in(colour, s string) string {
	if !p.colour {
		return s
	}
	return "\x1b[" + colour + "m" + s + "\x1b[0m"
}

// isUnsafe reports whether a character controls a terminal, ends a line, or changes the direction of
// text, so that a person reads something else than what is there.
func isUnsafe(r rune) bool {
	return unicode.IsControl(r) || r == '\u2028' || r == '\u2029' || unicode.Is(unicode.Bidi_Control, r)
}

// clean makes text from a server or file safe for a terminal. It replaces unsafe characters, except
// newlines and tabs.
func clean(s string) string {
	return strings.Map(func(r rune) rune {
		if isUnsafe(r) && r != '\n' && r != '\t' {
			return '\uFFFD'
		}
		return r
	}, s)
}

func firstLine(s string) string {
	s, _, _ = strings.Cut(strings.TrimSpace(s), "\n")
	return s
}

func (p *printer) issue(is lang.FileIssue) {
	word := p.in(red, "error")
	if is.Severity == lang.SeverityWarning {
		word = p.in(yellow, "warning")
	}
	at := cmp.Or(is.File, "-")
	if is.Line > 0 {
		at += fmt.Sprintf(":%d:%d", is.Line, max(1, is.Column))
	}
	rule := ""
	if is.Rule != "" {
		rule = p.in(dim, " ["+clean(is.Rule)+"]")
	}
	p.line("%s: %s: %s%s", clean(at), word, clean(is.Message), rule)
}

func (p *printer) issues(list []lang.FileIssue) {
	for _, is := range list {
		p.issue(is)
	}
}

func (p *printer) validation(v controlfile.Validation) {
	p.issues(v.Errors)
	p.issues(v.Warnings)
	if !v.Valid {
		p.line("%s", p.in(red, plural(len(v.Errors), "error")))
		return
	}
	p.line("%s, %s", p.in(green, plural(len(v.Controls), "control")+" valid"), plural(len(v.Warnings), "warning"))
}

func (p *printer) test(t suite.ModuleTest) {
	switch t.Status {
	case suite.TestPassed:
		p.line("%s %s.%s (%s)", p.in(green, "PASS"), clean(t.Package), clean(t.Name), milliseconds(t.DurationMS))
	case suite.TestSkipped:
		p.line("%s %s.%s", p.in(yellow, "SKIP"), clean(t.Package), clean(t.Name))
	default:
		p.line("%s %s.%s %s:%d", p.in(red, "FAIL"), clean(t.Package), clean(t.Name), clean(t.File), t.Line)
		if t.Error != "" {
			p.line("    %s", clean(t.Error))
		}
		for _, x := range t.Failing() {
			p.line("    %s:%d: did not hold: %s", clean(x.File), x.Line, clean(x.Source))
		}
		for _, c := range t.FailedCases {
			p.line("    case %s", clean(c))
		}
		for line := range strings.SplitSeq(strings.TrimRight(t.Output, "\n"), "\n") {
			if line != "" {
				p.line("    | %s", clean(line))
			}
		}
	}
}

func (p *printer) result(c controlfile.CaseResult) {
	if c.Result.Passed {
		p.line("%s %s: %s (%s)", p.in(green, "PASS"), clean(c.Control), clean(c.Result.Name), milliseconds(c.Result.EvaluationTimeMS))
		if c.Result.Error != "" {
			p.line("    %s", clean(c.Result.Error))
		}
		return
	}
	p.line("%s %s: %s %s:%d", p.in(red, "FAIL"), clean(c.Control), clean(c.Result.Name), clean(c.File), c.Line)
	p.line("    %s: %s, %s", clean(c.Result.Missed()), c.Result.Effect, clean(c.Result.Reason))
	for line := range strings.SplitSeq(c.Result.Why, "\n") {
		if line != "" {
			p.line("    %s", clean(line))
		}
	}
}

func (p *printer) tests(r controlfile.TestReport, least float64) {
	p.issues(r.Errors)
	for _, t := range r.Tests {
		p.test(t)
	}
	for _, c := range r.Cases {
		p.result(c)
	}
	for _, c := range r.Coverage {
		missed := ""
		if len(c.Uncovered) > 0 {
			missed = "  not reached: " + ranges(c.Uncovered)
		}
		p.line("%6.2f %%  %s%s", c.Percent, clean(c.File), p.in(dim, missed))
	}
	s := r.Summary
	colour := green
	if !r.Passed || s.Coverage < least {
		colour = red
	}
	text := fmt.Sprintf("%d of %d passed, %d failed, %d skipped, coverage %.2f %%", s.Passed, s.Total, s.Failed, s.Skipped, s.Coverage)
	if s.Coverage < least {
		text += fmt.Sprintf(", less than %.2f %%", least)
	}
	p.line("%s", p.in(colour, text))
}

// failures writes why a server refused files.
func (p *printer) failures(message string, r controlfile.TestReport) {
	p.issues(r.Errors)
	for _, t := range r.Tests {
		p.test(t)
	}
	for _, c := range r.Cases {
		p.result(c)
	}
	p.line("%s", p.in(red, "nothing was changed: "+clean(message)))
}

func (p *printer) deployment(d policycode.Deployment) {
	counts := map[string]int{}
	for _, f := range d.Files {
		counts[f.Result]++
		colour := map[string]string{policy.Created: green, policy.Updated: yellow, policy.Unchanged: dim}[f.Result]
		p.line("%s %s (%s, version %d, %s)", p.in(colour, fmt.Sprintf("%-9s", f.Result)), clean(f.Path), clean(f.Name), f.Version, f.Status)
		if f.TenantWide {
			p.line("    %s", p.in(yellow, "has no resource: it applies to every request of the environment"))
		}
		p.changes(f.Changes, f.Diff)
	}
	word := "deployed to"
	if d.DryRun {
		word = "would be deployed to"
	}
	p.line("%s %s: %d created, %d updated, %d unchanged; %d of %d tests passed", word, d.Environment,
		counts[policy.Created], counts[policy.Updated], counts[policy.Unchanged], d.Tests.Passed, d.Tests.Total)
}

func (p *printer) changes(changes []policy.MemberDifference, diff string) {
	for _, c := range changes {
		p.line("    %s: %s -> %s", c.Member, shown(c.From), shown(c.To))
	}
	for line := range strings.SplitSeq(strings.TrimRight(diff, "\n"), "\n") {
		switch {
		case line == "":
		case line[0] == '+':
			p.line("    %s", p.in(green, clean(line)))
		case line[0] == '-':
			p.line("    %s", p.in(red, clean(line)))
		default:
			p.line("    %s", clean(line))
		}
	}
}

// shown returns the first line of a member's value, truncated to 80 characters.
func shown(v any) string {
	s := clean(firstLine(fmt.Sprint(v)))
	if v == nil {
		return "none"
	}
	if runes := []rune(s); len(runes) > 80 {
		s = string(runes[:80]) + "…"
	}
	return s
}

func (p *printer) drift(d policycode.Drift) {
	for _, c := range d.Controls {
		where := cmp.Or(c.Path, fmt.Sprintf("control %d", c.PolicyID))
		p.line("%s %s (%s) %s", p.in(yellow, fmt.Sprintf("%-15s", c.State)), clean(c.Name), clean(where), driftMeaning[c.State])
		p.changes(c.Changes, c.Diff)
	}
	if d.InSync {
		p.line("%s", p.in(green, string(d.Environment)+" matches the files"))
		return
	}
	p.line("%s", p.in(red, fmt.Sprintf("%s differs in %s", d.Environment, plural(len(d.Controls), "control"))))
}

// driftNames writes one line for each control that differs, for scripts.
func (p *printer) driftNames(d policycode.Drift) {
	for _, c := range d.Controls {
		p.line("%s", clean(cmp.Or(c.Path, c.Name)))
	}
}

func (p *printer) pulled(x pulled) {
	for _, f := range x.Written {
		p.line("%s %s", p.in(green, "wrote"), clean(f))
	}
	p.line("%s in %s, %d written", plural(x.Files, "file"), clean(x.Directory), len(x.Written))
}

func milliseconds(ms float64) string { return strconv.FormatFloat(ms, 'f', 2, 64) + " ms" }

func plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// ranges returns line numbers as a text with ranges, such as "3-5, 9".
func ranges(lines []int) string {
	lines = slices.Clone(lines)
	slices.Sort(lines)
	var out []string
	for i := 0; i < len(lines); {
		j := i
		for j+1 < len(lines) && lines[j+1] == lines[j]+1 {
			j++
		}
		if i == j {
			out = append(out, strconv.Itoa(lines[i]))
		} else {
			out = append(out, fmt.Sprintf("%d-%d", lines[i], lines[j]))
		}
		i = j + 1
	}
	return strings.Join(out, ", ")
}
