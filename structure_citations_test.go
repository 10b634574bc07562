package gatehouse

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/gatehouse-dev/gatehouse/internal/errtest"
)

// citation finds references to documents that are not in the repository, by the forms
// that they had. A comment says what the rule is, or names a page of docs.
var citation = regexp.MustCompile(`\b[Cc]ontract(\.md)?( sections?)? ?[0-9]|\b[Hh]ardening( case)? [A-Z]?[0-9]|\b[Ii]ssue #?[0-9]|\((spec|contract|hardening|peers)[,;) ]` +
	`|\b(spec|contract|hardening|peers|design|performance|libraries|frontend)\.md\b`)

// TestStructureCitations: comments and pages cite no document that a reader cannot open.
func TestStructureCitations(t *testing.T) {
	for _, bad := range []string{"(contract 4)", "contract section 3", "contract.md section 6", "is hardening A3.", "(hardening R3: 250 ms)", "spec.md GET /x", "issue 9", "(spec, \"X\")", "peers.md"} {
		if !citation.MatchString(bad) {
			t.Errorf("%q is not found", bad)
		}
	}
	for _, good := range []string{"RFC 9110, section 9.3.2", "the contract's version", "TestHardening", "an issue of 9 lines", "docs/errors.md", "the specification"} {
		if citation.MatchString(good) {
			t.Errorf("%q is found", good)
		}
	}
	err := filepath.WalkDir(".", func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			if p != "." && (strings.HasPrefix(d.Name(), ".") || slices.Contains([]string{"bin", "testdata", "node_modules"}, d.Name())) {
				return filepath.SkipDir
			}
			return nil
		}
		page, code := strings.HasSuffix(p, ".md"), strings.HasSuffix(p, ".go") && p != "structure_citations_test.go"
		if !page && !code {
			return nil
		}
		text, err := os.ReadFile(p)
		for i, line := range strings.Split(string(text), "\n") {
			if _, comment, found := strings.Cut(line, "//"); code && found {
				line = comment
			} else if code {
				continue
			}
			if at := citation.FindString(line); at != "" {
				t.Errorf("%s:%d cites %q, which is not in the repository", p, i+1, at)
			}
		}
		return err
	})
	errtest.Must(t, err)
}
