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
)

// TestErrorsDocumented: every error code of the service is in docs/errors.md, and
// every code of that page is one that the source gives. Codes are found where
// they are written: what is handed to a parameter named code, or to a member
// named code, anywhere in the source.
func TestErrorsDocumented(t *testing.T) {
	text, err := os.ReadFile("../../../docs/errors.md")
	if err != nil {
		t.Fatal(err)
	}
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
			t.Errorf("docs/errors.md tells of %q, which nothing gives", code)
		}
	}
	if len(codes) < 100 {
		t.Errorf("only %d codes were found: the search is broken", len(codes))
	}
}

// errorCodes are the codes in the source, each with a place where it is given,
// and all texts of the source.
func errorCodes(t *testing.T) (codes map[string]string, written map[string]bool) {
	t.Helper()
	files := map[string]*ast.File{}
	constants := map[string]ast.Expr{}
	takes := map[string]int{} // by the function's name, which parameter is the code
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
	if err != nil {
		t.Fatal(err)
	}
	codes, written = map[string]string{}, map[string]bool{"invalid_tenant": true, "invalid_environment": true} // made of two parts
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
				if name == "New" || name == "Newf" { // other packages have such too
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

// codeParameter is the place of a function's parameter that is named code; -1 for none.
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
