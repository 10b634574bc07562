package gatehouse

import (
	"go/ast"
	"path"
	"regexp"
	"slices"
	"testing"
)

// checkPackageComments: each package says once what it is.
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

// checkNames: a package's name says what is in it.
func checkNames(t *testing.T, files []source) {
	never := []string{"util", "utils", "common", "helpers", "shared", "models", "types", "dto", "interfaces", "pkg"}
	for _, s := range files {
		if slices.Contains(never, path.Base(s.dir)) {
			t.Errorf("%s: a package of this name says nothing", s.dir)
		}
	}
}

// oldName is a first word that can only be a name: it has a capital inside.
var oldName = regexp.MustCompile(`^[a-z]+[A-Z][A-Za-z0-9]*\b`)

// checkDocNames: a comment that begins with a function's name begins with that of
// its own function. A rename by tool leaves the old one behind.
func checkDocNames(t *testing.T, files []source) {
	for _, s := range files {
		for _, d := range s.file.Decls {
			fn, ok := d.(*ast.FuncDecl)
			if !ok || fn.Doc == nil {
				continue
			}
			if first := oldName.FindString(fn.Doc.Text()); first != "" && first != fn.Name.Name {
				t.Errorf("%s: the comment of %s is about %s", s.fset.Position(fn.Doc.Pos()), fn.Name.Name, first)
			}
		}
	}
}
