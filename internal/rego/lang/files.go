package lang

import (
	"errors"
	"strings"

	"github.com/open-policy-agent/opa/v1/ast"
)

// FileIssue is an issue in one of several files.
type FileIssue struct {
	File string `json:"file" doc:"Path of the file"`
	Issue
}

// FileIssues converts errors of OPA's compiler to issues with their files, at most 100.
func FileIssues(err error) []FileIssue {
	list, ok := errors.AsType[ast.Errors](err)
	if !ok {
		return []FileIssue{{Issue: compilerIssues(err)[0]}}
	}
	var out []FileIssue
	for _, e := range list {
		is := FileIssue{Issue: compilerIssues(e)[0]}
		if e.Location != nil {
			is.File = e.Location.File
		}
		if out = append(out, is); len(out) == maxIssues {
			break
		}
	}
	return out
}

// ParseChecked checks a source and returns its syntax tree. Its package shows whether it is a
// control or a library. file is the file name in the locations of the tree.
func ParseChecked(file, source string, libs ...Library) (mod *ast.Module, issues []Issue) {
	if _, issues := check(source, Library{Source: source}.Package() != "", libs); len(issues) > 0 {
		return nil, issues
	}
	return parseTidy(file, source, func(*ast.Module) []Issue { return nil })
}

// ParseTests parses a file of Rego tests within the bounds of a control's source.
func ParseTests(file, source string) (*ast.Module, []Issue) {
	return parseTidy(file, source, func(mod *ast.Module) []Issue {
		library := strings.HasPrefix(mod.Package.Path.String(), "data."+LibraryRoot+".")
		return append(checkPackage(mod, library), findForbidden(mod)...)
	})
}

// parseTidy parses a file, checks its tree, and cleans the issues.
func parseTidy(file, source string, check func(*ast.Module) []Issue) (mod *ast.Module, issues []Issue) {
	defer func() {
		if p := recover(); p != nil {
			mod, issues = nil, []Issue{CrashIssue("the source cannot be read", p, "compiler")}
		}
		issues = cleanIssues(source, issues)
	}()
	mod, issues = parse(file, source)
	if issues != nil {
		return nil, issues
	}
	return mod, check(mod)
}
