package lang

import (
	"fmt"

	"github.com/open-policy-agent/opa/v1/ast"
)

// Bounds on source, so that a check takes a bounded time. They refuse all programs that were found
// to make OPA's compiler take seconds.
const (
	// MaxSourceBytes is the maximum size of a source in bytes.
	MaxSourceBytes = 1 << 20
	maxNesting     = 64  // brackets within brackets
	maxDepth       = 768 // depth of the syntax tree: about 250 nested operators
	maxLines       = 20_000
	maxCommas      = 50_000
	maxImports     = 200
	maxRules       = 2000    // rules and else branches of a module
	maxElse        = 200     // else branches of one rule
	maxNodes       = 300_000 // nodes of the syntax tree in all
	// OPA's compiler takes about four times as long for each level of nested comprehensions and
	// every, and its time grows with the square of the number of elements of a literal. These
	// bound the sums over the module, to about eight levels and ten thousand elements.
	maxClosureCost = 1 << 18
	maxLiteralCost = 100_000_000
	maxIssues      = 100
)

func sourceIssue(line, col int, format string, args ...any) Issue {
	return Issue{Line: line, Column: col, Message: fmt.Sprintf(format, args...), Severity: SeverityError, Rule: "source_limit"}
}

// checkText checks the bounds on the text. It runs before the parser, which is recursive.
func checkText(src string) []Issue {
	if len(src) > MaxSourceBytes {
		return []Issue{sourceIssue(0, 0, "the source is larger than %d bytes", MaxSourceBytes)}
	}
	depth, prefix, commas := 0, 0, 0
	for at := (cursor{line: 1}); at.index < len(src); at.index++ {
		c := src[at.index]
		at.skip(src)
		switch c {
		case '(', '[', '{':
			depth++
		case ')', ']', '}':
			depth = max(depth-1, 0)
		case ',':
			commas++
		}
		// The parser also recurses for a run of signs.
		switch c {
		case '-', '+', '!':
			prefix++
		case ' ', '\t', '\n', '\r':
		default:
			prefix = 0
		}
		switch {
		case depth > maxNesting:
			return at.issue("nested deeper than %d brackets", maxNesting)
		case at.line > maxLines || commas > maxCommas:
			return at.issue("more than %d lines or %d commas", maxLines, maxCommas)
		case prefix > maxNesting:
			return at.issue("more than %d operators in a row", maxNesting)
		}
	}
	return nil
}

// cursor is a position in a source.
type cursor struct {
	index int
	line  int // 1-based
	start int // index of the line's first byte
}

// skip counts the line if there is a line end here. If a string or comment begins here, it moves to
// its last byte.
func (c *cursor) skip(src string) {
	switch src[c.index] {
	case '\n':
		c.line, c.start = c.line+1, c.index+1
	case '"':
		c.index = skipString(src, c.index)
	case '`':
		for c.index++; c.index < len(src) && src[c.index] != '`'; c.index++ {
			if src[c.index] == '\n' {
				c.line, c.start = c.line+1, c.index+1
			}
		}
	case '#':
		for c.index+1 < len(src) && src[c.index+1] != '\n' {
			c.index++
		}
	}
}

// issue returns the issue of a source that exceeds a limit at this place.
func (c *cursor) issue(format string, args ...any) []Issue {
	return []Issue{sourceIssue(c.line, c.index-c.start+1, format, args...)}
}

// skipString returns the index of the closing quote, or of the line's end.
func skipString(src string, i int) int {
	for i++; i < len(src) && src[i] != '"'; i++ {
		if src[i] == '\\' {
			i++
		}
		if i < len(src) && src[i] == '\n' {
			return i - 1
		}
	}
	return i
}

// checkShape checks the bounds on a parsed module. It runs before the compiler, which is recursive
// and in places quadratic.
func checkShape(mod *ast.Module) []Issue {
	if len(mod.Imports) > maxImports {
		return []Issue{sourceIssue(0, 0, "the control has more than %d imports", maxImports)}
	}
	total := 0
	for _, r := range mod.Rules {
		n := 0
		for e := r; e != nil; e = e.Else {
			total++
			n++
			if n > maxElse {
				return []Issue{sourceIssue(r.Location.Row, r.Location.Col, "a rule has more than %d else branches", maxElse)}
			}
		}
	}
	if total > maxRules {
		return []Issue{sourceIssue(0, 0, "the control has more than %d rules", maxRules)}
	}
	m := measure{}
	for _, r := range mod.Rules {
		if what := m.rule(r); what != "" {
			return []Issue{sourceIssue(r.Location.Row, r.Location.Col, "%s", what)}
		}
	}
	return nil
}

// measure estimates the cost of compiling a module.
type measure struct {
	depth, nodes, closures   int
	closureCost, literalCost int
	what                     string
}

// rule measures a rule. It returns what exceeds a bound, or "". It does not visit what is nested
// deeper than the bounds.
func (m *measure) rule(r *ast.Rule) string {
	ast.NewBeforeAfterVisitor(m.enter, m.leave).Walk(r)
	return m.what
}

func isClosure(x any) bool {
	switch x.(type) {
	case *ast.ArrayComprehension, *ast.SetComprehension, *ast.ObjectComprehension, *ast.Every:
		return true
	}
	return false
}

func (m *measure) enter(x any) bool {
	m.depth++
	m.nodes++
	if isClosure(x) {
		m.closures++
		m.closureCost += 1 << (2 * min(m.closures, 16))
	}
	n := 0
	switch x := x.(type) {
	case *ast.Array:
		n = x.Len()
	case ast.Set:
		n = x.Len()
	case ast.Object:
		n = x.Len()
	}
	m.literalCost += n * n
	switch {
	case m.what != "":
	case m.depth > maxDepth:
		m.what = "a rule's expressions are nested too deeply"
	case m.nodes > maxNodes:
		m.what = "the control has too many expressions"
	case m.closureCost > maxClosureCost:
		m.what = "comprehensions and every are nested too deeply, or too often: put the inner ones into rules of their own"
	case m.literalCost > maxLiteralCost:
		m.what = "a literal list is too long: put it into data"
	}
	return m.what != ""
}

func (m *measure) leave(x any) {
	m.depth--
	if isClosure(x) {
		m.closures--
	}
}
