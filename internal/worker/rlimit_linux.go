package worker

import "golang.org/x/sys/unix"

// limitAddressSpace makes the kernel limit the private writable memory of this process, in case one large
// allocation is faster than watchMemory.
func limitAddressSpace(memory int64) {
	limit := uint64(memory) * 2
	// If the kernel refuses, the watcher still enforces the limit.
	_ = unix.Setrlimit(unix.RLIMIT_DATA, &unix.Rlimit{Cur: limit, Max: limit})
}
