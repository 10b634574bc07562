package assist

import (
	"errors"

	"github.com/gatehouse-dev/gatehouse/internal/rego/lang"
)

// ErrUnformatted is the error for a source that cannot be formatted because it does not parse.
var ErrUnformatted = errors.New("assist: the source does not parse")

// Format formats a source as `opa fmt` does, without changing its meaning. The error is
// ErrUnformatted if the source does not parse.
func Format(source string) (string, error) {
	out, ok := lang.Format(source)
	if !ok {
		return "", ErrUnformatted
	}
	return out, nil
}
