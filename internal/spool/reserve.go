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

// reserveSteps is in how many parts a reserve is given back, so that whoever
// filled the disk does not get all of it at once.
const reserveSteps = 8

// Reserve is room on a disk that is held back by a file of that size. When the
// disk is full it is given back in parts to those who must go on writing, and
// taken again when there is room. A nil Reserve holds nothing. It is safe for
// concurrent use.
type Reserve struct {
	path  string
	size  int64
	step  int64
	inUse atomic.Bool // some of it was given back
	low   atomic.Bool // less than its size is free beside it

	mu   sync.Mutex
	file *os.File
	held int64
	free int64 // on the disk, when it was looked at last
}

// ReserveStats says how a Reserve is, in bytes.
type ReserveStats struct {
	Size int64 // what should be held back
	Held int64 // what is
	Free int64 // what the disk has beside it
	// Low: less than Size is free beside what is held; InUse: some was given back.
	Low, InUse bool
}

// HoldBack reserves room in a folder. Where the disk has too little, less is held,
// and Low says so. With size 0 or less there is no reserve.
func HoldBack(dir string, size int64) (*Reserve, error) {
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

// InUse reports whether some of the reserve was given back: what can wait should.
func (r *Reserve) InUse() bool { return r != nil && r.inUse.Load() }

// Release gives a part back to the disk; false: there is none left.
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

// Check looks at the disk: it gives a part back before the disk is full, so that
// others than the log find room too, and holds all of it again where there is
// room for it twice. It is called every now and then, while one looks.
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
			_ = r.file.Truncate(r.held) // a part may have come about
		}
	}
	r.low.Store(r.free < r.size)
	return r.stats()
}

// Stats says how the reserve was when Check looked last.
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

// Close stops looking after the reserve; its file stays.
func (r *Reserve) Close() error {
	if r == nil {
		return nil
	}
	return r.file.Close()
}

// freeBytes is what an ordinary user may still write to the disk of a folder;
// where that cannot be found out there is said to be enough.
func freeBytes(dir string) int64 {
	var st syscall.Statfs_t
	if err := syscall.Statfs(dir, &st); err != nil {
		return 1 << 62
	}
	return int64(st.Bavail) * int64(st.Bsize) //nolint:unconvert // the types differ by system
}
