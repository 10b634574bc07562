package lsp

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
)

// oversizedError is the error for a message that was skipped because it is too large.
type oversizedError struct{ size int64 }

func (e *oversizedError) Error() string {
	return fmt.Sprintf("a message of %d bytes is over the limit of %d", e.size, maxFrame)
}

var errFrame = errors.New("lsp: the stream is not framed as the protocol requires")

// readFrame reads one message and returns its body. A message has header lines (one is
// Content-Length), an empty line, and the body (LSP 3.17, base protocol). If the body is too large,
// readFrame skips it and returns *oversizedError. Any other error ends the stream, because the next message
// cannot be found.
func readFrame(r *bufio.Reader) ([]byte, error) {
	size, header := int64(-1), 0
	for {
		line, err := readLine(r, maxHeader-header)
		if err != nil {
			if errors.Is(err, io.EOF) && header > 0 {
				return nil, io.ErrUnexpectedEOF
			}
			return nil, err
		}
		header += len(line) + 2
		if line == "" {
			break
		}
		name, value, ok := strings.Cut(line, ":")
		if !ok {
			return nil, errFrame
		}
		if strings.EqualFold(strings.TrimSpace(name), "Content-Length") {
			n, err := strconv.ParseUint(strings.TrimSpace(value), 10, 62)
			if err != nil || size >= 0 {
				return nil, errFrame
			}
			size = int64(n)
		}
	}
	if size < 0 {
		return nil, errFrame
	}
	if size > maxFrame {
		if _, err := io.CopyN(io.Discard, r, size); err != nil {
			return nil, io.ErrUnexpectedEOF
		}
		return nil, &oversizedError{size}
	}
	body := make([]byte, size)
	if _, err := io.ReadFull(r, body); err != nil {
		return nil, io.ErrUnexpectedEOF
	}
	return body, nil
}

// readLine reads a line of at most limit bytes, and returns it without its line ending.
func readLine(r *bufio.Reader, limit int) (string, error) {
	var b []byte
	for {
		c, err := r.ReadByte()
		switch {
		case err != nil:
			if len(b) > 0 {
				err = io.ErrUnexpectedEOF
			}
			return "", err
		case c == '\n':
			return strings.TrimSuffix(string(b), "\r"), nil
		case len(b) >= limit:
			return "", errFrame
		}
		b = append(b, c)
	}
}

func writeFrame(w io.Writer, v any) error {
	body, err := json.Marshal(v)
	if err != nil {
		return err
	}
	frame := append([]byte("Content-Length: "+strconv.Itoa(len(body))+"\r\n\r\n"), body...)
	_, err = w.Write(frame)
	return err
}
