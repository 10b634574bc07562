package lang

import (
	"context"
	"fmt"

	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/regal/pkg/linter"
	"github.com/open-policy-agent/regal/pkg/rules"
)

// Linter lints sources with Regal. It is prepared once, which takes about 0.3 s; linting a source
// then takes about 5 ms. It is safe for concurrent use.
type Linter struct {
	base linter.Linter
}

// lintOff are Regal's rules that make no sense for a control: a control is not a file in a
// directory, and its author decides on its layout.
var lintOff = []string{"directory-package-mismatch", "opa-fmt", "file-length", "missing-metadata", "no-defined-entrypoint", "trailing-default-rule"}

// NewLinter prepares the linter.
func NewLinter(ctx context.Context) (*Linter, error) {
	base, err := linter.NewLinter().WithDisabledRules(lintOff...).Prepare(ctx)
	if err != nil {
		return nil, fmt.Errorf("prepare the linter: %w", err)
	}
	return &Linter{base: base}, nil
}

// Lint returns the warnings for source, at most 100, in source order. It returns none for source
// that does not parse within the bounds of Check, because Check reports that as an error.
func (l *Linter) Lint(ctx context.Context, source string) ([]Issue, error) {
	if checkText(source) != nil {
		return nil, nil
	}
	mod, err := ast.ParseModuleWithOpts(sourceName, source, ast.ParserOptions{RegoVersion: ast.RegoV1, ProcessAnnotation: true})
	if err != nil || checkShape(mod) != nil {
		return nil, nil //nolint:nilerr // Check reports this error
	}
	in := rules.NewInput(map[string]string{sourceName: source}, map[string]*ast.Module{sourceName: mod})
	rep, err := l.base.WithInputModules(&in).Lint(ctx)
	if err != nil {
		return nil, fmt.Errorf("lint: %w", err)
	}
	out := make([]Issue, 0, len(rep.Violations))
	for _, v := range rep.Violations {
		out = append(out, Issue{
			Line: v.Location.Row, Column: v.Location.Column,
			Message: v.Description, Severity: SeverityWarning, Rule: v.Category + "/" + v.Title,
		})
	}
	return cleanIssues(source, append(out, advise(mod)...)), nil
}
