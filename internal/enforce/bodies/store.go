// Package bodies holds what requests and answers carry: read from clients that must
// keep a pace, and kept in memory or on disk within bounds for all requests together.
package bodies

import (
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
)

// The limits on bodies that are decided on, in bytes. Answers name the one that was
// met, and docs/ai.md states them.
const (
	// MaxBody is the largest body that is read for a control: limit "body".
	MaxBody = 32 << 20
	// MaxText is what may be left of a body without its media: limit "text".
	MaxText = 4 << 20
	// MaxMasked is the largest body, of a request or an answer, that masks by path
	// rewrite: limit "path_mask".
	MaxMasked = 16 << 20
	// MaxFromGateway is the largest body that a gateway may show us: limit "gateway".
	// It comes in one message.
	MaxFromGateway = 1 << 20
	// MaxInMemory is what one request keeps of its body in memory while it waits for
	// somebody. A larger body waits on disk.
	MaxInMemory = 1 << 20
	// MaxHeld bounds the bodies that are in memory together, and maxBodiesOnDisk
	// those on disk: limit "all_bodies".
	MaxHeld         = 256 << 20
	maxBodiesOnDisk = 1 << 30
	// MaxShadow bounds the bodies that wait for a decision in shadow mode.
	MaxShadow = 64 << 20
	// MaxDepth is how deep a body may be nested.
	MaxDepth = 64
)

// ErrTooMany says that there is no room for a body beside the others.
var ErrTooMany = errors.New("too many request bodies are waiting")

// Store counts what all requests keep of their bodies.
type Store struct {
	memory, disk atomic.Int64
	files        atomic.Uint64
	dir          string
	block        cipher.Block
}

// Open makes a place for bodies in dir. What a process that was killed left
// there cannot be read by anybody, and goes.
func Open(dir string, entropy io.Reader) (*Store, error) {
	left, err := filepath.Glob(filepath.Join(dir, "body-*"))
	if err != nil {
		return nil, fmt.Errorf("bouncer: %w", err)
	}
	for _, name := range left {
		_ = os.Remove(name)
	}
	var key [32]byte
	if _, err := io.ReadFull(entropy, key[:]); err != nil {
		return nil, fmt.Errorf("bouncer: %w", err)
	}
	block, err := aes.NewCipher(key[:])
	if err != nil {
		return nil, fmt.Errorf("bouncer: %w", err)
	}
	return &Store{dir: dir, block: block}, nil
}

// Room begins to hold room for a body in memory.
func (all *Store) Room() *Hold { return &Hold{of: all} }

// InMemory is how many bytes bodies take in memory now.
func (all *Store) InMemory() int64 { return all.memory.Load() }

// OnDisk is how many bytes bodies take on disk now.
func (all *Store) OnDisk() int64 { return all.disk.Load() }

// Hold is room for a body in memory, given back once.
type Hold struct {
	of *Store
	n  atomic.Int64
}

// Grow takes room for n more bytes; false: there is none.
func (h *Hold) Grow(n int) bool {
	if h.of.memory.Add(int64(n)) > MaxHeld {
		h.of.memory.Add(-int64(n))
		return false
	}
	h.n.Add(int64(n))
	return true
}

// Release gives the room back.
func (h *Hold) Release() {
	if h != nil {
		h.of.memory.Add(-h.n.Swap(0))
	}
}

// File is a body in a file without a name, encrypted with a key that only this
// process has: prompts are nobody's to find.
type File struct {
	all  *Store
	size int64
	iv   [aes.BlockSize]byte
	to   cipher.StreamWriter

	mu   sync.Mutex // the transport may still read when the request is over
	file *os.File
}

// Create begins a body on disk.
func (all *Store) Create() (*File, error) {
	file, err := os.CreateTemp(all.dir, "body-*")
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrTooMany, err)
	}
	_ = os.Remove(file.Name())
	kept := &File{all: all, file: file}
	binary.BigEndian.PutUint64(kept.iv[:], all.files.Add(1))
	kept.to = cipher.StreamWriter{S: cipher.NewCTR(all.block, kept.iv[:]), W: file}
	return kept, nil
}

// Write implements io.Writer.
func (d *File) Write(p []byte) (int, error) {
	if d.all.disk.Add(int64(len(p))) > maxBodiesOnDisk {
		d.all.disk.Add(-int64(len(p)))
		return 0, ErrTooMany
	}
	d.size += int64(len(p))
	if n, err := d.to.Write(p); err != nil {
		return n, fmt.Errorf("%w: %w", ErrTooMany, err)
	}
	return len(p), nil
}

// Keep writes to disk what was read of a body and the rest of it. tooLong: it is
// larger than most bytes.
func (all *Store) Keep(begun []byte, rest io.Reader, most int64) (kept *File, tooLong bool, err error) {
	if kept, err = all.Create(); err != nil {
		return nil, false, err
	}
	n, err := io.Copy(kept, io.LimitReader(io.MultiReader(bytes.NewReader(begun), rest), most+1))
	if err != nil || n > most {
		kept.Close()
		return nil, err == nil, err
	}
	return kept, false, nil
}

// Length is the body's length in bytes.
func (d *File) Length() int64 { return d.size }

// Open reads the body from its beginning.
func (d *File) Open() io.ReadCloser {
	return &fromDisk{of: d, stream: cipher.NewCTR(d.all.block, d.iv[:])}
}

// Close gives the room back. It may be called more than once.
func (d *File) Close() {
	if d == nil {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.file != nil {
		_ = d.file.Close()
		d.file = nil
		d.all.disk.Add(-d.size)
	}
}

type fromDisk struct {
	of     *File
	stream cipher.Stream
	at     int64
}

// Read implements io.Reader.
func (f *fromDisk) Read(p []byte) (int, error) {
	f.of.mu.Lock()
	defer f.of.mu.Unlock()
	if f.of.file == nil {
		return 0, os.ErrClosed
	}
	if f.at == f.of.size {
		return 0, io.EOF
	}
	n, err := f.of.file.ReadAt(p[:min(int64(len(p)), f.of.size-f.at)], f.at)
	f.stream.XORKeyStream(p[:n], p[:n])
	f.at += int64(n)
	if errors.Is(err, io.EOF) && f.at < f.of.size {
		err = io.ErrUnexpectedEOF
	}
	if f.at == f.of.size {
		err = io.EOF
	}
	return n, err
}

// Close implements io.Closer. The body stays until the request is over.
func (f *fromDisk) Close() error { return nil }
