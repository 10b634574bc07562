package fault

import (
	"errors"
	"testing"
)

// TestJoin: all offences stand in one refusal, and what is more than one comes first.
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
