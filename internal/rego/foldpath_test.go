package rego

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"golang.org/x/text/unicode/norm"

	"github.com/gatehouse-dev/gatehouse/internal/rego/target"
)

// No text can be replaced in two ways: then the order of the table would decide.
func TestFoldTablesHaveNoPrefixes(t *testing.T) {
	tables := folding()
	for name, table := range map[string]map[string]string{"unreserved": tables.unreserved, "ascii": tables.ascii, "wide": tables.wide} {
		before := ""
		for _, key := range slices.Sorted(maps.Keys(table)) { // a prefix is before all that begin with it
			if before != "" && strings.HasPrefix(key, before) {
				t.Errorf("%s: %q is a prefix of %q", name, before, key)
			} else {
				before = key
			}
		}
	}
}

// A letter with an accent folds like the letter followed by the accent.
func TestFoldJoinsAccents(t *testing.T) {
	for r := rune(0xc0); r <= 0x1eff; r++ {
		if r > lastCased && r < 0x1e00 || norm.NFC.String(string(r)) != string(r) || strings.ToLower(string(r)) != string(r) {
			continue
		}
		one, several := foldPath("/"+escaped(string(r))).folded, foldPath("/"+strings.ToLower(escaped(norm.NFD.String(string(r))))).folded
		if one != several {
			t.Errorf("%c (U+%04X) folds to %s, in parts to %s", r, r, one, several)
		}
	}
}

// FuzzFold holds folding to its invariants: a folded path folds to itself, keeps its
// segments, and finds the same resource.
func FuzzFold(f *testing.F) {
	for _, s := range []string{"/orders;x/1", "/%256frders/1", "/A/%20/..;/b", "/\uff0f/%252e%252e", "/a%25252fb%3b"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, raw string) {
		canon, err := target.NormalisePath(raw)
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
