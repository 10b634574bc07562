//go:build !linux

package spool

import "os"

// allocate takes n bytes of the disk for a file, from off on.
func allocate(f *os.File, off, n int64) error { return fill(f, off, n) }
