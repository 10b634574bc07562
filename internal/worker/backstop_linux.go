package worker

import "golang.org/x/sys/unix"

// backstop limits the private writable memory of this process in the kernel, for an
// allocation that the watcher would notice too late.
func backstop(memory int64) {
	limit := uint64(memory) * 2
	// If the kernel refuses, the watcher still enforces the limit.
	_ = unix.Setrlimit(unix.RLIMIT_DATA, &unix.Rlimit{Cur: limit, Max: limit})
}
