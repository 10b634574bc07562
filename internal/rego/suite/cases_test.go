package suite

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/rego"
	"github.com/gatehouse-dev/gatehouse/internal/rego/value/valuetest"
)

func compiled(t testing.TB, m rego.Meta, source string) *rego.Control {
	t.Helper()
	c, issues := rego.Compile(m, source)
	if issues != nil {
		t.Fatalf("%v\n%s", issues, source)
	}
	return c
}

func TestRunTests(t *testing.T) {
	c := compiled(t, rego.Meta{ID: 1, Name: "ages"}, "package a\nallow if input.age >= 18\ndeny if to_number(input.n) > 3\nmask contains \"x\" if input.m\nallow if data.pip.a.ok")
	got := RunTests(context.Background(), c, []TestCase{
		{Name: "adult", Input: valuetest.Decode(t, `{"age":20}`), Expected: true},
		{Name: "child", Input: valuetest.Decode(t, `{"age":2}`), Expected: true},
		{Name: "masked", Input: valuetest.Decode(t, `{"m":true}`), Expected: true},
		{Name: "broken", Input: valuetest.Decode(t, `{"n":"x"}`), Expected: false},
		{Name: "broken but wanted", Input: valuetest.Decode(t, `{"n":"x"}`), Expected: true},
	}, rego.Object(valuetest.Decode(t, `{"pip":{"a":{"ok":false}}}`)), rego.Limits{}, time.Now)
	want := []string{"adult true ALLOW", "child false NO_MATCH", "masked true MASK", "broken true DENY", "broken but wanted false DENY"}
	for i, r := range got {
		if s := fmt.Sprintf("%s %v %s", r.Name, r.Passed, r.Effect); s != want[i] {
			t.Errorf("%s, want %s (%+v)", s, want[i], r)
		}
	}
	if got[3].Error == "" || got[4].Missed() != "expected true, got false" || got[0].EvaluationTimeMS <= 0 {
		t.Errorf("%+v", got)
	}
}

// TestUnjudgedCases: a case that met a limit, or was not run, passes whatever it
// expects no more than one that failed.
func TestUnjudgedCases(t *testing.T) {
	c := compiled(t, rego.Meta{ID: 1, Name: "loop"}, "package a\ndeny if {\n\tsome i in numbers.range(1, 100000)\n\ti > 200000\n}")
	gone, cancel := context.WithCancel(context.Background())
	cancel()
	for name, ctx := range map[string]context.Context{"met a limit": context.Background(), "was not run": gone} {
		got := RunTests(ctx, c, []TestCase{{Name: name, Input: valuetest.Decode(t, `{}`)}}, nil, rego.Limits{Steps: 100}, nil)[0]
		if got.Passed || got.Actual || got.Error == "" || got.Missed() != got.Error {
			t.Errorf("%s: %+v", name, got)
		}
	}
}
