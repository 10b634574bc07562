//go:build !linux

package worker

import "time"

// processorTime has no portable form: limits are wall time here.
func processorTime(int) (time.Duration, bool) { return 0, false }
