package suite

import (
	"strings"

	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/cover"
	"github.com/open-policy-agent/opa/v1/tester"
	"github.com/open-policy-agent/opa/v1/topdown"
)

// Expression is a place in a Rego file.
type Expression struct {
	File   string `json:"file" doc:"File of the expression"`
	Line   int    `json:"line" doc:"Its line, 1-based"`
	Source string `json:"source" doc:"The expression as written; a long one is cut"`
}

// failures records the expressions that fail in a run of tests, and counts coverage. Its memory is
// bounded, because it keeps only the last failure of each line.
type failures struct {
	*cover.Cover
	number int
	last   map[fileLine]failure
}

type fileLine struct {
	file string
	line int
}

// failure is an expression that failed. within is the last expression of a control that failed
// before it. If the expression evaluates a control, that is the reason.
type failure struct {
	number int
	expr   *ast.Expr
	within *ast.Expr
}

func watchFailures(c *cover.Cover) *failures {
	return &failures{Cover: c, last: map[fileLine]failure{}}
}

// TraceEvent counts coverage and records failures.
func (f *failures) TraceEvent(e topdown.Event) {
	f.Cover.TraceEvent(e)
	expr, ok := e.Node.(*ast.Expr)
	if !ok || expr.Location == nil || len(expr.Location.Text) == 0 || e.QueryID == 0 {
		return
	}
	test := strings.HasSuffix(expr.Location.File, TestSuffix)
	switch {
	case e.Op == topdown.EvalOp && test: // earlier failures are not the reason for this expression
		delete(f.last, fileLine{})
		return
	case e.Op != topdown.FailOp:
		return
	}
	if _, every := expr.Terms.(*ast.Every); every {
		return // the expression in its body is more precise
	}
	f.number++
	at := fileLine{expr.Location.File, expr.Location.Row}
	this := failure{number: f.number, expr: expr}
	if test {
		if !expr.Negated {
			this.within = f.last[fileLine{}].expr
		}
	} else {
		at = fileLine{} // only the last failure in any control counts
	}
	f.last[at] = this
}

// of returns the last expression of a failed test that did not hold, and the expression of the
// control that caused this; nil if unknown. A test extends from its line to the line end, where the
// next rule begins.
func (f *failures) of(r *tester.Result, end int) (at, because *Expression) {
	if !r.Fail || r.Location == nil {
		return nil, nil
	}
	var found failure
	for p, x := range f.last {
		if p.file == r.Location.File && p.line >= r.Location.Row && p.line < end && x.number > found.number {
			found = x
		}
	}
	return expressionOf(found.expr), expressionOf(found.within)
}

// Failing returns the expressions that made the test fail, if they are known.
func (t *ModuleTest) Failing() []Expression {
	var out []Expression
	for _, x := range []*Expression{t.FailedAt, t.Because} {
		if x != nil {
			out = append(out, *x)
		}
	}
	return out
}

// maxExpression bounds the text of an expression in an answer, in characters.
const maxExpression = 300

func expressionOf(e *ast.Expr) *Expression {
	if e == nil {
		return nil
	}
	text := strings.Join(strings.Fields(string(e.Location.Text)), " ")
	if runes := []rune(text); len(runes) > maxExpression {
		text = string(runes[:maxExpression]) + "…"
	}
	return &Expression{File: e.Location.File, Line: e.Location.Row, Source: text}
}
