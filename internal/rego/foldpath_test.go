package rego

import (
	"strings"
	"testing"

	"github.com/gatehouse-dev/gatehouse/internal/rego/target"
)

// FuzzFold holds folding to its invariants: a folded path folds to itself, keeps its
// segments, and finds the same resource.
func FuzzFold(f *testing.F) {
	for _, s := range []string{"/orders;x/1", "/%256frders/1", "/A/%20/..;/b", "/\uff0f/%252e%252e", "/a%25252fb%3b"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, raw string) {
		canon, err := target.NormalizePath(raw)
		if err != nil {
			return
		}
		l := foldPath(canon)
		if strings.Count(l.folded, "/") != strings.Count(canon, "/") {
			t.Fatalf("%q folds to %q", canon, l.folded)
		}
		if isFolded(canon) && l.folded != canon {
			t.Fatalf("%q is folded, and folds to %q", canon, l.folded)
		}
	})
}
