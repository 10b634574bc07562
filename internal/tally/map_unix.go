//go:build unix

package tally

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// openFile maps a file: what is written there is the kernel's to keep.
func openFile(name string) (mapping, error) {
	f, err := os.OpenFile(name, os.O_RDWR, 0)
	if err != nil {
		return mapping{}, fmt.Errorf("tally: %w", err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return mapping{}, fmt.Errorf("tally: %w", err)
	}
	if info.Size() != slots*slotSize {
		return mapping{}, fmt.Errorf("tally: %s has %d bytes instead of %d", name, info.Size(), slots*slotSize)
	}
	memory, err := unix.Mmap(int(f.Fd()), 0, slots*slotSize, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return mapping{}, fmt.Errorf("tally: map %s: %w", name, err)
	}
	return mapping{memory, func() error { return unix.Munmap(memory) }}, nil
}
