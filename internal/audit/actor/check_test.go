package actor_test

import (
	"strings"
	"testing"

	"github.com/gatehouse-dev/gatehouse/internal/audit/actor"
	"github.com/gatehouse-dev/gatehouse/internal/errtest"
	"github.com/gatehouse-dev/gatehouse/internal/rego/value"
)

func TestCheck(t *testing.T) {
	chain := func(n int) string {
		return strings.Repeat(`{"sub":"a","act":`, n-1) + `{"sub":"a"}` + strings.Repeat("}", n-1)
	}
	for text, ok := range map[string]bool{
		`null`: true, `{"sub":"a"}`: true, `{"sub":"a","act":null,"iss":"x"}`: true, chain(actor.Max): true,
		chain(actor.Max + 1): false, `{}`: false, `[]`: false, `"a"`: false, `1`: false, `{"sub":""}`: false, `{"sub":1}`: false, `{"sub":"a","act":{}}`: false,
	} {
		v, err := value.Decode([]byte(text), value.Limits{})
		errtest.Must(t, err)
		if problem := actor.Check(v); (problem == "") != ok {
			t.Errorf("%s: %q", text, problem)
		}
	}
	if problem := actor.Check(value.Value{}); problem != "" {
		t.Errorf("no actor: %q", problem)
	}
}
