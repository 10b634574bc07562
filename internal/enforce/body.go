package enforce

import (
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
)

// The limits on bodies that are decided on, in bytes. Answers name the one that was
// met, and docs/ai.md states them.
const (
	// maxBody is the largest body that is read for a control: limit "body".
	maxBody = 32 << 20
	// maxText is what may be left of a body without its media: limit "text".
	maxText = 4 << 20
	// maxMaskedBody is the largest body, of a request or an answer, that masks by path
	// rewrite: limit "path_mask".
	maxMaskedBody = 16 << 20
	// maxFromGateway is the largest body that a gateway may show us: limit "gateway".
	// It comes in one message.
	maxFromGateway = 1 << 20
	// maxInMemory is what one request keeps of its body in memory while it waits for
	// somebody. A larger body waits on disk.
	maxInMemory = 1 << 20
	// maxBodies bounds the bodies that are in memory together, and maxBodiesOnDisk
	// those on disk: limit "all_bodies".
	maxBodies       = 256 << 20
	maxBodiesOnDisk = 1 << 30
	// maxShadowBytes bounds the bodies that wait for a decision in shadow mode.
	maxShadowBytes = 64 << 20
	// bodyDepth is how deep a body may be nested.
	bodyDepth = 64
)

var errTooManyBodies = errors.New("too many bodies wait")

// tooLarge refuses what is larger than a limit.
func tooLarge(limit string, bytes int) *refusal {
	return &refusal{http.StatusRequestEntityTooLarge, "body_too_large", "a control needs this body, which is larger than the limit \"" + limit + "\" of " + strconv.Itoa(bytes) + " bytes"}
}

// tooMany refuses a body that there is no room for beside the others.
func tooMany() *refusal {
	return &refusal{http.StatusServiceUnavailable, "bodies_saturated", "a control needs this body, and the limit \"all_bodies\" is met by those that wait"}
}

// bodies counts what all requests keep of their bodies.
type bodies struct {
	memory, disk atomic.Int64
	files        atomic.Uint64
	dir          string
	block        cipher.Block
}

// openBodies makes a place for bodies in dir. What a process that was killed left
// there cannot be read by anybody, and goes.
func openBodies(dir string, entropy io.Reader) (*bodies, error) {
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
	return &bodies{dir: dir, block: block}, nil
}

// hold is room for a body in memory, given back once.
type hold struct {
	of *atomic.Int64
	n  atomic.Int64
}

// grow takes room for n more bytes; false: there is none.
func (h *hold) grow(n int) bool {
	if h.of.Add(int64(n)) > maxBodies {
		h.of.Add(-int64(n))
		return false
	}
	h.n.Add(int64(n))
	return true
}

func (h *hold) release() {
	if h != nil {
		h.of.Add(-h.n.Swap(0))
	}
}

// onDisk is a body in a file without a name, encrypted with a key that only this
// process has: prompts are nobody's to find.
type onDisk struct {
	all  *bodies
	size int64
	iv   [aes.BlockSize]byte
	to   cipher.StreamWriter

	mu   sync.Mutex // the transport may still read when the request is over
	file *os.File
}

// create begins a body on disk.
func (all *bodies) create() (*onDisk, error) {
	file, err := os.CreateTemp(all.dir, "body-*")
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errTooManyBodies, err)
	}
	_ = os.Remove(file.Name())
	kept := &onDisk{all: all, file: file}
	binary.BigEndian.PutUint64(kept.iv[:], all.files.Add(1))
	kept.to = cipher.StreamWriter{S: cipher.NewCTR(all.block, kept.iv[:]), W: file}
	return kept, nil
}

// Write implements io.Writer.
func (d *onDisk) Write(p []byte) (int, error) {
	if d.all.disk.Add(int64(len(p))) > maxBodiesOnDisk {
		d.all.disk.Add(-int64(len(p)))
		return 0, errTooManyBodies
	}
	d.size += int64(len(p))
	if n, err := d.to.Write(p); err != nil {
		return n, fmt.Errorf("%w: %w", errTooManyBodies, err)
	}
	return len(p), nil
}

// store writes to disk what was read of a body and the rest of it. tooLong: it is
// larger than most bytes.
func (all *bodies) store(begun []byte, rest io.Reader, most int64) (kept *onDisk, tooLong bool, err error) {
	if kept, err = all.create(); err != nil {
		return nil, false, err
	}
	n, err := io.Copy(kept, io.LimitReader(io.MultiReader(bytes.NewReader(begun), rest), most+1))
	if err != nil || n > most {
		kept.close()
		return nil, err == nil, err
	}
	return kept, false, nil
}

// open reads the body from its beginning.
func (d *onDisk) open() io.ReadCloser {
	return &fromDisk{of: d, stream: cipher.NewCTR(d.all.block, d.iv[:])}
}

// close gives the room back. It may be called more than once.
func (d *onDisk) close() {
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
	of     *onDisk
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
