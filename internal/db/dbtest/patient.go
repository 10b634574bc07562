package dbtest

import (
	"fmt"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/fault"
)

// Patience is how long RetryUnavailable retries.
const Patience = 30 * time.Second

// RetryUnavailable retries fn, like a client does, while it returns fault.Unavailable: a busy store returns
// that error before it has changed anything. After Patience, it returns an error.
func RetryUnavailable(fn func() error) error {
	return retryUnavailable(Patience, fn)
}

func retryUnavailable(limit time.Duration, fn func() error) error {
	began := time.Now()
	for n := 1; ; n++ {
		err := fn()
		if !fault.Is(err, fault.Unavailable) {
			return err
		}
		if time.Since(began) > limit {
			return fmt.Errorf("the store was unavailable %d times in %s: %w", n, limit, err)
		}
	}
}
