//go:build unix

package counterfile

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// mapFile maps a file of the right size into memory. The kernel writes it to the disk, even
// if the process is killed.
func mapFile(name string) (memory []byte, unmap func() error, err error) {
	f, err := os.OpenFile(name, os.O_RDWR, 0)
	if err != nil {
		return nil, nil, err
	}
	defer f.Close()
	memory, err = unix.Mmap(int(f.Fd()), 0, slots*slotSize, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, nil, fmt.Errorf("map it: %w", err)
	}
	return memory, func() error { return unix.Munmap(memory) }, nil
}
