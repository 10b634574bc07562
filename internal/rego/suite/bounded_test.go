package suite

import (
	"testing"

	"github.com/gatehouse-dev/gatehouse/internal/rego/lang"
)

// Each bound is of a built-in that OPA has and controls may call.
func TestBounds(t *testing.T) {
	for name := range bounds() {
		if lang.Refusal(name) != "" {
			t.Errorf("%s is bounded, but not offered", name)
		}
		if _, ok := boundedBuiltins()[boundedPrefix+name]; !ok {
			t.Errorf("%s is bounded, but OPA has none of that name", name)
		}
	}
}
