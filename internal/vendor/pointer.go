package vendor

import (
	"errors"
	"strconv"

	"github.com/gatehouse-dev/gatehouse/internal/fault"
)

// keyPointer returns the JSON pointer of the i-th API key in a request.
func keyPointer(i int) string { return "/api_keys/" + strconv.Itoa(i) }

// below returns the offences with pointer before their own pointers.
func below(pointer string, offences []fault.Detail) []fault.Detail {
	out := make([]fault.Detail, len(offences))
	for i, d := range offences {
		out[i] = d
		out[i].Pointer = pointer + d.Pointer
	}
	return out
}

// at returns a fault with pointer before the pointers of its details. Other errors do not change.
func at(pointer string, err error) error {
	f, ok := errors.AsType[*fault.Error](err)
	if !ok || len(f.Details) == 0 {
		return err
	}
	moved := *f
	moved.Details = below(pointer, f.Details)
	return &moved
}
