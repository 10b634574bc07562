package enforce

import (
	"bytes"
	"errors"
	"net"
	"sync/atomic"
)

// net/http forgives what smuggling lives on: both lengths in one message, the
// same length twice, folded lines, lines that end in a bare LF. It undoes them
// before a handler could see, so the bytes are checked on their way in: a
// request that two parsers might frame differently is answered 400 and the
// connection closed (hardening B3).

// errFraming is what the server's read gets instead of such a request; net/http
// answers it with 400.
var errFraming = errors.New("enforce: the request's framing is ambiguous")

// maxLine bounds what is kept of one line; the server's own bound is lower.
const maxLine = 128 << 10

// Where in a request the next byte belongs.
const (
	inStart   = iota // the request line
	inHead           // header fields
	inBody           // a body of known length
	inSize           // a chunk's size line
	inChunk          // a chunk's data and its CRLF
	inTrailer        // trailer fields
	inRaw            // no HTTP/1 any more: a tunnel, HTTP/2, or a head too long for the server
)

// strictListener hands out strict connections.
type strictListener struct{ net.Listener }

// Accept implements net.Listener.
func (l strictListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &strictConn{Conn: c}, nil
}

// strictConn follows the framing of the requests that are read through it.
type strictConn struct {
	net.Conn
	raw atomic.Bool
	bad bool
	// poison is what is left to say of nonsense.
	poison string
	at     int
	line   []byte // the unfinished line of an earlier read
	left   int64  // bytes of body or chunk to come

	http10  bool
	lengths int
	length  int64
	codings int
}

// release ends the checking: the connection is a tunnel from here on.
func (c *strictConn) release() { c.raw.Store(true) }

// nonsense is what the server gets in place of an ambiguous request of which
// it has seen nothing yet: it answers 400. An error would have it close the
// connection without a word, and end the request that it is busy with.
const nonsense = "?\r\n\r\n"

// Read implements net.Conn.
func (c *strictConn) Read(p []byte) (int, error) {
	if c.raw.Load() {
		return c.Conn.Read(p)
	}
	if c.bad {
		return c.refuse(p)
	}
	began := c.at != inStart || len(c.line) > 0
	n, err := c.Conn.Read(p)
	if n > 0 {
		if good := c.scan(p[:n]); good < n && !c.raw.Load() {
			c.bad = true
			if good > 0 || !began {
				c.poison = nonsense
			}
			if good == 0 {
				return c.refuse(p)
			}
			return good, nil
		}
	}
	return n, err
}

func (c *strictConn) refuse(p []byte) (int, error) {
	if c.poison == "" {
		return 0, errFraming
	}
	n := copy(p, c.poison)
	c.poison = c.poison[n:]
	return n, nil
}

// scan follows data and gives how much of it may be read: all, or, where it is
// ambiguous, what stands before the message in question.
func (c *strictConn) scan(data []byte) int {
	messageAt := 0
	for i := 0; i < len(data); {
		switch c.at {
		case inRaw:
			return len(data)
		case inBody, inChunk:
			n := int64(len(data) - i)
			if n < c.left {
				c.left -= n
				return len(data)
			}
			i += int(c.left)
			if c.at == inChunk {
				c.at = inSize
			} else {
				c.at = inStart
				messageAt = i
			}
			continue
		}
		end := bytes.IndexByte(data[i:], '\n')
		if end < 0 {
			if len(c.line)+len(data)-i > maxLine {
				c.at = inRaw // the server refuses it for its size
				return len(data)
			}
			c.line = append(c.line, data[i:]...)
			return len(data)
		}
		line := data[i : i+end]
		if len(c.line) > 0 {
			c.line = append(c.line, line...)
			line = c.line
		}
		i += end + 1
		was := c.at
		ok := c.accept(line)
		c.line = c.line[:0]
		if !ok {
			return messageAt
		}
		if c.at == inStart && was != inStart {
			messageAt = i
		}
	}
	return len(data)
}

// accept takes one line without its LF; false when it may be read in two ways.
func (c *strictConn) accept(line []byte) bool {
	n := len(line) - 1
	if n < 0 || line[n] != '\r' {
		return false // a bare LF
	}
	line = line[:n]
	if bytes.IndexByte(line, '\r') >= 0 || bytes.IndexByte(line, 0) >= 0 {
		return false
	}
	switch c.at {
	case inStart:
		if n == 0 {
			return true // an empty line before a request (RFC 9112 section 2.2); the server decides
		}
		if string(line) == "PRI * HTTP/2.0" {
			c.at = inRaw
			c.release()
			return true
		}
		c.at, c.http10 = inHead, bytes.HasSuffix(line, []byte(" HTTP/1.0"))
		c.lengths, c.codings, c.length = 0, 0, 0
		return true
	case inHead:
		if n == 0 {
			return c.frame()
		}
		return c.field(line)
	case inSize:
		return c.size(line)
	case inTrailer:
		if n == 0 {
			c.at = inStart
			return true
		}
		return line[0] != ' ' && line[0] != '\t'
	}
	return false
}

// field checks one header field.
func (c *strictConn) field(line []byte) bool {
	if line[0] == ' ' || line[0] == '\t' {
		return false // a folded line
	}
	colon := bytes.IndexByte(line, ':')
	if colon <= 0 || line[colon-1] == ' ' || line[colon-1] == '\t' {
		return false
	}
	name, val := line[:colon], bytes.Trim(line[colon+1:], " \t")
	switch {
	case len(name) == len("Content-Length") && bytes.EqualFold(name, []byte("Content-Length")):
		if c.lengths++; c.lengths > 1 || len(val) == 0 || len(val) > 18 {
			return false
		}
		for _, d := range val {
			if d < '0' || d > '9' {
				return false
			}
			c.length = c.length*10 + int64(d-'0')
		}
	case len(name) == len("Transfer-Encoding") && bytes.EqualFold(name, []byte("Transfer-Encoding")):
		if c.codings++; c.codings > 1 || c.http10 || !bytes.EqualFold(val, []byte("chunked")) {
			return false
		}
	}
	return true
}

// frame ends a head and says what follows.
func (c *strictConn) frame() bool {
	switch {
	case c.codings > 0 && c.lengths > 0:
		return false
	case c.codings > 0:
		c.at = inSize
	case c.length > 0:
		c.at, c.left = inBody, c.length
	default:
		c.at = inStart
	}
	return true
}

// size reads a chunk's size line. Extensions have no use here and a history of
// being read in several ways.
func (c *strictConn) size(line []byte) bool {
	if len(line) == 0 || len(line) > 15 {
		return false
	}
	var n int64
	for _, d := range line {
		switch {
		case d >= '0' && d <= '9':
			n = n<<4 | int64(d-'0')
		case d|0x20 >= 'a' && d|0x20 <= 'f':
			n = n<<4 | int64(d|0x20-'a'+10)
		default:
			return false
		}
	}
	if n == 0 {
		c.at = inTrailer
		return true
	}
	c.at, c.left = inChunk, n+2
	return true
}
