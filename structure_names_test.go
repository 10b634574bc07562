package gatehouse

import (
	"path"
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
