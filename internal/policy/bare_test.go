package policy

import (
	"errors"
	"slices"
	"testing"

	"github.com/gatehouse-dev/gatehouse/internal/fault"
	"github.com/gatehouse-dev/gatehouse/internal/policy/actions"
)

// TestCheckLibrary: the fault for a library with members that only a control can have names all of
// them, in the order of the members. A control may have them all.
func TestCheckLibrary(t *testing.T) {
	full := Policy{Kind: KindLibrary, Content: Content{ResourceID: new(int64(1)), BouncerID: new(int64(2)), TestCases: passing, Actions: []actions.Action{{}}}}
	some := full
	some.BouncerID, some.Actions = nil, nil
	for _, c := range []struct {
		policy Policy
		want   []string
	}{
		{full, []string{"/resource_id", "/bouncer_id", "/test_cases", "/actions"}},
		{some, []string{"/resource_id", "/test_cases"}},
		{Policy{Kind: KindLibrary}, nil},
		{Policy{Kind: KindControl, Content: full.Content}, nil},
	} {
		var got []string
		if f, ok := errors.AsType[*fault.Error](c.policy.checkLibrary()); ok {
			for _, d := range f.Details {
				got = append(got, d.Pointer)
			}
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("checkLibrary names %v, want %v", got, c.want)
		}
	}
}
