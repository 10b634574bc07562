//go:build !unix

package tally

import "os"

// mapFile reads a file into memory, and writes it back when it is unmapped. On these
// systems, a process that is killed loses its counts.
func mapFile(name string) (memory []byte, unmap func() error, err error) {
	memory, err = os.ReadFile(name)
	if err != nil {
		return nil, nil, err
	}
	return memory, func() error { return os.WriteFile(name, memory, 0o600) }, nil
}
