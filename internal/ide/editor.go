package ide

import (
	"context"
	"strings"

	"github.com/gatehouse-dev/gatehouse/internal/assist"
	"github.com/gatehouse-dev/gatehouse/internal/controlfile"
	"github.com/gatehouse-dev/gatehouse/internal/policycode"
	"github.com/gatehouse-dev/gatehouse/internal/rego/lang"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

// Place is a position in a text. Lines and columns count from 1, and columns are characters.
type Place struct {
	Line   int `json:"line" doc:"Line, 1-based"`
	Column int `json:"column" doc:"Column in characters, 1-based"`
}

// Range is a part of a text. End is exclusive.
type Range struct {
	Start Place `json:"start" doc:"Where it begins"`
	End   Place `json:"end" doc:"Where it ends: the position after the last character"`
}

// Completion is something that may be typed at a position.
type Completion struct {
	Label         string `json:"label" doc:"The text to show" example:"input.user.roles"`
	Kind          string `json:"kind" enum:"input,data,function,keyword,rule,template" doc:"What it is"`
	Detail        string `json:"detail,omitempty" doc:"Type or signature"`
	Documentation string `json:"documentation,omitempty" doc:"What it means, in Markdown"`
	InsertText    string `json:"insert_text" doc:"The text that replaces the range"`
	Range         Range  `json:"range" doc:"The text to replace"`
}

// Fix is a change that fixes an error or a warning.
type Fix struct {
	Title   string     `json:"title" doc:"What it does"`
	Range   Range      `json:"range" doc:"The text to replace"`
	NewText string     `json:"new_text" doc:"The replacement text"`
	Mends   lang.Issue `json:"mends" doc:"The error or warning that it fixes"`
}

// Suggestions are what an editor may offer for a text.
type Suggestions struct {
	Completions []Completion
	Fixes       []Fix
	Errors      []lang.Issue
	Warnings    []lang.Issue
}

// Attribute is a member of the input that a text reads.
type Attribute struct {
	Path        string `json:"path" doc:"Path, starting with input" example:"input.user.roles"`
	Type        string `json:"type" doc:"Type, as far as its use shows"`
	Description string `json:"description,omitempty" doc:"State and comparison with the environment"`
}

// Verdict is the result of validating a control.
type Verdict struct {
	Valid            bool
	Errors, Warnings []lang.Issue
}

// Validate compiles and lints a control. Faults: those of policy.Service.Validate.
func (s *Service) Validate(ctx context.Context, sc scope.Scope, source string) (Verdict, error) {
	v, err := s.Check(ctx, sc, source)
	out := Verdict{Valid: v.Valid, Errors: v.Errors, Warnings: v.Warnings}
	if out.Errors == nil {
		out.Errors = []lang.Issue{}
	}
	if out.Warnings == nil {
		out.Warnings = []lang.Issue{}
	}
	return out, err
}

// Suggest returns completions at a position, and fixes for the whole text. If at is nil, the
// position is the end of the text.
func (s *Service) Suggest(ctx context.Context, sc scope.Scope, source string, at *Place) (Suggestions, error) {
	v, err := s.Validate(ctx, sc, source)
	if err != nil {
		return Suggestions{}, err
	}
	out := Suggestions{Completions: []Completion{}, Fixes: []Fix{}, Errors: v.Errors, Warnings: v.Warnings}
	if len(source) > lang.MaxSourceBytes {
		return out, nil
	}
	offset := len(source)
	if at != nil {
		offset = assist.Offset(source, at.Line, at.Column)
	}
	for _, c := range assist.Complete(source, offset, assist.Knowledge{Templates: s.Templates}) {
		out.Completions = append(out.Completions, Completion{c.Label, c.Kind, c.Detail, c.Doc, c.Insert, rangeOf(source, c.Span)})
	}
	for _, f := range assist.Fixes(source, append(append([]lang.Issue{}, v.Errors...), v.Warnings...)) {
		out.Fixes = append(out.Fixes, Fix{f.Title, rangeOf(source, f.Span), f.Text, f.Issue})
	}
	return out, nil
}

func rangeOf(source string, s assist.Span) Range {
	var r Range
	r.Start.Line, r.Start.Column = assist.Place(source, s.Start)
	r.End.Line, r.End.Column = assist.Place(source, s.End)
	return r
}

// Test runs Rego tests on a control and the files beside it.
func (s *Service) Test(ctx context.Context, sc scope.Scope, files []controlfile.File) (controlfile.TestReport, error) {
	return s.Code.Test(ctx, sc, policycode.Request{Files: files})
}

// attributes returns the members of the input that a text reads.
func attributes(source string) []Attribute {
	out := []Attribute{}
	if len(source) > lang.MaxSourceBytes {
		return out
	}
	for _, m := range assist.Attributes(source) {
		out = append(out, Attribute{m.Path, m.Type, m.Doc})
	}
	return out
}

// controlPath returns the path of an editor's control as a relative path that ends with .rego. It
// removes a scheme or drive. If nothing is left, it returns control.rego.
func controlPath(p string) string {
	p = strings.TrimLeft(strings.ReplaceAll(p, `\`, "/"), "/")
	if i := strings.Index(p, ":/"); i >= 0 { // C:/…, file:///…
		p = strings.TrimLeft(p[i+1:], "/")
	}
	if p == "" {
		return "control.rego"
	}
	if !strings.HasSuffix(p, ".rego") {
		p += ".rego"
	}
	return p
}

// JoinFiles returns the control of an editor's request and the files beside it. A file beside it
// with the same path is left out.
func JoinFiles(path, source string, beside []controlfile.File) []controlfile.File {
	out := []controlfile.File{{Path: controlPath(path), Content: source}}
	for _, f := range beside {
		if f.Path != out[0].Path {
			out = append(out, f)
		}
	}
	return out
}
