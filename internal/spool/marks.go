package spool

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"os"
	"path/filepath"
	"sync"
)

const (
	// markBytes is the size of the place of one mark, in bytes: its length, its checksum and its
	// data. A place lies within one page and one sector, so that a write of it is atomic.
	markBytes = 256
	// MaxMark is the size of the largest mark, in bytes.
	MaxMark = markBytes - 8
)

// Marks is a small file of marks that are overwritten in place. The file gets its full size when it
// is made, so a mark can be written even when the disk is full, except on a file system that copies
// on write. Like a record of a Log, a mark survives the end of the process. A nil Marks stores
// nothing. Marks is safe for concurrent use.
type Marks struct {
	mu    sync.Mutex
	file  *os.File
	taken []bool
}

// OpenMarks opens the file, or makes it with this many places. Its folder must exist. It returns the
// marks of earlier processes by their places.
func OpenMarks(path string, places int) (*Marks, map[int][]byte, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, nil, fmt.Errorf("marks: %w", err)
	}
	m := &Marks{file: f, taken: make([]bool, places)}
	left, err := m.load()
	if err != nil {
		return nil, nil, errors.Join(fmt.Errorf("marks: %s: %w", filepath.Base(path), err), f.Close())
	}
	return m, left, nil
}

// load reads the marks, and writes the places that the file does not have yet.
func (m *Marks) load() (map[int][]byte, error) {
	info, err := m.file.Stat()
	if err != nil {
		return nil, err
	}
	size := int64(len(m.taken)) * markBytes
	if have := info.Size() - info.Size()%markBytes; have < size {
		if _, err := m.file.WriteAt(make([]byte, size-have), have); err != nil {
			return nil, errors.Join(err, m.file.Truncate(have))
		}
		if err := m.file.Sync(); err != nil {
			return nil, err
		}
	}
	all := make([]byte, size)
	if _, err := m.file.ReadAt(all, 0); err != nil {
		return nil, err
	}
	left := map[int][]byte{}
	for i := range m.taken {
		place := all[i*markBytes : (i+1)*markBytes]
		if data, state := readMark(place); state == markHeld {
			m.taken[i], left[i] = true, data
		}
	}
	return left, nil
}

// The states of a place.
const (
	markNone = iota
	markHeld
	markBroken // damaged, or being overwritten
)

// readMark reads a place.
func readMark(place []byte) (data []byte, state int) {
	if len(place) < markBytes {
		return nil, markNone // the end of a file that is being made
	}
	n := binary.LittleEndian.Uint32(place)
	switch {
	case n == 0:
		return nil, markNone
	case n > MaxMark || crc32.ChecksumIEEE(place[8:8+n]) != binary.LittleEndian.Uint32(place[4:]):
		return nil, markBroken
	}
	return place[8 : 8+n], markHeld
}

// Take returns a free place and reserves it. It returns false if there is none.
func (m *Marks) Take() (place int, ok bool) {
	if m == nil {
		return 0, false
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for i, taken := range m.taken {
		if !taken {
			m.taken[i] = true
			return i, true
		}
	}
	return 0, false
}

// Set overwrites the mark of a place that Take returned. data must have 1 to MaxMark bytes.
func (m *Marks) Set(place int, data []byte) error {
	if len(data) == 0 || len(data) > MaxMark {
		return fmt.Errorf("marks: a mark must have 1 to %d bytes, not %d", MaxMark, len(data))
	}
	var buf [markBytes]byte
	binary.LittleEndian.PutUint32(buf[:], uint32(len(data))) //nolint:gosec // bounded above
	binary.LittleEndian.PutUint32(buf[4:], crc32.ChecksumIEEE(data))
	copy(buf[8:], data)
	_, err := m.file.WriteAt(buf[:], int64(place)*markBytes)
	return err
}

// Clear removes a mark and frees its place. If the disk fails, the next process gets the mark.
func (m *Marks) Clear(place int) error {
	_, err := m.file.WriteAt(make([]byte, markBytes), int64(place)*markBytes)
	m.mu.Lock()
	m.taken[place] = false
	m.mu.Unlock()
	return err
}

// Close closes the file. The marks stay in it.
func (m *Marks) Close() error {
	if m == nil {
		return nil
	}
	return m.file.Close()
}
