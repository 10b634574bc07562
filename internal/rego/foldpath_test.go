package rego

import (
	"strings"
	"testing"
)

// What a client wrote is what is forwarded: no escape but of unreserved characters is
// ever removed.
func TestNormalizeKeepsReserved(t *testing.T) {
	for raw, want := range map[string]string{
		"/a%3bb%2bc%2cd%3de%40f%3ag%24h%26": "/a%3Bb%2Bc%2Cd%3De%40f%3Ag%24h%26",
		"/a;b+c,d=e@f:g$h&":                 "/a;b+c,d=e@f:g$h&",
		"/%41%7e%2d%5f%2e":                  "/A~-_.",
		"/%21%27%28%29%2a":                  "/%21%27%28%29%2A",
		"/a b/%20/\u00e9/%c3%a9":            "/a%20b/%20/%C3%A9/%C3%A9",
		"/%2541":                            "/%2541",
		"/x/%2e%2e/y":                       "/y",
	} {
		got, err := NormalizePath(raw)
		again, _ := NormalizePath(got)
		if err != nil || got != want || again != got {
			t.Errorf("%q: %q %v, then %q; want %q", raw, got, err, again, want)
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
		canon, err := NormalizePath(raw)
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
