package hint

import (
	"errors"

	"github.com/gatehouse-dev/gatehouse/internal/rego/lang"
)

// ErrUnformatted says that a source cannot be laid out: it does not parse.
var ErrUnformatted = errors.New("hint: the source does not parse")

// Format lays a source out as `opa fmt` does. What it means stays the same, and
// a source that does not parse stays as it is: ErrUnformatted.
func Format(source string) (string, error) {
	out, ok := lang.Format(source)
	if !ok {
		return "", ErrUnformatted
	}
	return out, nil
}
