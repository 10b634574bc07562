package worker

import (
	"time"

	"golang.org/x/sys/unix"
)

// processorTime returns the processor time of all threads of a process. It returns false if the
// process has ended.
func processorTime(pid int) (time.Duration, bool) {
	// The id of another process's clock, computed as in clock_getcpuclockid of the C library: the
	// inverted process id, and 2 for CPUCLOCK_SCHED.
	clock := int32(^pid<<3 | 2)
	var spent unix.Timespec
	if err := unix.ClockGettime(clock, &spent); err != nil {
		return 0, false
	}
	return time.Duration(spent.Nano()), true
}
