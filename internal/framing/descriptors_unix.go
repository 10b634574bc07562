//go:build unix

package framing

import "syscall"

// Descriptors returns how many file descriptors the process may have; 0: that is not known.
func Descriptors() int {
	var r syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &r); err != nil {
		return 0
	}
	return int(min(uint64(r.Cur), 1<<24)) //nolint:unconvert // its type differs between systems
}
