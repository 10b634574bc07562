package worker

import "golang.org/x/sys/unix"

// backstop bounds the private writable memory that the kernel gives this
// process, for an allocation that outruns the watcher between two looks.
func backstop(memory int64) {
	limit := uint64(memory) * 2
	// A refusal leaves the watcher, which is the limit that is tested.
	_ = unix.Setrlimit(unix.RLIMIT_DATA, &unix.Rlimit{Cur: limit, Max: limit})
}
