package spool

import (
	"math/rand/v2"
	"os"
)

// fill allocates n bytes for a file by writing them, for file systems without an allocation call. It
// writes random bytes, which a file system cannot compress.
func fill(f *os.File, off, n int64) error {
	block := make([]byte, 256<<10)
	rng := rand.NewChaCha8([32]byte{})
	for end := off + n; off < end; {
		_, _ = rng.Read(block) // it never fails
		part := block[:min(int64(len(block)), end-off)]
		if _, err := f.WriteAt(part, off); err != nil {
			return err
		}
		off += int64(len(part))
	}
	return nil
}
