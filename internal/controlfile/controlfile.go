// Package controlfile reads controls as an author's repository holds them, and
// writes them so:
//
//	payments/owners.rego        a control
//	payments/owners_test.rego   Rego tests of the controls beside it
//	payments/gatehouse.yaml     optional: names, links and tests those controls
//
// It is pure: no store, no network, no clock. The service (package policycode)
// and the command line share it, so that both read a repository alike.
package controlfile

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/gatehouse-dev/gatehouse/internal/rego/lang"
	"github.com/gatehouse-dev/gatehouse/internal/rego/suite"
	"github.com/gatehouse-dev/gatehouse/internal/rego/value"
)

// The bounds on a repository. The API's body limit of 10 MiB comes before them.
const (
	MaxFiles      = 1000
	maxPath       = 512
	maxManifest   = 256 << 10
	maxIssues     = 100
	manifestName  = "gatehouse.yaml"
	maxName       = 200
	maxText       = 4000
	maxCases      = 1000
	ruleFile      = "file"
	ruleManifest  = "manifest"
	controlSuffix = ".rego"
)

// File is one file of a repository.
type File struct {
	Path    string `json:"path" minLength:"1" maxLength:"512" doc:"Path in the repository, with forward slashes." example:"payments/owners.rego"`
	Content string `json:"content" doc:"Text of the file." example:"package payments\n\nallow if input.user.id == input.resource.attributes.owner"`
}

// Repository is what files say.
type Repository struct {
	// Controls are by path.
	Controls []Control
	// Modules are the controls and their tests: what suite.TestModules takes.
	Modules []suite.Module
}

// Control is one module with what its gatehouse.yaml says of it. A nil member
// was not said: a deployment leaves it as it is.
type Control struct {
	Path, Source string
	Name         string
	Description  *string
	Status       *string
	Resource     *Link
	Bouncer      *Link
	Cases        *[]Case
	// at is where the manifest begins to speak of the control; zero where none does.
	at place
}

// IsLibrary reports whether the module is a library: its package says so.
func (c Control) IsLibrary() bool { return lang.Library{Source: c.Source}.Package() != "" }

// TenantWide warns of a control for which neither gatehouse.yaml nor the request
// names a resource: where it is new, it applies to every request. A control
// whose manifest says `resource: null` is meant so.
func (c Control) TenantWide(resource *int64) []lang.FileIssue {
	if c.IsLibrary() || c.Resource != nil || resource != nil {
		return nil
	}
	return []lang.FileIssue{{File: c.Path, Issue: lang.Issue{
		Message:  "no resource is named: a new control applies to every request of the environment. Name its resource in gatehouse.yaml, or say `resource: null`",
		Severity: lang.SeverityWarning, Rule: "tenant_wide",
	}}}
}

// Libraries are those of stored and those among the files, which take their places.
func (r Repository) Libraries(stored []lang.Library) []lang.Library {
	out := slices.Clone(stored)
	for _, c := range r.Controls {
		if c.IsLibrary() {
			next := lang.Library{Name: c.Name, Source: c.Source}
			out = append(slices.DeleteFunc(out, func(l lang.Library) bool { return l.Package() == next.Package() }), next)
		}
	}
	return out
}

// Link names a resource or a bouncer: none, an id, or what it is called.
type Link struct {
	None             bool
	ID               int64
	Name, Type, Path string
	at               place
}

// Case is an inline test case.
type Case struct {
	Name     string
	Input    map[string]any
	Data     map[string]any // resources and pip, as far as they are set
	Expected bool
	at       place
}

// place is where something stands.
type place struct {
	file         string
	line, column int
}

func (p place) issue(rule, format string, args ...any) lang.FileIssue {
	return lang.FileIssue{File: p.file, Issue: lang.Issue{
		Line: p.line, Column: p.column, Message: fmt.Sprintf(format, args...), Severity: lang.SeverityError, Rule: rule,
	}}
}

// Issue is a finding about the link, where the manifest names it.
func (l Link) Issue(format string, args ...any) lang.FileIssue {
	return l.at.issue(ruleManifest, format, args...)
}

// Issue is a finding about the case, where the manifest has it.
func (c Case) Issue(rule, format string, args ...any) lang.FileIssue {
	return c.at.issue(rule, format, args...)
}

// Issue is a finding about the control: in the manifest that speaks of it, else
// at the start of its source.
func (c Control) Issue(rule, format string, args ...any) lang.FileIssue {
	if c.at == (place{}) {
		return place{file: c.Path, line: 1, column: 1}.issue(rule, format, args...)
	}
	return c.at.issue(rule, format, args...)
}

// IsManifest reports whether a path names a manifest.
func IsManifest(p string) bool { return path.Base(p) == manifestName }

// IsControlFile reports whether a repository's file is for us: Rego or a manifest.
func IsControlFile(p string) bool { return strings.HasSuffix(p, controlSuffix) || IsManifest(p) }

// Read reads files. The issues, at most 100, say what is wrong with paths and
// manifests; Rego is not looked at.
func Read(files []File) (Repository, []lang.FileIssue) {
	r := reader{controls: map[string]*Control{}, seen: map[string]bool{}}
	var manifests []File
	for _, f := range slices.SortedFunc(slices.Values(files), func(a, b File) int { return strings.Compare(a.Path, b.Path) }) {
		switch why := badPath(f.Path); {
		case why != "":
			r.report(place{file: f.Path}.issue(ruleFile, "%s", why))
		case r.seen[f.Path]:
			r.report(place{file: f.Path}.issue(ruleFile, "the path occurs twice"))
		case IsManifest(f.Path):
			manifests = append(manifests, f)
		case strings.HasSuffix(f.Path, controlSuffix):
			r.module(f)
		default:
			r.report(place{file: f.Path}.issue(ruleFile, "neither a .rego file nor a %s", manifestName))
		}
		r.seen[f.Path] = true
	}
	for _, f := range manifests {
		r.manifest(f)
	}
	return r.finish()
}

// reader collects what files say.
type reader struct {
	repo     Repository
	controls map[string]*Control
	paths    []string
	seen     map[string]bool
	issues   []lang.FileIssue
}

func (r *reader) report(is lang.FileIssue) {
	if len(r.issues) < maxIssues {
		r.issues = append(r.issues, is)
	}
}

func (r *reader) module(f File) {
	m := suite.Module{Path: f.Path, Content: f.Content}
	r.repo.Modules = append(r.repo.Modules, m)
	if m.IsTest() {
		return
	}
	r.controls[f.Path] = &Control{Path: f.Path, Source: f.Content, Name: strings.TrimSuffix(f.Path, controlSuffix)}
	r.paths = append(r.paths, f.Path)
}

// finish orders the controls and refuses two of one name.
func (r *reader) finish() (Repository, []lang.FileIssue) {
	named := map[string]string{}
	for _, p := range r.paths {
		c := *r.controls[p]
		if first, twice := named[c.Name]; twice {
			r.report(c.Issue(ruleManifest, "%s also has the name %q: names must be unique", first, c.Name))
		}
		if len([]rune(c.Name)) > maxName {
			r.report(c.Issue(ruleManifest, "the name is longer than %d characters", maxName))
		}
		named[c.Name] = p
		r.repo.Controls = append(r.repo.Controls, c)
	}
	return r.repo, r.issues
}

// badPath says why a path is none of a repository's, or "".
func badPath(p string) string {
	switch {
	case p == "" || len(p) > maxPath:
		return fmt.Sprintf("a path must have 1 to %d bytes", maxPath)
	case strings.ContainsFunc(p, func(r rune) bool { return r < ' ' || r == '\\' || r == 0x7f }):
		return "a path must not have control characters or backslashes"
	case path.IsAbs(p) || path.Clean(p) != p || p == ".." || strings.HasPrefix(p, "../"):
		return "a path must be relative to the repository, without . and .."
	default:
		return ""
	}
}

// RegoCases gives the control's cases as the evaluator takes them.
func (c Control) RegoCases() ([]suite.TestCase, []lang.FileIssue) {
	if c.Cases == nil {
		return nil, nil
	}
	var out []suite.TestCase
	var issues []lang.FileIssue
	for _, k := range *c.Cases {
		t := suite.TestCase{Name: k.Name, Expected: k.Expected}
		var err error
		if t.Input, err = value.FromAny(k.Input); err == nil && len(k.Data) > 0 {
			t.Data, err = value.FromAny(k.Data)
		}
		if err != nil {
			issues = append(issues, k.Issue(ruleManifest, "the test cannot be read: %v", err))
			continue
		}
		out = append(out, t)
	}
	return out, issues
}

// Results puts the places of the control's cases to their results, which are in order.
func (c Control) Results(results []suite.TestResult) []CaseResult {
	out := make([]CaseResult, len(results))
	for i, r := range results {
		at := (*c.Cases)[i].at
		out[i] = CaseResult{File: at.file, Line: at.line, Control: c.Path, Result: r}
	}
	return out
}
