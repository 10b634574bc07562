package bodies

import (
	"bytes"
	"io"
	"sync"
)

// MemoryBody is a body in memory. Its memory is released as soon as it has been read.
type MemoryBody struct {
	mu      sync.Mutex // the transport may still read after the answer is complete
	unread  []byte
	release func() // releases the body's room
}

// NewMemoryBody returns a body of these bytes. done, if not nil, is called once they have been read.
func NewMemoryBody(data []byte, release func()) *MemoryBody {
	return &MemoryBody{unread: data, release: release}
}

// Read implements io.Reader.
func (b *MemoryBody) Read(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	n := copy(p, b.unread)
	if b.unread = b.unread[n:]; len(b.unread) > 0 {
		return n, nil
	}
	b.drop()
	return n, io.EOF
}

func (b *MemoryBody) drop() {
	b.unread = nil
	if b.release != nil {
		b.release()
		b.release = nil
	}
}

// Close implements io.Closer.
func (b *MemoryBody) Close() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.drop()
	return nil
}

// prependedBody is a body whose beginning was read already.
type prependedBody struct {
	io.Reader
	io.Closer
}

// Prepend returns a body that reads prefix first, and then the rest of body.
func Prepend(prefix []byte, body io.ReadCloser) io.ReadCloser {
	return &prependedBody{io.MultiReader(bytes.NewReader(prefix), body), body}
}

// TeeBody is a body whose bytes are also written to To as they are read.
type TeeBody struct {
	io.ReadCloser
	To io.Writer
}

// Read implements io.Reader.
func (t TeeBody) Read(p []byte) (int, error) {
	n, err := t.ReadCloser.Read(p)
	_, _ = t.To.Write(p[:n])
	return n, err
}
