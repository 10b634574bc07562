// Package gatehouse holds the tests that keep the repository in shape; the program
// is in cmd/gatehouse.
package gatehouse

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/gatehouse-dev/gatehouse/internal/errtest"
)

const module = "github.com/gatehouse-dev/gatehouse/"

// TestStructure reads every Go file of the repository and checks it against the
// rules of ARCHITECTURE.md and CONTRIBUTING.md.
func TestStructure(t *testing.T) {
	files := sources(t)
	if len(files) < 10 {
		t.Fatalf("found only %d Go files: the walk is broken", len(files))
	}
	t.Run("imports go down", func(t *testing.T) { checkImports(t, files) })
	t.Run("reserved imports", func(t *testing.T) { checkReserved(t, files) })
	t.Run("sizes", func(t *testing.T) { checkSizes(t, files) })
	t.Run("shape", func(t *testing.T) { checkShape(t, files) })
	t.Run("package comments", func(t *testing.T) { checkPackageComments(t, files) })
	t.Run("names", func(t *testing.T) { checkNames(t, files) })
	t.Run("comments name their function", func(t *testing.T) { checkDocNames(t, files) })
	t.Run("areas of the API", func(t *testing.T) { checkAreas(t, files) })
	t.Run("SQL in store files", func(t *testing.T) { checkSQL(t, files) })
	t.Run("clock and chance come in", func(t *testing.T) { checkClock(t, files) })
	t.Run("init and fatal", func(t *testing.T) { checkCalls(t, files) })
	t.Run("returns", func(t *testing.T) { checkReturns(t, files) })
	t.Run("sealed values", func(t *testing.T) { checkSealed(t, files) })
}

// source is one Go file of the repository.
type source struct {
	dir, name string
	file      *ast.File
	fset      *token.FileSet
	lines     int
	test      bool
}

// sources parses every Go file, without those of tools and of testdata.
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
	errtest.Must(t, err)
	return out
}

func (s source) imports() []string {
	var out []string
	for _, im := range s.file.Imports {
		out = append(out, strings.Trim(im.Path.Value, `"`))
	}
	return out
}
