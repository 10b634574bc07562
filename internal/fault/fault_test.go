package fault

import (
	"errors"
	"testing"
)

// TestJoin: Join reports all offences in one fault, and an error of another kind takes precedence.
func TestJoin(t *testing.T) {
	a, b, denied := Invalidf("/a", "is wrong"), Invalidf("/b", "is wrong too"), New(Forbidden, "permission_denied", "no")
	if err := Join(nil, nil); err != nil {
		t.Errorf("of nothing: %v", err)
	}
	var f *Error
	if err := Join(nil, a, nil, b); !errors.As(err, &f) || len(f.Details) != 2 || f.Details[0].Pointer != "/a" || f.Details[1].Pointer != "/b" || f.Kind != Invalid {
		t.Errorf("of two: %v, %+v", err, f)
	}
	if len(a.Details) != 1 || a.Message != "is wrong" {
		t.Errorf("the first has become %+v", a)
	}
	if err := Join(a, denied, b); err != error(denied) {
		t.Errorf("of a refusal among them: %v", err)
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
			t.Errorf("version %d, expected %d: %v", tc.current, tc.expected, err)
		}
	}
}
