package bodies

import (
	"bytes"
	"io"
	"sync"
)

// Sent is a body in memory. Its memory is released as soon as it has been read.
type Sent struct {
	mu     sync.Mutex // the transport may still read after the answer is complete
	unread []byte
	done   func() // releases the body's room
}

// NewSent returns a body of these bytes. done, if not nil, is called once they have been read.
func NewSent(data []byte, done func()) *Sent { return &Sent{unread: data, done: done} }

// Read implements io.Reader.
func (s *Sent) Read(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := copy(p, s.unread)
	if s.unread = s.unread[n:]; len(s.unread) > 0 {
		return n, nil
	}
	s.drop()
	return n, io.EOF
}

func (s *Sent) drop() {
	s.unread = nil
	if s.done != nil {
		s.done()
		s.done = nil
	}
}

// Close implements io.Closer.
func (s *Sent) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.drop()
	return nil
}

// replayed is a body whose beginning was read already.
type replayed struct {
	io.Reader
	io.Closer
}

// Prepend returns a body that reads begun first, and then the rest of body.
func Prepend(begun []byte, body io.ReadCloser) io.ReadCloser {
	return &replayed{io.MultiReader(bytes.NewReader(begun), body), body}
}

// Tapped is a body whose bytes are also written to To as they are read.
type Tapped struct {
	io.ReadCloser
	To io.Writer
}

// Read implements io.Reader.
func (t Tapped) Read(p []byte) (int, error) {
	n, err := t.ReadCloser.Read(p)
	_, _ = t.To.Write(p[:n])
	return n, err
}
