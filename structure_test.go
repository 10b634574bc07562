// Package gatehouse holds the test that keeps the house in shape; the program
// is in cmd/gatehouse.
package gatehouse

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/gatehouse-dev/gatehouse/"

// levels is the house: a package imports only from levels below its own, and
// the pairs of siblings by name. ARCHITECTURE.md says what each is for.
var levels = map[string]int{
	"internal/fault": 0, "internal/scope": 0, "internal/patch": 0, "internal/freeport": 0,

	"internal/rego/value": 1, "internal/rego/native": 1, "internal/rego/oracle": 1, "internal/redact": 1, "internal/rego": 1, "internal/rerun": 1, "internal/worker": 1,
	"internal/db": 1, "internal/db/dbtest": 1, "internal/cache": 1, "internal/cache/cachetest": 1,
	"internal/blob": 1, "internal/job": 1, "internal/secret": 1, "internal/outbound": 1, "internal/spool": 1, "internal/fold": 1,
	"internal/classify": 1, "internal/template": 1, "internal/gitpack": 1, "internal/framing": 1,

	"internal/audit": 2, "internal/event": 2, "internal/hint": 2, "internal/controlfile": 2,
	"internal/tenant": 3, "internal/user": 3, "internal/resource": 3, "internal/anomaly": 3,
	"internal/auth": 4, "internal/policy": 4, "internal/decision": 4, "internal/bouncer": 4,
	"internal/bridge": 5, "internal/ide": 5, "internal/policycode": 5, "internal/simulator": 5,
	"internal/replay":            5,
	"internal/lane":              5,
	"internal/dashboard":         5,
	"internal/authzen":           5,
	"internal/replaycli":         7,
	"internal/enforce/plaintext": 4, "internal/enforce/spelling": 4, "internal/enforce/llm": 5, "internal/enforce/mcp": 5, "internal/enforce/pii": 5, "internal/enforce/mask": 5, "internal/enforce/extauthz": 5,
	"internal/api": 6, "internal/enforce": 6, "internal/webui": 6, "internal/lsp": 6, "internal/client": 6,
	"internal/policycli": 7,
	"internal/app":       7, "internal/app/apptest": 7,
	"cmd/gatehouse": 8,
	"bench":         8,
}

// siblings are the imports within a level that are allowed.
var siblings = map[string][]string{
	"internal/scope":           {"internal/fault"},
	"internal/rego/native":     {"internal/rego/value"},
	"internal/rego/oracle":     {"internal/rego/value"},
	"internal/redact":          {"internal/rego/value"},
	"internal/rego":            {"internal/rego/value", "internal/rego/native", "internal/redact"},
	"internal/rerun":           {"internal/rego", "internal/rego/value"},
	"internal/worker":          {"internal/rego", "internal/rego/value", "internal/rerun", "internal/gitpack"},
	"internal/db/dbtest":       {"internal/db"},
	"internal/cache/cachetest": {"internal/cache"},
	"internal/job":             {"internal/db"},
	"internal/enforce/mask":    {"internal/enforce/pii"},
	"internal/audit":           {"internal/event"},
	"internal/ide":             {"internal/policycode"},
	"internal/api":             {"internal/webui"},
	"internal/app/apptest":     {"internal/app"},
}

// enforceMay is all that the data plane may import: a bouncer needs no store.
var enforceMay = []string{
	"internal/scope", "internal/fault", "internal/outbound", "internal/spool", "internal/fold", "internal/framing", "internal/secret",
	"internal/rego", "internal/rego/value", "internal/redact",
	"internal/enforce/plaintext", "internal/enforce/spelling", "internal/enforce/llm", "internal/enforce/mcp", "internal/enforce/pii", "internal/enforce/mask", "internal/enforce/extauthz",
}

type source struct {
	dir, name string
	file      *ast.File
	fset      *token.FileSet
	lines     int
	test      bool
}

// TestStructure reads every Go file of the repository and holds it to the
// rules of ARCHITECTURE.md.
func TestStructure(t *testing.T) {
	files := sources(t)
	if len(files) < 10 {
		t.Fatalf("found only %d Go files: the walk is broken", len(files))
	}
	t.Run("imports go down", func(t *testing.T) { checkImports(t, files) })
	t.Run("reserved imports", func(t *testing.T) { checkReserved(t, files) })
	t.Run("sizes", func(t *testing.T) { checkSizes(t, files) })
	t.Run("package comments", func(t *testing.T) { checkPackageComments(t, files) })
	t.Run("names", func(t *testing.T) { checkNames(t, files) })
	t.Run("SQL in store files", func(t *testing.T) { checkSQL(t, files) })
	t.Run("clock and chance come in", func(t *testing.T) { checkClock(t, files) })
	t.Run("init and fatal", func(t *testing.T) { checkCalls(t, files) })
}

func sources(t *testing.T) []source {
	t.Helper()
	var out []source
	err := filepath.WalkDir(".", func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			if p != "." && (strings.HasPrefix(d.Name(), ".") || slices.Contains([]string{"tools", "bin", "testdata", "node_modules"}, d.Name())) {
				return filepath.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(p, ".go") {
			return nil
		}
		fset := token.NewFileSet()
		f, err := parser.ParseFile(fset, p, nil, parser.ParseComments)
		if err != nil {
			return err
		}
		out = append(out, source{
			dir: filepath.ToSlash(filepath.Dir(p)), name: filepath.Base(p), file: f, fset: fset,
			lines: fset.File(f.Pos()).LineCount(), test: strings.HasSuffix(p, "_test.go"),
		})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func (s source) imports() []string {
	var out []string
	for _, im := range s.file.Imports {
		out = append(out, strings.Trim(im.Path.Value, `"`))
	}
	return out
}

func checkImports(t *testing.T, files []source) {
	for _, s := range files {
		if s.test || s.dir == "." {
			continue
		}
		own, known := levels[s.dir]
		if !known {
			t.Errorf("%s is not in the table of levels", s.dir)
			continue
		}
		for _, im := range s.imports() {
			rel, ours := strings.CutPrefix(im, module)
			if !ours {
				continue
			}
			low, known := levels[rel]
			switch {
			case !known:
				t.Errorf("%s/%s imports %s, which is not in the table of levels", s.dir, s.name, rel)
			case strings.HasPrefix(s.dir, "internal/enforce") && !slices.Contains(enforceMay, rel):
				t.Errorf("%s/%s: the data plane may not import %s", s.dir, s.name, rel)
			case low >= own && !slices.Contains(siblings[s.dir], rel):
				t.Errorf("%s/%s (level %d) imports %s (level %d)", s.dir, s.name, own, rel, low)
			}
		}
	}
}

func checkReserved(t *testing.T, files []source) {
	only := map[string][]string{
		"net/http":                        {"internal/outbound", "internal/lane", "internal/api", "internal/enforce", "internal/webui", "internal/client", "internal/policycli", "internal/replaycli", "internal/app", "internal/app/apptest", "bench", "cmd/gatehouse"},
		"database/sql":                    {"internal/db", "internal/db/dbtest"},
		"github.com/jackc/pgx/v5":         {"internal/db", "internal/db/dbtest"},
		"github.com/jackc/pgx/v5/pgxpool": {"internal/db", "internal/db/dbtest"},
		"modernc.org/sqlite":              {"internal/db"},
		module + "internal/rego/oracle":   {}, // no decision comes from it
	}
	for _, s := range files {
		if s.test {
			continue
		}
		for _, im := range s.imports() {
			if where, reserved := only[im]; reserved && !slices.Contains(where, s.dir) {
				t.Errorf("%s/%s imports %s, which is for %v", s.dir, s.name, im, where)
			}
		}
	}
}

func checkSizes(t *testing.T, files []source) {
	for _, s := range files {
		if s.lines > 600 {
			t.Errorf("%s/%s has %d lines, over 600", s.dir, s.name, s.lines)
		}
		for _, d := range s.file.Decls {
			fn, ok := d.(*ast.FuncDecl)
			if !ok || s.test {
				continue
			}
			if n := s.fset.Position(fn.End()).Line - s.fset.Position(fn.Pos()).Line + 1; n > 80 {
				t.Errorf("%s/%s: %s has %d lines, over 80", s.dir, s.name, fn.Name.Name, n)
			}
		}
	}
}

func checkPackageComments(t *testing.T, files []source) {
	comments := map[string]int{}
	for _, s := range files {
		if s.test {
			continue
		}
		comments[s.dir] += 0
		if s.file.Doc != nil {
			comments[s.dir]++
		}
	}
	for dir, n := range comments {
		if n != 1 && dir != "." {
			t.Errorf("%s has %d package comments, want exactly one", dir, n)
		}
	}
}

func checkNames(t *testing.T, files []source) {
	never := []string{"util", "utils", "common", "helpers", "shared", "models", "types", "dto", "interfaces", "pkg"}
	for _, s := range files {
		if slices.Contains(never, path.Base(s.dir)) {
			t.Errorf("%s: a package of this name says nothing", s.dir)
		}
	}
}

var sqlText = regexp.MustCompile(`(?s)^\s*(SELECT\s.+\sFROM\s|INSERT\s+INTO\s|UPDATE\s+\S+\s+SET\s|DELETE\s+FROM\s)`)

func checkSQL(t *testing.T, files []source) {
	for _, s := range files {
		if s.test || strings.HasPrefix(s.name, "store") || s.dir == "internal/db" || s.dir == "internal/db/dbtest" {
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

// checkClock keeps the hour and chance out of the packages that decide and
// store: they come in as fields, so that tests and replays can set them.
func checkClock(t *testing.T, files []source) {
	for _, s := range files {
		if s.test || levels[s.dir] >= 6 || !strings.HasPrefix(s.dir, "internal/") {
			continue
		}
		measured := slices.Contains([]string{"internal/worker", "internal/cache", "internal/cache/cachetest", "internal/db", "internal/db/dbtest", "internal/outbound", "internal/spool"}, s.dir)
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

func checkCalls(t *testing.T, files []source) {
	for _, s := range files {
		if s.test {
			continue
		}
		for _, d := range s.file.Decls {
			if fn, ok := d.(*ast.FuncDecl); ok && fn.Name.Name == "init" && fn.Recv == nil {
				t.Errorf("%s/%s: init registers behind the reader's back", s.dir, s.name)
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
