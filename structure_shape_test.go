package gatehouse

import (
	"go/ast"
	"maps"
	"slices"
	"testing"
)

// The sizes that keep a package and a function readable.
const (
	maxFileLines    = 600
	maxFuncLines    = 80
	maxPackageLines = 4000
	maxPackageFiles = 25
	maxMethods      = 40
	maxComplexity   = 30
)

// checkSizes: no file and no function is too long.
func checkSizes(t *testing.T, files []source) {
	for _, s := range files {
		if s.lines > maxFileLines {
			t.Errorf("%s/%s has %d lines, over %d", s.dir, s.name, s.lines, maxFileLines)
		}
		for _, d := range s.file.Decls {
			fn, ok := d.(*ast.FuncDecl)
			if !ok || s.test {
				continue
			}
			if n := s.fset.Position(fn.End()).Line - s.fset.Position(fn.Pos()).Line + 1; n > maxFuncLines {
				t.Errorf("%s/%s: %s has %d lines, over %d", s.dir, s.name, fn.Name.Name, n, maxFuncLines)
			}
		}
	}
}

// checkShape: packages, types and functions stay small. Tests do not count.
func checkShape(t *testing.T, files []source) {
	lines, count, methods, complexity := map[string]int{}, map[string]int{}, map[string]int{}, map[string]int{}
	for _, s := range files {
		if s.test {
			continue
		}
		lines[s.dir] += s.lines
		count[s.dir]++
		for _, d := range s.file.Decls {
			fn, ok := d.(*ast.FuncDecl)
			if !ok {
				continue
			}
			name := s.dir + "." + fn.Name.Name
			if on := receiver(fn); on != "" {
				methods[s.dir+"."+on]++
				name = s.dir + "." + on + "." + fn.Name.Name
			}
			complexity[name] = max(complexity[name], cognitive(fn))
		}
	}
	wantAtMost(t, "lines", maxPackageLines, lines)
	wantAtMost(t, "files", maxPackageFiles, count)
	wantAtMost(t, "methods", maxMethods, methods)
	wantAtMost(t, "of cognitive complexity", maxComplexity, complexity)
}

// wantAtMost reports each package, type or function whose figure is over a limit.
func wantAtMost(t *testing.T, unit string, limit int, measured map[string]int) {
	t.Helper()
	for _, name := range slices.Sorted(maps.Keys(measured)) {
		if n := measured[name]; n > limit {
			t.Errorf("%s: %d %s, over %d", name, n, unit, limit)
		}
	}
}

// receiver is the name of the type that a method belongs to, "" for a function.
func receiver(fn *ast.FuncDecl) string {
	if fn.Recv == nil || len(fn.Recv.List) == 0 {
		return ""
	}
	switch x := ast.Unparen(unstar(fn.Recv.List[0].Type)).(type) {
	case *ast.Ident:
		return x.Name
	case *ast.IndexExpr:
		return x.X.(*ast.Ident).Name // the parser lets nothing else through
	case *ast.IndexListExpr:
		return x.X.(*ast.Ident).Name
	}
	return ""
}

func unstar(x ast.Expr) ast.Expr {
	if star, ok := ast.Unparen(x).(*ast.StarExpr); ok {
		return star.X
	}
	return x
}
