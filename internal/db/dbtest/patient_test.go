package dbtest

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/fault"
)

func TestPatiently(t *testing.T) {
	busy, other := fault.New(fault.Unavailable, "store_unavailable", "busy"), errors.New("other")
	for _, want := range []error{nil, other} {
		n := 0
		got := RetryUnavailable(func() error {
			if n++; n < 4 {
				return busy
			}
			return want
		})
		if !errors.Is(got, want) || n != 4 {
			t.Errorf("%v after %d calls, want %v after 4", got, n, want)
		}
	}
	err := retryUnavailable(time.Millisecond, func() error { return busy })
	if err == nil || !strings.Contains(err.Error(), "times in 1ms") || !errors.Is(err, busy) {
		t.Errorf("a store that stays busy: %v", err)
	}
}
