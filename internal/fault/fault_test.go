package fault

import (
	"errors"
	"testing"
)

// TestJoin: Join reports all offences in one fault, and an error of another kind takes precedence.
func TestJoin(t *testing.T) {
	a, b, denied := Invalidf("/a", "is wrong"), Invalidf("/b", "is wrong too"), New(Forbidden, "permission_denied", "no")
	if err := Join(nil, nil); err != nil {
		t.Errorf("Join of nothing = %v, want nil", err)
	}
	err := Join(nil, a, nil, b)
	f, ok := errors.AsType[*Error](err)
	if !ok || len(f.Details) != 2 || f.Details[0].Pointer != "/a" || f.Details[1].Pointer != "/b" || f.Kind != Invalid {
		t.Errorf("Join of two = %v, %+v, want both details", err, f)
	}
	if len(a.Details) != 1 || a.Message != "is wrong" {
		t.Errorf("Join changes the first fault to %+v", a)
	}
	if err := Join(a, denied, b); err != error(denied) {
		t.Errorf("Join with a refusal = %v, want the refusal", err)
	}
}

func TestCheckVersion(t *testing.T) {
	for _, tc := range []struct {
		current, expected int64
		holds             bool
	}{
		{3, 3, true}, {3, 2, false}, {3, 0, true}, {0, 0, true}, {0, 1, false}, {0, Unchanged, true}, {1, Unchanged, false},
	} {
		if err := CheckVersion("object", tc.current, tc.expected); (err == nil) != tc.holds {
			t.Errorf("CheckVersion of %d with %d = %v, want it to hold: %v", tc.current, tc.expected, err, tc.holds)
		}
	}
}
