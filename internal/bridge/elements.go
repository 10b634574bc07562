package bridge

import (
	"bufio"
	"errors"
	"io"
)

// maxEvent is the size of the largest event that is read, in bytes.
const maxEvent = 1 << 20

// errNoArray means that a body is not a JSON array of events.
var errNoArray = errors.New("not a JSON array")

// elementReader returns the elements of a JSON array one at a time, without decoding them. It looks only
// at brackets and strings, so an element that is not valid JSON does not affect those after it.
type elementReader struct {
	in  *bufio.Reader
	buf []byte
	// started is true after the opening bracket, over after the closing one.
	started, ended bool
}

func newElementReader(r io.Reader) *elementReader {
	return &elementReader{in: bufio.NewReaderSize(r, 16<<10)}
}

// next returns the next element, which is valid until the next call. whole is false if the element
// is larger than maxEvent and was skipped. The error is io.EOF at the end of the array, and
// otherwise that of the stream.
func (s *elementReader) next() (element []byte, whole bool, err error) {
	if !s.started {
		c, err := s.skip()
		if err != nil {
			return nil, false, ended(err)
		}
		if c != '[' {
			return nil, false, errNoArray
		}
		s.started = true
	}
	if s.ended {
		return nil, false, io.EOF
	}
	c, err := s.skip()
	for err == nil && c == ',' {
		c, err = s.skip()
	}
	if err != nil {
		return nil, false, ended(err)
	}
	if c == ']' {
		s.ended = true
		return nil, false, io.EOF
	}
	return s.element(c)
}

// ended returns the error for a stream that stops inside the array.
func ended(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

// skip reads up to the next byte that is not a space.
func (s *elementReader) skip() (byte, error) {
	for {
		c, err := s.in.ReadByte()
		if err != nil {
			return 0, err
		}
		if c != ' ' && c != '\n' && c != '\r' && c != '\t' {
			return c, nil
		}
	}
}

// element reads the element that begins with c.
func (s *elementReader) element(c byte) ([]byte, bool, error) {
	s.buf = s.buf[:0]
	whole := true
	depth, quoted, escaped := 0, false, false
	for {
		if len(s.buf) < maxEvent {
			s.buf = append(s.buf, c)
		} else {
			whole = false
		}
		switch {
		case escaped:
			escaped = false
		case quoted && c == '\\':
			escaped = true
		case c == '"':
			quoted = !quoted
		case quoted:
		case c == '{', c == '[':
			depth++
		case c == '}', c == ']':
			depth--
		}
		if depth == 0 && !quoted {
			peek, err := s.in.Peek(1)
			if err != nil {
				return nil, false, ended(err)
			}
			// A number or a word ends where the array continues.
			if c == '}' || c == ']' || c == '"' || peek[0] == ',' || peek[0] == ']' {
				return s.buf, whole, nil
			}
		}
		var err error
		if c, err = s.in.ReadByte(); err != nil {
			return nil, false, ended(err)
		}
	}
}
