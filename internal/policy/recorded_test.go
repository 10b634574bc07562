package policy

import (
	"fmt"
	"strings"
	"testing"

	"github.com/gatehouse-dev/gatehouse/internal/fault"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

// caseText is the short form of test cases: name, input, expectation and source.
func caseText(cases []TestCase) string {
	var out []string
	for _, c := range cases {
		out = append(out, fmt.Sprintf("%s %v %t %s", c.Name, c.Input["x"], c.Expected, c.Source))
	}
	return strings.Join(out, "; ")
}

// TestMergeCases: who may not see recorded cases cannot change them, also if names occur twice, and
// each case stays behind the one that it followed.
func TestMergeCases(t *testing.T) {
	auditor := scope.Scope{Permissions: scope.Permissions{All: true}}
	author := scope.Scope{}
	in := func(x any) map[string]any { return map[string]any{"x": x} }
	a := TestCase{Name: "a", Input: in(1.0), Expected: true}
	r1 := TestCase{Name: "r", Input: in(2.0), Expected: true, Source: FromDecision}
	r2 := TestCase{Name: "r", Input: in(3.0), Source: FromDecision}
	both := TestCase{Name: "both", Input: in(4.0), Source: FromDecision}
	mine := TestCase{Name: "both", Input: in(5.0), Expected: true}
	old := []TestCase{a, r1, r2, both, mine}
	hidden := func(name string, expected bool) TestCase {
		return TestCase{Name: name, Expected: expected, InputHidden: true}
	}
	const all = "a 1 true ; r 2 true decision; r 3 false decision; both 4 false decision; both 5 true "
	edited := mine
	edited.Expected = false
	for what, c := range map[string]struct {
		sc   scope.Scope
		sent []TestCase
		keep bool
		want string // the cases, or the pointer of the refusal
	}{
		"as shown":                        {author, []TestCase{a, hidden("r", true), hidden("r", false), hidden("both", false), mine}, false, all},
		"nothing":                         {author, nil, false, "r 2 true decision; r 3 false decision; both 4 false decision"},
		"one of two with a name":          {author, []TestCase{a, hidden("r", true)}, false, "a 1 true ; r 2 true decision; r 3 false decision; both 4 false decision"},
		"one of two, changed":             {author, []TestCase{a, hidden("r", true), hidden("r", true)}, false, "/test_cases/2"},
		"three of two":                    {author, []TestCase{hidden("r", true), hidden("r", false), hidden("r", false)}, false, "/test_cases/2"},
		"the other case with the name":    {author, []TestCase{edited}, false, "r 2 true decision; r 3 false decision; both 4 false decision; both 5 false "},
		"known data":                      {author, []TestCase{{Name: "r", Input: in(2.0), Expected: true, Data: &TestData{}}}, false, "/test_cases/0"},
		"an invented source":              {author, []TestCase{{Name: "new", Input: in(9.0), Source: FromDecision}}, false, "/test_cases/0/source"},
		"an auditor's invented source":    {auditor, []TestCase{{Name: "new", Input: in(9.0), Source: FromDecision}}, false, "/test_cases/0/source"},
		"an auditor's edit":               {auditor, []TestCase{{Name: "r", Input: in(9.0), Source: FromDecision}}, false, "r 9 false decision"},
		"an auditor's new name":           {auditor, []TestCase{{Name: "new", Input: in(2.0)}}, false, "new 2 false decision"},
		"an auditor keeps":                {auditor, []TestCase{a}, true, "a 1 true ; r 2 true decision; r 3 false decision; both 4 false decision"},
		"an auditor keeps what is edited": {auditor, []TestCase{a, {Name: "r", Input: in(9.0)}}, true, "a 1 true ; r 9 false ; r 3 false decision; both 4 false decision"},
		"an auditor removes":              {auditor, nil, false, ""},
	} {
		got, err := mergeCases(c.sc, old, c.sent, c.keep)
		if strings.HasPrefix(c.want, "/") {
			wantFault(t, err, fault.Invalid, c.want)
			continue
		}
		if text := caseText(got); err != nil || text != c.want {
			t.Errorf("%s: %s, %v, want %s", what, text, err, c.want)
		}
	}
	many := make([]TestCase, MaxCases)
	if _, err := mergeCases(author, old, many, false); !fault.Is(err, fault.Invalid) {
		t.Errorf("more cases than a control may have: %v, want a refusal", err)
	}
	if text := caseText(old); text != all {
		t.Errorf("mergeCases changed its input to %s", text)
	}
}
