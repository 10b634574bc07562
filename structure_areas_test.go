package gatehouse

import (
	"go/ast"
	"go/token"
	"path"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// checkAreas: operations are registered in an area of the API, in a file that is named
// for the first segment of their path: /policies/{policy_id}/test stands in
// policies.go or policies_<topic>.go.
func checkAreas(t *testing.T, files []source) {
	found := 0
	for _, s := range files {
		if s.test || !slices.Contains(s.imports(), module+"internal/rest") {
			continue
		}
		for _, p := range operationPaths(s.file) {
			found++
			if path.Dir(s.dir) != "internal/api" {
				t.Errorf("%s/%s registers %s outside the areas of the API", s.dir, s.name, p)
				continue
			}
			if segment := firstSegment(p); s.name != segment+".go" && !strings.HasPrefix(s.name, segment+"_") {
				t.Errorf("%s/%s registers %s, which belongs in %s.go or %s_<topic>.go", s.dir, s.name, p, segment, segment)
			}
		}
	}
	if found < 100 {
		t.Errorf("found only %d operations: the walk is broken", found)
	}
}

// operationPaths are the paths of the operations in a file: the member Path of an Op,
// or what is assigned to it. Of a path that is put together, the beginning counts.
func operationPaths(f *ast.File) []string {
	var out []string
	add := func(x ast.Expr) {
		for {
			sum, ok := x.(*ast.BinaryExpr)
			if !ok {
				break
			}
			x = sum.X
		}
		if lit, ok := x.(*ast.BasicLit); ok && lit.Kind == token.STRING {
			if p, err := strconv.Unquote(lit.Value); err == nil && strings.HasPrefix(p, "/") {
				out = append(out, p)
			}
		}
	}
	ast.Inspect(f, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.CompositeLit:
			sel, ok := n.Type.(*ast.SelectorExpr)
			if !ok || sel.Sel.Name != "Op" {
				return true
			}
			for _, e := range n.Elts {
				if kv, ok := e.(*ast.KeyValueExpr); ok {
					if key, ok := kv.Key.(*ast.Ident); ok && key.Name == "Path" {
						add(kv.Value)
					}
				}
			}
		case *ast.AssignStmt:
			for i, left := range n.Lhs {
				if sel, ok := left.(*ast.SelectorExpr); ok && sel.Sel.Name == "Path" && len(n.Rhs) == len(n.Lhs) {
					add(n.Rhs[i])
				}
			}
		}
		return true
	})
	return out
}

// firstSegment is the first segment of a path, as a file is named for it.
func firstSegment(p string) string {
	segment, _, _ := strings.Cut(strings.TrimPrefix(p, "/"), "/")
	return strings.ReplaceAll(strings.TrimSuffix(strings.TrimPrefix(segment, "."), ".json"), "-", "_")
}
