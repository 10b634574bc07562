package suite

import (
	"strings"
	"testing"

	"github.com/gatehouse-dev/gatehouse/internal/errtest"
	"github.com/gatehouse-dev/gatehouse/internal/rego"
	"github.com/gatehouse-dev/gatehouse/internal/rego/value"
)

func TestFailedAt(t *testing.T) {
	rep := runModules(t, "pay/pay.rego", testedControl, "pay/pay_test.rego", `package pay_test

import data.pay

test_ada if {
	pay.allow with input as {"user": {"id": "ada"}}
}

test_admin if {
	pay.allow with input as {"user": {"role": "admin"}, "items": [1]}
	some x in [1, 2]
	pay.allow with input as {"user": {"role": "admin"}, "items": []}
	x > 0
}

test_number if {
	pay.allow == false with input as {}
	count([1]) ==
		2
}

test_negated if not pay.allow with input as {"user": {"id": "ada"}}

test_every if {
	every n in [1, 2, 3] { n < 3 }
}
`)
	want := map[string][2]Expression{
		"test_admin":   {{"pay/pay_test.rego", 12, `pay.allow with input as {"user": {"role": "admin"}, "items": []}`}, {"pay/pay.rego", 9, "count(input.items) > 0"}},
		"test_number":  {{"pay/pay_test.rego", 18, "count([1]) == 2"}},
		"test_negated": {{"pay/pay_test.rego", 22, `not pay.allow with input as {"user": {"id": "ada"}}`}},
		"test_every":   {{"pay/pay_test.rego", 25, "n < 3"}},
	}
	if len(rep.Issues) > 0 || len(rep.Tests) != 5 {
		t.Fatalf("%+v", rep)
	}
	for _, r := range rep.Tests {
		w, fails := want[r.Name]
		if fails != (r.Status == TestFailed) {
			t.Errorf("%s: %s", r.Name, r.Status)
		}
		for i, got := range []*Expression{r.FailedAt, r.Because} {
			if (got == nil) != (w[i] == Expression{}) || got != nil && *got != w[i] {
				t.Errorf("%s: expression %d is %+v, want %+v", r.Name, i, got, w[i])
			}
		}
	}
}

func TestFailedCaseSaysWhy(t *testing.T) {
	c, issues := rego.Compile(rego.Meta{ID: 1, Name: "pay", Version: 1}, testedControl)
	if len(issues) > 0 {
		t.Fatal(issues)
	}
	in, err := value.Decode([]byte(`{"user": {"id": "eve", "role": "admin"}, "items": []}`), value.Limits{})
	errtest.Must(t, err)
	got := RunTests(t.Context(), c, []TestCase{{Name: "granted", Input: in, Expected: true}, {Name: "refused", Input: in}}, nil, rego.Limits{}, nil)
	if got[0].Passed || !strings.Contains(got[0].Why, "count(input.items) > 0") && !strings.Contains(got[0].Why, "input.user.id") {
		t.Errorf("the failed case does not say why: %+v", got[0])
	}
	if !got[1].Passed || got[1].Why != "" {
		t.Errorf("the passed case: %+v", got[1])
	}
}
