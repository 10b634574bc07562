//go:build !linux

package spool

import "os"

// allocate allocates n bytes on disk for a file, from off on.
func allocate(f *os.File, off, n int64) error { return fill(f, off, n) }
