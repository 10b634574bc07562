// Package counterfile counts in files that are mapped into memory. An addition needs no system
// call, only an atomic instruction on each copy of the count, and the counts survive a
// process that is killed. They are not synced to the disk, so a power cut can lose the
// newest ones.
//
// A mapped file can lose pages while it is in use: because a program truncates it, or
// because a copy-on-write file system is full. Therefore each counter also has its count
// in memory. Once its file has failed, it counts only there.
//
// A file holds a fixed number of slots. A slot has a count, the key that it counts and a
// source, a random number that is new with each use of a slot. Callers that copy counts
// into a store should store them by key and source: then a count that is copied again
// replaces itself.
package counterfile

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"sync"
	"sync/atomic"
	"unsafe"
)

// The layout of a slot: the count, the source, the length of the key, a checksum of the
// source, the length and the key, and then the key.
const (
	slotSize = 256
	slots    = 1024
	sourceAt = 8
	lengthAt = 16
	sumAt    = 20
	keyAt    = 24
)

// MaxKey is the length of the longest key, in bytes.
const MaxKey = slotSize - keyAt

// errKey is the error for a key that does not fit into a slot.
var errKey = fmt.Errorf("counterfile: a key must have 1 to %d bytes", MaxKey)

// Counter counts one key.
type Counter struct {
	// Key is what is counted. Source identifies the use of a slot.
	Key    string
	Source int64

	n    atomic.Int64
	slot *slot // nil if the count is only in memory
}

// Add adds to the count.
func (c *Counter) Add(n int64) {
	c.n.Add(n)
	if c.slot != nil {
		c.slot.add(n)
	}
}

// Count returns the count.
func (c *Counter) Count() int64 { return c.n.Load() }

// slot is a place for a counter in a file.
type slot struct {
	bytes []byte
	file  *file
}

// file is one file in memory.
type file struct {
	name   string
	memory []byte
	unmap  func() error
	log    *slog.Logger
	failed atomic.Bool // it has lost a page: nothing is written to it any more
}

// slots returns the slots of the file.
func (f *file) slots() []*slot {
	out := make([]*slot, 0, slots)
	for part := range slices.Chunk(f.memory, slotSize) {
		out = append(out, &slot{part, f})
	}
	return out
}

// add adds to the slot's count.
func (s *slot) add(n int64) {
	if s.file.failed.Load() {
		return
	}
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer s.file.fileLost()
	countOf(s.bytes).Add(n)
}

// begin starts a counter at 0 in the slot. It returns false if the file fails.
func (s *slot) begin(c *Counter) bool {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer s.file.fileLost()
	countOf(s.bytes).Store(0)
	binary.LittleEndian.PutUint64(s.bytes[sourceAt:], uint64(c.Source))
	copy(s.bytes[keyAt:], c.Key)
	binary.LittleEndian.PutUint32(s.bytes[lengthAt:], uint32(len(c.Key)))
	binary.LittleEndian.PutUint32(s.bytes[sumAt:], sum(s.bytes)) // last: it makes the slot a counter
	return true
}

// end frees the slot, and erases its key.
func (s *slot) end() {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer s.file.fileLost()
	binary.LittleEndian.PutUint32(s.bytes[lengthAt:], 0)
	clear(s.bytes[keyAt : keyAt+MaxKey])
}

// fileLost recovers from an access to a lost page, and marks the file as failed. Call it with
// defer.
func (f *file) fileLost() {
	why := recover()
	if why == nil {
		return
	}
	if _, ok := why.(interface{ Addr() uintptr }); !ok { // not a page fault
		panic(why)
	}
	if f.failed.CompareAndSwap(false, true) {
		f.log.Error("a file of counters was damaged while it was in use: its calls are counted in memory only", "file", f.name, "error", why)
	}
}

// Dir is a directory of counters. It is safe for concurrent use. One process at a
// time may have it open.
type Dir struct {
	dir string
	log *slog.Logger

	mu    sync.Mutex
	files []*file
	free  []*slot
	left  []*Counter
}

// Open opens the counters in a directory, which it creates if it is missing. It repairs a
// file with a wrong size; the readable counters in it count. It logs a file that it cannot
// open, and does not change it.
func Open(dir string, log *slog.Logger) (*Dir, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("counterfile: %w", err)
	}
	names, err := filepath.Glob(filepath.Join(dir, "*.tally"))
	if err != nil {
		return nil, fmt.Errorf("counterfile: %w", err)
	}
	d := &Dir{dir: dir, log: log}
	for _, name := range names {
		content, err := d.repair(name)
		if err == nil {
			err = d.add(name, content)
		}
		if err != nil {
			log.Warn("a file of counters cannot be opened: its calls are not counted", "file", name, "error", err)
		}
	}
	return d, nil
}

// add maps a file with this content. Its counters go to left, its other slots to free.
func (d *Dir) add(name string, content []byte) error {
	f := &file{name: name, log: d.log}
	var err error
	if f.memory, f.unmap, err = mapFile(name); err != nil {
		return err
	}
	d.files = append(d.files, f)
	for i, s := range f.slots() {
		if c, ok := read(content[i*slotSize:][:slotSize]); ok {
			c.slot = s
			d.left = append(d.left, c)
		} else {
			d.free = append(d.free, s)
		}
	}
	return nil
}

// repair reads a file. If its size is wrong, it corrects it.
func (d *Dir) repair(name string) ([]byte, error) {
	content, err := os.ReadFile(name)
	if err != nil || len(content) == slots*slotSize {
		return content, err
	}
	d.log.Warn("a file of counters has a wrong size: only its readable part is counted", "file", name, "bytes", len(content))
	whole := make([]byte, slots*slotSize)
	copy(whole, content)
	return whole, d.write(name, whole)
}

// write writes a whole file, so that the disk has room for each page. A page without room
// would be lost when it is written to.
func (d *Dir) write(name string, content []byte) error {
	f, err := os.CreateTemp(d.dir, "new-*")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	_, err = f.Write(content)
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	return os.Rename(f.Name(), name)
}

// Leftover returns the counters that an earlier process left. Only the first call returns any.
func (d *Dir) Leftover() []*Counter {
	d.mu.Lock()
	defer d.mu.Unlock()
	left := d.left
	d.left = nil
	return left
}

// New starts a counter at 0. If it returns an error, the counter works, but only in memory.
func (d *Dir) New(key string) (*Counter, error) {
	c := &Counter{Key: key, Source: rand.Int64()}
	if len(key) == 0 || len(key) > MaxKey {
		return c, errKey
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	for {
		if len(d.free) == 0 {
			if err := d.grow(); err != nil {
				return c, err
			}
		}
		s := d.free[len(d.free)-1]
		d.free = d.free[:len(d.free)-1]
		if !s.file.failed.Load() && s.begin(c) {
			c.slot = s
			return c, nil
		}
	}
}

// Free frees a counter's slot. The counter must not be used afterwards.
func (d *Dir) Free(c *Counter) {
	if c.slot == nil {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	c.slot.end()
	d.free = append(d.free, c.slot)
	c.slot = nil
}

// Close unmaps the files. Counters must not be used afterwards.
func (d *Dir) Close() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	var err error
	for _, f := range d.files {
		err = errors.Join(err, f.unmap())
	}
	d.files, d.free, d.left = nil, nil, nil
	return err
}

// grow adds a file of free slots.
func (d *Dir) grow() error {
	name, empty := filepath.Join(d.dir, fmt.Sprintf("%016x.tally", rand.Uint64())), make([]byte, slots*slotSize)
	err := d.write(name, empty)
	if err == nil {
		err = d.add(name, empty)
	}
	if err != nil {
		return fmt.Errorf("counterfile: %w", err)
	}
	return nil
}

// read returns the counter in a slot. It returns false if the slot is free or not completely
// written.
func read(bytes []byte) (*Counter, bool) {
	n := binary.LittleEndian.Uint32(bytes[lengthAt:])
	if n == 0 || n > MaxKey || binary.LittleEndian.Uint32(bytes[sumAt:]) != sum(bytes) {
		return nil, false
	}
	c := &Counter{Key: string(bytes[keyAt : keyAt+n]), Source: int64(binary.LittleEndian.Uint64(bytes[sourceAt:]))}
	c.n.Store(max(0, int64(binary.NativeEndian.Uint64(bytes))))
	return c, true
}

// sum returns the checksum of a slot's source, length and key.
func sum(bytes []byte) uint32 {
	n := min(binary.LittleEndian.Uint32(bytes[lengthAt:]), MaxKey)
	return crc32.Update(crc32.ChecksumIEEE(bytes[sourceAt:sumAt]), crc32.IEEETable, bytes[keyAt:keyAt+n])
}

// countOf returns the count at the start of a slot. Slots begin at multiples of 256 bytes in
// a page, so that atomic additions are possible.
func countOf(bytes []byte) *atomic.Int64 {
	return (*atomic.Int64)(unsafe.Pointer(unsafe.SliceData(bytes)))
}
