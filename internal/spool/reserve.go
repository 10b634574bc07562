package spool

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
)

// reserveSteps is the number of parts in which a reserve is released, so that another program that
// fills the disk does not use all of it at once.
const reserveSteps = 8

// Reserve keeps disk space free with a file of that size. When the disk is full, Release frees a
// part of it for writes that must succeed. Check reserves the space again when there is room. A nil
// Reserve reserves nothing. It is safe for concurrent use.
type Reserve struct {
	path  string
	size  int64
	step  int64
	inUse atomic.Bool // a part was released
	low   atomic.Bool // less than its size is free besides it

	mu   sync.Mutex
	file *os.File
	held int64
	free int64 // on the disk, as last measured
}

// ReserveStats is the state of a Reserve, in bytes.
type ReserveStats struct {
	Size int64 // the configured size
	Held int64 // the space reserved now
	Free int64 // free on the disk besides the reserve
	// Low means that less than Size is free besides the reserve. InUse means that a part of the
	// reserve was released.
	Low, InUse bool
}

// ReserveSpace reserves size bytes in a folder. If the disk has too little space, it reserves less, and
// ReserveStats.Low is set. If size is 0 or less, it returns nil.
func ReserveSpace(dir string, size int64) (*Reserve, error) {
	if size <= 0 {
		return nil, nil //nolint:nilnil // a nil Reserve holds nothing
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("reserve: %w", err)
	}
	r := &Reserve{path: filepath.Join(dir, "reserve"), size: size, step: max(size/reserveSteps, 1)}
	f, err := os.OpenFile(r.path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("reserve: %w", err)
	}
	r.file = f
	if info, err := f.Stat(); err == nil {
		r.held = min(info.Size(), size) // of an earlier process
	}
	if err := f.Truncate(r.held); err != nil {
		return nil, errors.Join(fmt.Errorf("reserve: %w", err), f.Close())
	}
	r.Check()
	return r, nil
}

// InUse reports whether a part of the reserve was released: work that can wait should wait.
func (r *Reserve) InUse() bool { return r != nil && r.inUse.Load() }

// Release frees a part of the reserve. It returns false if nothing is left.
func (r *Reserve) Release() bool {
	if r == nil {
		return false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.release()
}

func (r *Reserve) release() bool {
	if r.held == 0 {
		return false
	}
	next := max(r.held-r.step, 0)
	if err := r.file.Truncate(next); err != nil {
		return false
	}
	r.held = next
	r.inUse.Store(true)
	return true
}

// Check measures the free space. It releases a part before the disk is full, so that other writers
// than the log have space too, and reserves all of it again when there is room for twice its size.
// Call it at intervals.
func (r *Reserve) Check() ReserveStats {
	if r == nil {
		return ReserveStats{}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.free = freeBytes(filepath.Dir(r.path))
	switch {
	case r.free < r.step/2:
		if r.release() {
			r.free = freeBytes(filepath.Dir(r.path))
		}
	case r.held < r.size && r.free-(r.size-r.held) >= r.size:
		if allocate(r.file, r.held, r.size-r.held) == nil {
			r.held = r.size
			r.free = freeBytes(filepath.Dir(r.path))
			r.inUse.Store(false)
		} else {
			_ = r.file.Truncate(r.held) // a failed allocation may have made the file larger
		}
	}
	r.low.Store(r.free < r.size)
	return r.stats()
}

// Stats returns the state of the reserve at the last Check.
func (r *Reserve) Stats() ReserveStats {
	if r == nil {
		return ReserveStats{}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.stats()
}

func (r *Reserve) stats() ReserveStats {
	return ReserveStats{Size: r.size, Held: r.held, Free: r.free, Low: r.low.Load() || r.held < r.size, InUse: r.inUse.Load()}
}

// Close stops managing the reserve; its file stays.
func (r *Reserve) Close() error {
	if r == nil {
		return nil
	}
	return r.file.Close()
}

// freeBytes returns how many bytes an ordinary user may still write to the disk of a folder. If that
// is unknown, it returns a large number.
func freeBytes(dir string) int64 {
	var st syscall.Statfs_t
	if err := syscall.Statfs(dir, &st); err != nil {
		return 1 << 62
	}
	return int64(st.Bavail) * int64(st.Bsize) //nolint:unconvert // the types differ by system
}
