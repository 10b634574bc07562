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
	// MaxBodiesInMemory limits all bodies in memory together, and maxBodiesOnDisk those on disk:
	// limit "all_bodies".
	MaxBodiesInMemory = 256 << 20
	maxBodiesOnDisk   = 1 << 30
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

// NewReservation returns an empty reservation of memory for a body.
func (s *Store) NewReservation() *Reservation { return &Reservation{store: s} }

// InMemory returns how many bytes bodies take in memory.
func (s *Store) InMemory() int64 { return s.memory.Load() }

// OnDisk returns how many bytes bodies take on disk.
func (s *Store) OnDisk() int64 { return s.disk.Load() }

// Reservation is memory that is reserved for a body.
type Reservation struct {
	store *Store
	bytes atomic.Int64
}

// NewReservation returns another empty reservation in the same store. It returns nil for nil.
func (r *Reservation) NewReservation() *Reservation {
	if r == nil {
		return nil
	}
	return r.store.NewReservation()
}

// Grow reserves n more bytes. It returns false if there is no room.
func (r *Reservation) Grow(n int) bool {
	if r.store.memory.Add(int64(n)) > MaxBodiesInMemory {
		r.store.memory.Add(-int64(n))
		return false
	}
	r.bytes.Add(int64(n))
	return true
}

// Release releases the memory. It may be called more than once, and on nil.
func (r *Reservation) Release() {
	if r != nil {
		r.store.memory.Add(-r.bytes.Swap(0))
	}
}

// File is a body in a file without a name. It is encrypted with a key that only this
// process has, so that nobody can read prompts on the disk.
type File struct {
	store *Store
	size  int64
	iv    [aes.BlockSize]byte
	to    cipher.StreamWriter

	mu   sync.Mutex // the transport may still read after the request is over
	file *os.File
}

// Create starts a body on disk.
func (s *Store) Create() (*File, error) {
	file, err := os.CreateTemp(s.dir, "body-*")
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrTooMany, err)
	}
	_ = os.Remove(file.Name())
	f := &File{store: s, file: file}
	binary.BigEndian.PutUint64(f.iv[:], s.files.Add(1))
	f.to = cipher.StreamWriter{S: cipher.NewCTR(s.block, f.iv[:]), W: file}
	return f, nil
}

// Write implements io.Writer.
func (f *File) Write(p []byte) (int, error) {
	if f.store.disk.Add(int64(len(p))) > maxBodiesOnDisk {
		f.store.disk.Add(-int64(len(p)))
		return 0, ErrTooMany
	}
	f.size += int64(len(p))
	if n, err := f.to.Write(p); err != nil {
		return n, fmt.Errorf("%w: %w", ErrTooMany, err)
	}
	return len(p), nil
}

// Save writes the part of a body that was read, and its rest, to disk. tooLong is true if the body
// is longer than limit bytes.
func (s *Store) Save(prefix []byte, rest io.Reader, limit int64) (f *File, tooLong bool, err error) {
	if f, err = s.Create(); err != nil {
		return nil, false, err
	}
	n, err := io.Copy(f, io.LimitReader(io.MultiReader(bytes.NewReader(prefix), rest), limit+1))
	if err != nil || n > limit {
		f.Close()
		return nil, err == nil, err
	}
	return f, false, nil
}

// Length returns the body's length in bytes.
func (f *File) Length() int64 { return f.size }

// Open returns a reader of the body, from its beginning.
func (f *File) Open() io.ReadCloser {
	return &fileReader{body: f, stream: cipher.NewCTR(f.store.block, f.iv[:])}
}

// Close deletes the body and releases its disk space. It may be called more than once, and
// on nil.
func (f *File) Close() {
	if f == nil {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.file != nil {
		_ = f.file.Close()
		f.file = nil
		f.store.disk.Add(-f.size)
	}
}

type fileReader struct {
	body   *File
	stream cipher.Stream
	offset int64
}

// Read implements io.Reader.
func (r *fileReader) Read(p []byte) (int, error) {
	r.body.mu.Lock()
	defer r.body.mu.Unlock()
	if r.body.file == nil {
		return 0, os.ErrClosed
	}
	if r.offset == r.body.size {
		return 0, io.EOF
	}
	n, err := r.body.file.ReadAt(p[:min(int64(len(p)), r.body.size-r.offset)], r.offset)
	r.stream.XORKeyStream(p[:n], p[:n])
	r.offset += int64(n)
	if errors.Is(err, io.EOF) && r.offset < r.body.size {
		err = io.ErrUnexpectedEOF
	}
	if r.offset == r.body.size {
		err = io.EOF
	}
	return n, err
}

// Close implements io.Closer. The body itself stays until the request is over.
func (r *fileReader) Close() error { return nil }
