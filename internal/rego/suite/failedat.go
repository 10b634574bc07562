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

// failures watches a run of tests for expressions that fail, beside the
// coverage that it counts. Memory is bounded: of each line the last failure counts.
type failures struct {
	*cover.Cover
	number int
	last   map[fileLine]failure
}

type fileLine struct {
	file string
	line int
}

// failure is an expression that failed. within is the expression of a control
// that failed last before it: for a test that asks a control, the reason.
type failure struct {
	number int
	expr   *ast.Expr
	within *ast.Expr
}

func watchFailures(c *cover.Cover) *failures {
	return &failures{Cover: c, last: map[fileLine]failure{}}
}

// TraceEvent counts coverage and notes failures.
func (f *failures) TraceEvent(e topdown.Event) {
	f.Cover.TraceEvent(e)
	expr, ok := e.Node.(*ast.Expr)
	if !ok || expr.Location == nil || len(expr.Location.Text) == 0 || e.QueryID == 0 {
		return
	}
	test := strings.HasSuffix(expr.Location.File, TestSuffix)
	switch {
	case e.Op == topdown.EvalOp && test: // what failed before is no reason for this one
		delete(f.last, fileLine{})
		return
	case e.Op != topdown.FailOp:
		return
	}
	if _, every := expr.Terms.(*ast.Every); every {
		return // the expression in its body says more
	}
	f.number++
	at := fileLine{expr.Location.File, expr.Location.Row}
	this := failure{number: f.number, expr: expr}
	if test {
		if !expr.Negated {
			this.within = f.last[fileLine{}].expr
		}
	} else {
		at = fileLine{} // of the controls only the last one counts
	}
	f.last[at] = this
}

// of gives the last expression of a failed test that did not hold, and that of
// the control which it asked; nil where none is known. A test reaches from its
// line to the next test's.
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

// Failing lists the expressions that made the test fail, as far as they are known.
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
