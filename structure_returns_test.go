package gatehouse

import (
	"go/ast"
	"go/token"
	"testing"
)

// checkReturns: no result of a return statement is a variable that a call in the same statement
// changes, as in `return v, json.Unmarshal(b, &v)`. The language does not say which comes first.
func checkReturns(t *testing.T, files []source) {
	for _, s := range files {
		ast.Inspect(s.file, func(n ast.Node) bool {
			ret, ok := n.(*ast.ReturnStmt)
			if !ok || len(ret.Results) < 2 {
				return true
			}
			changed := map[string]bool{}
			for _, r := range ret.Results {
				changedBy(r, changed)
			}
			for _, r := range ret.Results {
				if name := variable(r); changed[name] {
					t.Errorf("%s: the statement returns %s and changes it in a call: assign the call's result first", s.fset.Position(ret.Pos()), name)
				}
			}
			return true
		})
	}
}

// variable returns the variable of an expression that only reads one: x, *x, x.field or x[i].
func variable(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.Ident:
		return e.Name
	case *ast.SelectorExpr:
		return variable(e.X)
	case *ast.StarExpr:
		return variable(e.X)
	case *ast.IndexExpr:
		return variable(e.X)
	}
	return ""
}

// assigned returns the variable that an assignment to e changes; "" if that is one behind a pointer.
func assigned(e ast.Expr) string {
	if _, behind := e.(*ast.StarExpr); behind {
		return ""
	}
	return variable(e)
}

// changedBy adds the variables that the calls of an expression may change: those whose address they
// get, and those that a function literal among their arguments assigns.
func changedBy(e ast.Expr, out map[string]bool) {
	ast.Inspect(e, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		if !ok {
			return true
		}
		for _, arg := range call.Args {
			ast.Inspect(arg, func(n ast.Node) bool {
				switch n := n.(type) {
				case *ast.UnaryExpr:
					if n.Op == token.AND {
						out[variable(n.X)] = true
					}
				case *ast.AssignStmt:
					if n.Tok != token.DEFINE {
						for _, l := range n.Lhs {
							out[assigned(l)] = true
						}
					}
				case *ast.IncDecStmt:
					out[assigned(n.X)] = true
				}
				return true
			})
		}
		return true
	})
	delete(out, "")
}
