//go:build !unix

package tally

import (
	"fmt"
	"os"
)

// openFile reads a file into memory and writes it when it is closed: here a process
// that is killed loses what it counted.
func openFile(name string) (mapping, error) {
	memory, err := os.ReadFile(name)
	if err != nil {
		return mapping{}, fmt.Errorf("tally: %w", err)
	}
	if len(memory) != slots*slotSize {
		return mapping{}, fmt.Errorf("tally: %s has %d bytes instead of %d", name, len(memory), slots*slotSize)
	}
	return mapping{memory, func() error { return os.WriteFile(name, memory, 0o600) }}, nil
}
