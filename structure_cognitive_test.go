package gatehouse

import (
	"go/ast"
	"go/parser"
	"go/token"
	"testing"

	"github.com/gatehouse-dev/gatehouse/internal/errtest"
)

// cognitive is the cognitive complexity of a function, as SonarSource defines it:
// one for each break in the flow, and one more for each level that it is nested at.
// It measures how hard a function is to read, not how many paths it has.
func cognitive(fn *ast.FuncDecl) int {
	if fn.Body == nil {
		return 0
	}
	c := &counter{name: fn.Name.Name, method: fn.Recv != nil}
	c.walk(fn.Body, 0)
	if c.recursive {
		c.sum++
	}
	return c.sum
}

type counter struct {
	name      string
	method    bool
	sum       int
	recursive bool
}

// walk adds up a node's breaks in the flow, at a depth of nesting.
func (c *counter) walk(n ast.Node, depth int) {
	ast.Inspect(n, func(m ast.Node) bool {
		if m == nil || m == n {
			return true
		}
		return !c.visit(m, depth)
	})
}

// visit counts a node that it knows, with what is in it, and says whether it did.
func (c *counter) visit(n ast.Node, depth int) bool {
	switch x := n.(type) {
	case *ast.IfStmt:
		c.sum += 1 + depth
		c.branch(x, depth)
	case *ast.ForStmt:
		c.sum += 1 + depth
		c.all(depth, x.Init, x.Cond, x.Post)
		c.walk(x.Body, depth+1)
	case *ast.RangeStmt:
		c.sum += 1 + depth
		c.all(depth, x.X)
		c.walk(x.Body, depth+1)
	case *ast.SwitchStmt:
		c.sum += 1 + depth
		c.all(depth, x.Init, x.Tag)
		c.walk(x.Body, depth+1)
	case *ast.TypeSwitchStmt:
		c.sum += 1 + depth
		c.all(depth, x.Init, x.Assign)
		c.walk(x.Body, depth+1)
	case *ast.SelectStmt:
		c.sum += 1 + depth
		c.walk(x.Body, depth+1)
	case *ast.FuncLit:
		c.walk(x.Body, depth+1)
	case *ast.BranchStmt:
		if x.Label != nil {
			c.sum++
		}
	case *ast.BinaryExpr:
		if x.Op != token.LAND && x.Op != token.LOR {
			return false
		}
		c.logic(x, token.ILLEGAL, depth)
	case *ast.CallExpr:
		if id, ok := x.Fun.(*ast.Ident); ok && !c.method && id.Name == c.name {
			c.recursive = true
		}
		return false
	default:
		return false
	}
	return true
}

// all visits the parts of a statement that are not nested in it; some may be nil.
func (c *counter) all(depth int, parts ...ast.Node) {
	for _, p := range parts {
		if p != nil && !c.visit(p, depth) {
			c.walk(p, depth)
		}
	}
}

// branch counts an if's body and its else parts, each one for itself.
func (c *counter) branch(x *ast.IfStmt, depth int) {
	c.all(depth, x.Init, x.Cond)
	c.walk(x.Body, depth+1)
	switch e := x.Else.(type) {
	case *ast.IfStmt:
		c.sum++
		c.branch(e, depth)
	case *ast.BlockStmt:
		c.sum++
		c.walk(e, depth+1)
	}
}

// logic counts each run of one logical operator once, in the order of the text.
func (c *counter) logic(x ast.Expr, last token.Token, depth int) token.Token {
	in, ok := x.(*ast.BinaryExpr)
	if !ok || in.Op != token.LAND && in.Op != token.LOR {
		c.all(depth, x)
		return last
	}
	last = c.logic(in.X, last, depth)
	if in.Op != last {
		c.sum++
	}
	return c.logic(in.Y, in.Op, depth)
}

// TestStructureCognitive counts functions whose figure is known.
func TestStructureCognitive(t *testing.T) {
	for code, want := range map[string]int{
		`func f() {}`:                                                              0,
		`func f(a bool) { if a {} }`:                                               1,
		`func f(a bool) { if a {} else {} }`:                                       2,
		`func f(a, b bool) { if a {} else if b {} else {} }`:                       3,
		`func f(a, b bool) { if a { if b {} } }`:                                   3,
		`func f(a, b bool) { if a {} else { if b {} } }`:                           4,
		`func f(s []int) { for range s { for i := 0; i < 3; i++ { if i>1 {} } } }`: 6,
		`func f(a int) { switch a { case 1: if a>2 {}; default: } }`:               3,
		`func f(a any) { switch a.(type) { case int: } }`:                          1,
		`func f(c chan int) { select { case <-c: } }`:                              1,
		`func f(a, b, c bool) bool { return a && b && c }`:                         1,
		`func f(a, b, c bool) bool { return a && b || c }`:                         2,
		`func f(a, b, c bool) bool { return a || b && c || a }`:                    3,
		`func f(a, b, c bool) bool { return a && (b || c) && a }`:                  2,
		`func f(a, b bool) { if a && !b {} }`:                                      2,
		`func f() { func() { if true {} }() }`:                                     2,
		`func f() { defer func() { if r := recover(); r != nil {} }() }`:           2,
		`func f(n int) int { return f(n-1) }`:                                      1,
		`func (t T) f(n int) int { return f(n-1) }`:                                0,
		`func f() { x: for { for { break x } } }`:                                  4,
		`func f() { for { break } }`:                                               1,
		`func f() { goto x; x: }`:                                                  1,
	} {
		file, err := parser.ParseFile(token.NewFileSet(), "f.go", "package p\n"+code, 0)
		errtest.Must(t, err)
		if got := cognitive(file.Decls[0].(*ast.FuncDecl)); got != want {
			t.Errorf("%s: %d, want %d", code, got, want)
		}
	}
}
