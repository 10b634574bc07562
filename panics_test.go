package gatehouse

import (
	"go/ast"
	"testing"
)

// tellsOfPanics are what logs and counts a recovered panic, or passes it to whoever
// does: as an error of the evaluator, as an issue of a check, or to the parent process.
var tellsOfPanics = []string{"Caught", "EvaluatorHandler", "panicked", "Panicked", "OnPanic", "Report", "Count", "PanicError", "CrashIssue", "panicIssue", "panicReply", "panic"}

// untold are the functions that recover a panic and pass it to no one.
var untold = map[string]string{
	"internal/rego/lang.Format":      "the text is left as it was; it is a formatter, and its answer says only whether it could",
	"internal/controlfile.parseYAML": "the file is refused, and the issue has what was thrown",
	"internal/rego/oracle.Rule":      "only tests call it",
	"internal/lsp.call":              "it logs with the stack; the program of an editor has no metrics",
}

// TestRecoveredPanicsAreTold holds each recover to one that logs and counts.
func TestRecoveredPanicsAreTold(t *testing.T) {
	found, excused := 0, map[string]bool{}
	for _, s := range sources(t) {
		if s.test {
			continue
		}
		for _, d := range s.file.Decls {
			fn, ok := d.(*ast.FuncDecl)
			if !ok || fn.Body == nil {
				continue
			}
			recovers, tells := recovered(fn)
			if !recovers {
				continue
			}
			found++
			name := s.dir + "." + fn.Name.Name
			if !tells && untold[name] == "" {
				t.Errorf("%s: %s recovers a panic that nothing logs and counts", s.fset.Position(fn.Pos()), name)
			}
			excused[name] = !tells
		}
	}
	if found < 20 {
		t.Errorf("only %d functions recover: the walk is broken", found)
	}
	for name := range untold {
		if !excused[name] {
			t.Errorf("%s needs no excuse any more", name)
		}
	}
}

func recovered(fn *ast.FuncDecl) (recovers, tells bool) {
	known := map[string]bool{}
	for _, name := range tellsOfPanics {
		known[name] = true
	}
	ast.Inspect(fn.Body, func(n ast.Node) bool {
		switch x := n.(type) {
		case *ast.CallExpr:
			switch f := x.Fun.(type) {
			case *ast.Ident:
				recovers = recovers || f.Name == "recover"
				tells = tells || known[f.Name]
			case *ast.SelectorExpr:
				tells = tells || known[f.Sel.Name]
			}
		case *ast.CompositeLit:
			switch of := x.Type.(type) {
			case *ast.Ident:
				tells = tells || known[of.Name]
			case *ast.SelectorExpr:
				tells = tells || known[of.Sel.Name]
			}
		}
		return true
	})
	return recovers, tells
}
