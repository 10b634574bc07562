package vendor

import (
	"errors"
	"strconv"

	"github.com/gatehouse-dev/gatehouse/internal/fault"
)

// keyPointer is the JSON pointer of an API key in a request.
func keyPointer(i int) string { return "/api_keys/" + strconv.Itoa(i) }

// below moves offences under the member that they are in.
func below(pointer string, offences []fault.Detail) []fault.Detail {
	out := make([]fault.Detail, len(offences))
	for i, d := range offences {
		out[i] = d
		out[i].Pointer = pointer + d.Pointer
	}
	return out
}

// at moves the offences of a fault under the member that they are in.
func at(pointer string, err error) error {
	var f *fault.Error
	if !errors.As(err, &f) || len(f.Details) == 0 {
		return err
	}
	moved := *f
	moved.Details = below(pointer, f.Details)
	return &moved
}
