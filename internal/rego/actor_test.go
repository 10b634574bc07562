package rego_test

import (
	"strings"
	"testing"

	"github.com/gatehouse-dev/gatehouse/internal/rego"
	"github.com/gatehouse-dev/gatehouse/internal/rego/value"
)

func TestCheckActor(t *testing.T) {
	chain := func(n int) string {
		return strings.Repeat(`{"sub":"a","act":`, n-1) + `{"sub":"a"}` + strings.Repeat("}", n-1)
	}
	for text, ok := range map[string]bool{
		`null`: true, `{"sub":"a"}`: true, `{"sub":"a","act":null,"iss":"x"}`: true, chain(rego.MaxActors): true,
		chain(rego.MaxActors + 1): false, `{}`: false, `[]`: false, `"a"`: false, `1`: false, `{"sub":""}`: false, `{"sub":1}`: false, `{"sub":"a","act":{}}`: false,
	} {
		v, err := value.Decode([]byte(text), value.Limits{})
		if err != nil {
			t.Fatal(err)
		}
		if problem := rego.CheckActor(v); (problem == "") != ok {
			t.Errorf("%s: %q", text, problem)
		}
	}
	if problem := rego.CheckActor(value.Value{}); problem != "" {
		t.Errorf("no actor: %q", problem)
	}
}
