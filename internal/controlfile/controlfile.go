// Package controlfile reads and writes controls as files of an author's repository:
//
//	payments/owners.rego        a control
//	payments/owners_test.rego   Rego tests of the controls beside it
//	payments/gatehouse.yaml     optional: names, links and test cases of those controls
//
// It is pure: no store, no network, no clock. The service (package policycode) and the command line
// share it, so that both read a repository in the same way.
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

// The limits on a repository. maxPath and maxManifest are in bytes, maxName and maxText in
// characters. The API also limits its bodies, to 10 MiB.
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

// Repository is the content of the files of a repository.
type Repository struct {
	// Controls are the controls and libraries, sorted by path.
	Controls []Control
	// Modules are the controls and their Rego tests, for suite.TestModules.
	Modules []suite.Module
}

// Control is one module with its entry in gatehouse.yaml. A member is nil if the entry does not set
// it. A deployment then does not change it.
type Control struct {
	Path, Source string
	Name         string
	Description  *string
	Status       *string
	Resource     *Link
	Bouncer      *Link
	Cases        *[]Case
	// HiddenCases is how many of the control's test cases an export left out, because the caller might
	// not see their inputs. A deployment does not delete them.
	HiddenCases int
	// at is where the control's entry in a manifest begins. It is zero if there is none.
	at place
}

// IsLibrary reports whether the module is a library. Its package decides that.
func (c Control) IsLibrary() bool { return lang.Library{Source: c.Source}.Package() != "" }

// TenantWide returns a warning if neither gatehouse.yaml nor the request names a resource for a
// control. A new control then applies to every request. There is no warning if the manifest has
// `resource: null`, because that is intended.
func (c Control) TenantWide(resource *int64) []lang.FileIssue {
	if c.IsLibrary() || c.Resource != nil || resource != nil {
		return nil
	}
	return []lang.FileIssue{{File: c.Path, Issue: lang.Issue{
		Message:  "no resource is named: a new control applies to every request of the environment. Name its resource in gatehouse.yaml, or say `resource: null`",
		Severity: lang.SeverityWarning, Rule: "tenant_wide",
	}}}
}

// Libraries returns the stored libraries and those among the files. A file replaces the stored
// library with the same package.
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

// Link names a resource or a bouncer, by its id or its name. None means that there is explicitly no
// link.
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

// place is a position in a file. Lines and columns count from 1.
type place struct {
	file         string
	line, column int
}

func (p place) issue(rule, format string, args ...any) lang.FileIssue {
	return lang.FileIssue{File: p.file, Issue: lang.Issue{
		Line: p.line, Column: p.column, Message: fmt.Sprintf(format, args...), Severity: lang.SeverityError, Rule: rule,
	}}
}

// Issue returns an error about the link, at its position in the manifest.
func (l Link) Issue(format string, args ...any) lang.FileIssue {
	return l.at.issue(ruleManifest, format, args...)
}

// Issue returns an error about the case, at its position in the manifest.
func (c Case) Issue(rule, format string, args ...any) lang.FileIssue {
	return c.at.issue(rule, format, args...)
}

// Issue returns an error about the control: at its entry in the manifest or, if there is none, at
// the start of its source.
func (c Control) Issue(rule, format string, args ...any) lang.FileIssue {
	if c.at == (place{}) {
		return place{file: c.Path, line: 1, column: 1}.issue(rule, format, args...)
	}
	return c.at.issue(rule, format, args...)
}

// isManifest reports whether a path names a manifest.
func isManifest(p string) bool { return path.Base(p) == manifestName }

// IsControlFile reports whether a path names a Rego file or a manifest.
func IsControlFile(p string) bool { return strings.HasSuffix(p, controlSuffix) || isManifest(p) }

// Read reads the files of a repository. It returns at most 100 issues about paths and manifests. It
// does not check Rego.
func Read(files []File) (Repository, []lang.FileIssue) {
	r := reader{controls: map[string]*Control{}, seen: map[string]bool{}}
	var manifests []File
	for _, f := range slices.SortedFunc(slices.Values(files), func(a, b File) int { return strings.Compare(a.Path, b.Path) }) {
		switch why := badPath(f.Path); {
		case why != "":
			r.report(place{file: f.Path}.issue(ruleFile, "%s", why))
		case r.seen[f.Path]:
			r.report(place{file: f.Path}.issue(ruleFile, "the path occurs twice"))
		case isManifest(f.Path):
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

// reader collects the content of files.
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

// finish returns the repository and the issues. Two controls with the same name are an issue.
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

// badPath returns the reason why a path is not allowed in a repository, or "".
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

// RegoCases returns the control's cases for the evaluator, and the issues of those that cannot be
// converted.
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

// Results adds the positions of the control's cases to their results, which must be in the order of
// the cases.
func (c Control) Results(results []suite.TestResult) []CaseResult {
	out := make([]CaseResult, len(results))
	for i, r := range results {
		at := (*c.Cases)[i].at
		out[i] = CaseResult{File: at.file, Line: at.line, Control: c.Path, Result: r}
	}
	return out
}
