// Package bodies holds the bodies of requests and answers. It reads them from clients,
// which must send at a minimum rate, and keeps them in memory or on disk. Limits apply to
// all requests together.
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

// The limits on bodies that are decided on, in bytes. Refusals name the limit, and
// docs/ai.md lists them.
const (
	// MaxBody is the largest body that is read for a control: limit "body".
	MaxBody = 32 << 20
	// MaxText is the largest body without its media: limit "text".
	MaxText = 4 << 20
	// MaxMasked is the largest body that masks rewrite by path: limit "path_mask".
	MaxMasked = 16 << 20
	// MaxFromGateway is the largest body that a gateway may send: limit "gateway". It
	// arrives in one message.
	MaxFromGateway = 1 << 20
	// MaxInMemory is how much of its body one request keeps in memory. A larger body is
	// kept on disk.
	MaxInMemory = 1 << 20
	// MaxHeld limits all bodies in memory together, and maxBodiesOnDisk those on disk:
	// limit "all_bodies".
	MaxHeld         = 256 << 20
	maxBodiesOnDisk = 1 << 30
	// MaxShadow limits the bodies that wait for a shadow decision.
	MaxShadow = 64 << 20
	// MaxDepth is how deep a body may be nested.
	MaxDepth = 64
)

// ErrTooMany means that the other bodies leave no room for this one.
var ErrTooMany = errors.New("too many request bodies are waiting")

// Store keeps bodies, and counts the memory and disk space that they take together.
type Store struct {
	memory, disk atomic.Int64
	files        atomic.Uint64
	dir          string
	block        cipher.Block
}

// Open prepares dir for bodies. It deletes files that a killed process left there: their
// key is lost.
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

// Room returns an empty reservation of memory for a body.
func (all *Store) Room() *Hold { return &Hold{of: all} }

// InMemory returns how many bytes bodies take in memory.
func (all *Store) InMemory() int64 { return all.memory.Load() }

// OnDisk returns how many bytes bodies take on disk.
func (all *Store) OnDisk() int64 { return all.disk.Load() }

// Hold is memory that is reserved for a body.
type Hold struct {
	of *Store
	n  atomic.Int64
}

// Beside returns another empty reservation in the same store. It returns nil for nil.
func (h *Hold) Beside() *Hold {
	if h == nil {
		return nil
	}
	return h.of.Room()
}

// Grow reserves n more bytes. It returns false if there is no room.
func (h *Hold) Grow(n int) bool {
	if h.of.memory.Add(int64(n)) > MaxHeld {
		h.of.memory.Add(-int64(n))
		return false
	}
	h.n.Add(int64(n))
	return true
}

// Release releases the memory. It may be called more than once, and on nil.
func (h *Hold) Release() {
	if h != nil {
		h.of.memory.Add(-h.n.Swap(0))
	}
}

// File is a body in a file without a name. It is encrypted with a key that only this
// process has, so that nobody can read prompts on the disk.
type File struct {
	all  *Store
	size int64
	iv   [aes.BlockSize]byte
	to   cipher.StreamWriter

	mu   sync.Mutex // the transport may still read after the request is over
	file *os.File
}

// Create starts a body on disk.
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

// Keep writes the part of a body that was read, and its rest, to disk. tooLong is true if the body
// is longer than limit bytes.
func (all *Store) Keep(begun []byte, rest io.Reader, limit int64) (kept *File, tooLong bool, err error) {
	if kept, err = all.Create(); err != nil {
		return nil, false, err
	}
	n, err := io.Copy(kept, io.LimitReader(io.MultiReader(bytes.NewReader(begun), rest), limit+1))
	if err != nil || n > limit {
		kept.Close()
		return nil, err == nil, err
	}
	return kept, false, nil
}

// Length returns the body's length in bytes.
func (d *File) Length() int64 { return d.size }

// Open returns a reader of the body, from its beginning.
func (d *File) Open() io.ReadCloser {
	return &fromDisk{of: d, stream: cipher.NewCTR(d.all.block, d.iv[:])}
}

// Close deletes the body and releases its disk space. It may be called more than once, and
// on nil.
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

// Close implements io.Closer. The body itself stays until the request is over.
func (f *fromDisk) Close() error { return nil }
