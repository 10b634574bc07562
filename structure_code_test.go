package gatehouse

import (
	"go/ast"
	"go/token"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var sqlText = regexp.MustCompile(`(?s)^\s*(SELECT\s.+\sFROM\s|INSERT\s+INTO\s|UPDATE\s+\S+\s+SET\s|DELETE\s+FROM\s)`)

// checkSQL: SQL stands in store*.go, and in the packages of the store itself.
func checkSQL(t *testing.T, files []source) {
	for _, s := range files {
		if s.test || strings.HasPrefix(s.name, "store") || s.dir == "internal/db" || s.dir == "internal/db/dbtest" || s.dir == "internal/db/tablecopy" {
			continue
		}
		ast.Inspect(s.file, func(n ast.Node) bool {
			lit, ok := n.(*ast.BasicLit)
			if ok && lit.Kind == token.STRING && sqlText.MatchString(strings.Trim(lit.Value, "`\"")) {
				t.Errorf("%s: SQL text outside a store*.go file", s.fset.Position(lit.Pos()))
			}
			return true
		})
	}
}

// ownClock is the lowest layer whose packages may read the clock.
const ownClock = "parts of the front ends"

// checkClock keeps the clock out of the packages that decide and store: the time
// comes in as a field, so that tests and replays can set it.
func checkClock(t *testing.T, files []source) {
	floor := floors(t)
	lowest := slices.IndexFunc(layers, func(l layer) bool { return l.name == ownClock })
	if lowest < 0 {
		t.Fatalf("no layer is named %q", ownClock)
	}
	for _, s := range files {
		if s.test || floor[s.dir] >= lowest || !strings.HasPrefix(s.dir, "internal/") {
			continue
		}
		measured := slices.Contains([]string{"internal/worker", "internal/cache", "internal/cache/cachetest", "internal/db", "internal/db/dbtest", "internal/outbound", "internal/spool", "internal/timetest"}, s.dir)
		ast.Inspect(s.file, func(n ast.Node) bool {
			sel, ok := n.(*ast.SelectorExpr)
			if !ok {
				return true
			}
			pkg, ok := sel.X.(*ast.Ident)
			if ok && pkg.Name == "time" && sel.Sel.Name == "Now" && !measured {
				t.Errorf("%s: time.Now is a field, set in package app", s.fset.Position(n.Pos()))
			}
			return true
		})
	}
}

// checkCalls: nothing runs at import, and nothing ends the program below main.
func checkCalls(t *testing.T, files []source) {
	for _, s := range files {
		if s.test {
			continue
		}
		for _, d := range s.file.Decls {
			if fn, ok := d.(*ast.FuncDecl); ok && fn.Name.Name == "init" && fn.Recv == nil {
				t.Errorf("%s/%s: init runs at import, where nobody sees it", s.dir, s.name)
			}
		}
		ast.Inspect(s.file, func(n ast.Node) bool {
			sel, ok := n.(*ast.SelectorExpr)
			if !ok {
				return true
			}
			if pkg, ok := sel.X.(*ast.Ident); ok && pkg.Name == "log" && strings.HasPrefix(sel.Sel.Name, "Fatal") {
				t.Errorf("%s: log.Fatal below main", s.fset.Position(n.Pos()))
			}
			return true
		})
	}
}
