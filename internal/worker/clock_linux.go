package worker

import (
	"time"

	"golang.org/x/sys/unix"
)

// processorTime is how long the threads of a process have run so far, all together.
// It says false when the process is gone.
func processorTime(pid int) (time.Duration, bool) {
	// The clock of another process, as the C library's clock_getcpuclockid builds its
	// number: the inverted process id, and 2 for what the scheduler counted.
	clock := int32(^pid<<3 | 2)
	var spent unix.Timespec
	if err := unix.ClockGettime(clock, &spent); err != nil {
		return 0, false
	}
	return time.Duration(spent.Nano()), true
}
