package spool

import (
	"errors"
	"os"
	"syscall"
)

// allocate allocates n bytes on disk for a file, from off on.
func allocate(f *os.File, off, n int64) error {
	err := syscall.Fallocate(int(f.Fd()), 0, off, n)
	if errors.Is(err, syscall.EOPNOTSUPP) || errors.Is(err, syscall.ENOSYS) {
		return fill(f, off, n)
	}
	return err
}
