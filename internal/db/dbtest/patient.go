package dbtest

import (
	"fmt"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/fault"
)

// Patience is how long Patiently continues.
const Patience = 30 * time.Second

// Patiently runs fn like a client that retries: until the result is not fault.Unavailable, which a
// busy store returns without having done anything. After Patience, it returns an error.
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
