package native

import (
	"errors"
	"io/fs"
	"slices"
	"strings"
	"testing"

	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/test/cases"
	"github.com/open-policy-agent/opa/v1/test/cases/testdata"
	"github.com/open-policy-agent/opa/v1/util"

	"github.com/gatehouse-dev/gatehouse/internal/rego/value"
)

// OPA's own cases: every case with one module is compiled, and every rule of
// it, not only the one that the case asks for, must have topdown's value.
func TestConformance(t *testing.T) {
	var ran, rules, fell, unsupported, skipped int
	why := map[string]int{}
	var list listing
	for _, tc := range conformanceCases(t) {
		if len(tc.Modules) != 1 {
			skipped++
			list.add(tc.Note, "other", "not one module")
			continue
		}
		s, err := load(tc.Modules[0])
		if err != nil {
			skipped++
			list.add(tc.Note, "other", "does not compile on its own")
			continue
		}
		if s.err != nil {
			unsupported++
			why[reason(s.err)]++
			list.add(tc.Note, "topdown", reason(s.err))
			continue
		}
		list.add(tc.Note, "native", "")
		input, ok := caseInput(tc)
		if !ok {
			skipped++
			continue
		}
		data := value.Object()
		if tc.Data != nil {
			if data, err = value.FromAny(*tc.Data); err != nil {
				skipped++
				continue
			}
		}
		ran++
		t.Run(tc.Note, func(t *testing.T) {
			for _, name := range s.names {
				rules++
				if s.agree(t, name, input, data) {
					t.Logf("left to topdown: %s", name)
					fell++
				}
			}
		})
	}
	t.Logf("cases: %d ran (%d rules, of which %d were left to topdown while running), %d unsupported, %d not of our form", ran, rules, fell, unsupported, skipped)
	for _, w := range sortedByCount(why) {
		t.Logf("unsupported %4d  %s", why[w], w)
	}
	if ran < 500 {
		t.Errorf("only %d cases ran", ran)
	}
	list.check(t)
}

func conformanceCases(t *testing.T) []cases.TestCase {
	t.Helper()
	var all []cases.TestCase
	err := fs.WalkDir(testdata.V1, ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := fs.ReadFile(testdata.V1, path)
		if err != nil {
			return err
		}
		var set cases.Set
		if err := util.Unmarshal(data, &set); err != nil {
			return err
		}
		all = append(all, set.Cases...)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func caseInput(tc cases.TestCase) (value.Value, bool) {
	if tc.InputTerm != nil {
		term, err := ast.ParseTerm(*tc.InputTerm)
		if err != nil {
			return value.Value{}, false
		}
		v, err := value.FromAST(term.Value)
		return v, err == nil
	}
	if tc.Input == nil {
		return value.Value{}, true
	}
	v, err := value.FromAny(*tc.Input)
	return v, err == nil
}

func reason(err error) string {
	var u *ErrUnsupported
	if !errors.As(err, &u) {
		return err.Error()
	}
	w := strings.Fields(u.What)
	if w[0] == "built-in" {
		return strings.Join(w[:2], " ")
	}
	return strings.Join(w[:min(2, len(w))], " ")
}

func sortedByCount(m map[string]int) []string {
	var keys []string
	for k := range m {
		keys = append(keys, k)
	}
	slices.SortFunc(keys, func(a, b string) int { return m[b] - m[a] })
	return keys
}
