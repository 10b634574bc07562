//go:build !unix

package tally

import "os"

// mapFile reads a file into memory and writes it when it is closed: here a process
// that is killed loses what it counted.
func mapFile(name string) (memory []byte, unmap func() error, err error) {
	memory, err = os.ReadFile(name)
	if err != nil {
		return nil, nil, err
	}
	return memory, func() error { return os.WriteFile(name, memory, 0o600) }, nil
}
