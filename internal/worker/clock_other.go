//go:build !linux

package worker

import "time"

// processorTime is not implemented on this system. Limits count wall time.
func processorTime(int) (time.Duration, bool) { return 0, false }
