package dbtest

import (
	"fmt"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/fault"
)

// Patience is how long Patiently goes on.
const Patience = 30 * time.Second

// Patiently runs fn as a client would that is told to come again: until it
// answers anything but fault.Unavailable, which a store says that is asked too
// much, having done nothing. After Patience the answer is an error that says so.
func Patiently(fn func() error) error {
	return patiently(Patience, fn)
}

func patiently(limit time.Duration, fn func() error) error {
	began := time.Now()
	for n := 1; ; n++ {
		err := fn()
		if !fault.Is(err, fault.Unavailable) {
			return err
		}
		if time.Since(began) > limit {
			return fmt.Errorf("told %d times in %s that the store is unavailable, the last time: %w", n, limit, err)
		}
	}
}
