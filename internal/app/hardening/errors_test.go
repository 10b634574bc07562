package hardening_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/gatehouse-dev/gatehouse/internal/errtest"
)

// TestErrorsDocumented checks that docs/errors.md has every error code of the source, and no
// others. A code is an argument for a parameter named code, or the value of a member named code.
func TestErrorsDocumented(t *testing.T) {
	text, err := os.ReadFile("../../../docs/errors.md")
	errtest.Must(t, err)
	documented := map[string]bool{}
	for line := range strings.Lines(string(text)) {
		if cells := strings.Split(line, "|"); len(cells) > 2 {
			for _, m := range regexp.MustCompile("`([a-z_]+)`").FindAllStringSubmatch(cells[1], -1) {
				documented[m[1]] = true
			}
		}
	}
	codes, written := errorCodes(t)
	for code, where := range codes {
		if !documented[code] {
			t.Errorf("%s: the error %q is not in docs/errors.md", where, code)
		}
	}
	for code := range documented {
		if !written[code] {
			t.Errorf("docs/errors.md has %q, which is not in the source", code)
		}
	}
	if len(codes) < 100 {
		t.Errorf("the search found only %d codes, want at least 100", len(codes))
	}
}

// errorCodes returns the codes in the source, each with a file that has it, and all texts of the
// source.
func errorCodes(t *testing.T) (codes map[string]string, written map[string]bool) {
	t.Helper()
	files := map[string]*ast.File{}
	constants := map[string]ast.Expr{}
	takes := map[string]int{} // the index of the parameter with the code, by the function's name
	err := filepath.WalkDir("../..", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") || strings.Contains(path, "apptest") || strings.Contains(path, "dbtest") {
			return err
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
		if err != nil {
			return err
		}
		files[path] = file
		for _, d := range file.Decls {
			if g, ok := d.(*ast.GenDecl); ok && g.Tok == token.CONST {
				for _, s := range g.Specs {
					if v, ok := s.(*ast.ValueSpec); ok && len(v.Values) == len(v.Names) {
						for i, name := range v.Names {
							constants[filepath.Dir(path)+"."+name.Name] = v.Values[i]
						}
					}
				}
			}
			if f, ok := d.(*ast.FuncDecl); ok {
				if i := codeParameter(f.Type); i >= 0 {
					takes[f.Name.Name] = i
				}
			}
		}
		return nil
	})
	errtest.Must(t, err)
	codes, written = map[string]string{}, map[string]bool{"invalid_tenant": true, "invalid_environment": true} // the source composes these
	note := func(path string, e ast.Expr) {
		if name, ok := e.(*ast.Ident); ok {
			e = constants[filepath.Dir(path)+"."+name.Name]
		}
		if lit, ok := e.(*ast.BasicLit); ok && lit.Kind == token.STRING {
			if code := strings.Trim(lit.Value, `"`); regexp.MustCompile(`^[a-z]+(_[a-z]+)*$`).MatchString(code) {
				codes[code] = path
			}
		}
	}
	for path, file := range files {
		ast.Inspect(file, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.BasicLit:
				written[strings.Trim(n.Value, `"`)] = true
			case *ast.CallExpr:
				name := ""
				switch fn := n.Fun.(type) {
				case *ast.Ident:
					name = fn.Name
				case *ast.SelectorExpr:
					name = fn.Sel.Name
				}
				if name == "New" || name == "Newf" { // other packages have functions of this name
					if pkg, ok := n.Fun.(*ast.SelectorExpr); !ok || fmt.Sprint(pkg.X) != "fault" {
						return true
					}
				}
				if i, ok := takes[name]; ok && i < len(n.Args) {
					note(path, n.Args[i])
				}
			case *ast.KeyValueExpr:
				if key, ok := n.Key.(*ast.Ident); ok && strings.EqualFold(key.Name, "code") {
					note(path, n.Value)
				}
			case *ast.AssignStmt:
				for i, to := range n.Lhs {
					if sel, ok := to.(*ast.SelectorExpr); ok && strings.EqualFold(sel.Sel.Name, "code") && i < len(n.Rhs) {
						note(path, n.Rhs[i])
					}
				}
			}
			return true
		})
	}
	return codes, written
}

// codeParameter returns the index of the parameter named code; -1 for none.
func codeParameter(f *ast.FuncType) int {
	i := 0
	for _, field := range f.Params.List {
		for _, name := range field.Names {
			if name.Name == "code" && fmt.Sprint(field.Type) == "string" {
				return i
			}
			i++
		}
		if len(field.Names) == 0 {
			i++
		}
	}
	return -1
}
