package actor

import (
	"strconv"

	"github.com/gatehouse-dev/gatehouse/internal/rego/value"
)

// Max is how many actors a chain of delegation may name.
const Max = 8

// Check returns what is wrong with input.user.act, or "" if it is valid. The member names
// who acts for the user, in the form of the claim "act" (RFC 8693, section 4.1): an object whose
// sub is the current actor, and whose own act is the previous actor.
func Check(act value.Value) string {
	for range Max {
		switch {
		case !act.Defined() || act.IsNull():
			return ""
		case act.Kind() != value.ObjectKind:
			return "must be an object"
		}
		if sub, ok := act.Get("sub").Str(); !ok || sub == "" {
			return "must have a sub, which is a string that is not empty"
		}
		act = act.Get("act")
	}
	if act.Defined() && !act.IsNull() {
		return "must name at most " + strconv.Itoa(Max) + " actors"
	}
	return ""
}
