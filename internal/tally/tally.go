// Package tally counts in files that are mapped into memory: an addition is one
// atomic instruction and no system call, and what was counted outlives a process
// that is killed. Counts are not synced to the disk, so a power cut can lose the
// newest of them.
//
// A file holds a fixed number of slots. A slot is a count, the key that it counts
// and a source, a random number that no two uses of a slot share. Whoever copies
// counts into a store keeps them by key and source: the same count can then be
// copied again, and replaces itself.
package tally

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"unsafe"
)

// The layout of a slot: the count, the source, the length of the key, a checksum of
// all that but the count, and the key.
const (
	slotSize = 256
	slots    = 1024
	sourceAt = 8
	lengthAt = 16
	sumAt    = 20
	keyAt    = 24
)

// MaxKey is the longest key in bytes.
const MaxKey = slotSize - keyAt

// errKey is the error of a key that no slot can hold.
var errKey = fmt.Errorf("tally: a key has 1 to %d bytes", MaxKey)

// Counter counts one key.
type Counter struct {
	// Key is what is counted, Source which use of a slot counts it.
	Key    string
	Source int64

	n    *atomic.Int64
	slot []byte // nil where the count is in memory alone
}

// Add adds to the count.
func (c *Counter) Add(n int64) { c.n.Add(n) }

// Count is the count.
func (c *Counter) Count() int64 { return c.n.Load() }

// Book is a directory of counters. It is safe for concurrent use. One process at a
// time may have it open.
type Book struct {
	dir string

	mu    sync.Mutex
	files []mapping
	free  [][]byte
	left  []*Counter
}

// mapping is one file in memory.
type mapping struct {
	memory []byte
	close  func() error
}

// Open opens the counters of a directory, and makes it where it is missing.
func Open(dir string) (*Book, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("tally: %w", err)
	}
	names, err := filepath.Glob(filepath.Join(dir, "*.tally"))
	if err != nil {
		return nil, fmt.Errorf("tally: %w", err)
	}
	b := &Book{dir: dir}
	for _, name := range names {
		m, err := openFile(name)
		if err != nil {
			return nil, errors.Join(err, b.Close())
		}
		b.files = append(b.files, m)
		for slot := range slices.Chunk(m.memory, slotSize) {
			if c, ok := read(slot); ok {
				b.left = append(b.left, c)
			} else {
				b.free = append(b.free, slot)
			}
		}
	}
	return b, nil
}

// Left are the counters that an earlier process left. Each call but the first gives
// none.
func (b *Book) Left() []*Counter {
	b.mu.Lock()
	defer b.mu.Unlock()
	left := b.left
	b.left = nil
	return left
}

// New starts a counter at 0. With an error the counter works all the same, in
// memory alone.
func (b *Book) New(key string) (*Counter, error) {
	c := &Counter{Key: key, Source: rand.Int64(), n: new(atomic.Int64)}
	if len(key) == 0 || len(key) > MaxKey {
		return c, errKey
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.free) == 0 {
		if err := b.grow(); err != nil {
			return c, err
		}
	}
	c.slot, b.free = b.free[len(b.free)-1], b.free[:len(b.free)-1]
	c.n = countOf(c.slot)
	c.n.Store(0)
	binary.LittleEndian.PutUint64(c.slot[sourceAt:], uint64(c.Source))
	copy(c.slot[keyAt:], key)
	binary.LittleEndian.PutUint32(c.slot[lengthAt:], uint32(len(key)))
	binary.LittleEndian.PutUint32(c.slot[sumAt:], sum(c.slot)) // last: it makes the slot a counter
	return c, nil
}

// Free gives a counter's slot to others. Nobody may use the counter afterwards.
func (b *Book) Free(c *Counter) {
	if c.slot == nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	binary.LittleEndian.PutUint32(c.slot[lengthAt:], 0)
	b.free = append(b.free, c.slot)
	c.slot, c.n = nil, new(atomic.Int64)
}

// Close unmaps the files. Nobody may use a counter afterwards.
func (b *Book) Close() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	var err error
	for _, m := range b.files {
		err = errors.Join(err, m.close())
	}
	b.files, b.free, b.left = nil, nil, nil
	return err
}

// grow adds a file. Its room is written out before it is mapped: a page that the
// disk has no room for would end the process.
func (b *Book) grow() error {
	f, err := os.CreateTemp(b.dir, "new-*")
	if err != nil {
		return fmt.Errorf("tally: %w", err)
	}
	defer os.Remove(f.Name())
	_, err = f.Write(make([]byte, slots*slotSize))
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("tally: %w", err)
	}
	name := filepath.Join(b.dir, fmt.Sprintf("%016x.tally", rand.Uint64()))
	if err := os.Rename(f.Name(), name); err != nil {
		return fmt.Errorf("tally: %w", err)
	}
	m, err := openFile(name)
	if err != nil {
		return err
	}
	b.files = append(b.files, m)
	b.free = slices.AppendSeq(b.free, slices.Chunk(m.memory, slotSize))
	return nil
}

// read makes a counter of a slot, unless the slot is free or torn.
func read(slot []byte) (*Counter, bool) {
	n := binary.LittleEndian.Uint32(slot[lengthAt:])
	if n == 0 || n > MaxKey || binary.LittleEndian.Uint32(slot[sumAt:]) != sum(slot) {
		return nil, false
	}
	return &Counter{
		Key: string(slot[keyAt : keyAt+n]), Source: int64(binary.LittleEndian.Uint64(slot[sourceAt:])), n: countOf(slot), slot: slot,
	}, true
}

// sum is the checksum of a slot's source, length and key.
func sum(slot []byte) uint32 {
	n := min(binary.LittleEndian.Uint32(slot[lengthAt:]), MaxKey)
	return crc32.Update(crc32.ChecksumIEEE(slot[sourceAt:sumAt]), crc32.IEEETable, slot[keyAt:keyAt+n])
}

// countOf is the count at the start of a slot. Slots begin at multiples of 256 bytes
// of a page, so that it can be added to atomically.
func countOf(slot []byte) *atomic.Int64 {
	return (*atomic.Int64)(unsafe.Pointer(unsafe.SliceData(slot)))
}
