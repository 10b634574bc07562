// Package framing follows HTTP/1.1 messages byte by byte, so that no two parsers
// can disagree on where one ends. net/http forgives what smuggling lives on: two
// lengths in one message, the same length twice, folded lines, lines that end in
// a bare LF. It repairs them before a handler could see.
//
// ServerConn refuses such requests from clients. ClientConn refuses such answers
// from applications, and closes a connection on which an application says more
// than it was asked. Both leave the parsing of what is sound to net/http.
package framing

import (
	"bytes"
	"errors"
)

// ErrFraming is a message that two parsers might read in two ways.
var ErrFraming = errors.New("framing: the message's framing is ambiguous")

// maxLine bounds what is kept of one unfinished line, in bytes.
const maxLine = 128 << 10

// Where in a message the next byte belongs.
const (
	inStart   = iota // the request line or status line
	inHead           // header fields
	inBody           // a body of known length
	inSize           // a chunk's size line
	inChunk          // a chunk's data and its CRLF
	inTrailer        // trailer fields
	inRest           // a body that ends with its connection
	inRaw            // no HTTP/1 any more: a tunnel, HTTP/2, or a head too long for the server
)

// lineReader joins lines that arrive in pieces.
type lineReader struct{ part []byte }

// next is the first line of data without its LF, and how many bytes of data it
// took; n is 0 when the line is unfinished, and data was kept. ok is false when
// the line is too long.
func (l *lineReader) next(data []byte) (line []byte, n int, ok bool) {
	end := bytes.IndexByte(data, '\n')
	if end < 0 {
		if len(l.part)+len(data) > maxLine {
			return nil, 0, false
		}
		l.part = append(l.part, data...)
		return nil, 0, true
	}
	line = data[:end]
	if len(l.part) > 0 {
		line = append(l.part, line...)
		l.part = line[:0]
	}
	return line, end + 1, true
}

// lengths is what a head says about the body that follows.
type lengths struct {
	given  int   // Content-Length fields
	length int64 // the value of the one
	chunks int   // Transfer-Encoding fields
}

// field reads one header field line. It returns the name and the value, and
// false for a line that is no field, is folded, or repeats or garbles a length.
func (l *lengths) field(line []byte, http10 bool) (name, value []byte, ok bool) {
	if line[0] == ' ' || line[0] == '\t' {
		return nil, nil, false // a folded line
	}
	colon := bytes.IndexByte(line, ':')
	if colon <= 0 || line[colon-1] == ' ' || line[colon-1] == '\t' {
		return nil, nil, false
	}
	name, value = line[:colon], trim(line[colon+1:])
	switch {
	case named(name, "Content-Length"):
		if l.given++; l.given > 1 || len(value) == 0 || len(value) > 18 {
			return nil, nil, false
		}
		for _, d := range value {
			if d < '0' || d > '9' {
				return nil, nil, false
			}
			l.length = l.length*10 + int64(d-'0')
		}
	case named(name, "Transfer-Encoding"):
		if l.chunks++; l.chunks > 1 || http10 || !bytes.EqualFold(value, []byte("chunked")) {
			return nil, nil, false
		}
	}
	return name, value, true
}

// trim is s without the spaces and tabs at its ends.
func trim(s []byte) []byte {
	for len(s) > 0 && (s[0] == ' ' || s[0] == '\t') {
		s = s[1:]
	}
	for n := len(s); n > 0 && (s[n-1] == ' ' || s[n-1] == '\t'); n-- {
		s = s[:n-1]
	}
	return s
}

func named(name []byte, want string) bool {
	return len(name) == len(want) && bytes.EqualFold(name, []byte(want))
}

// text is a line without its CR; false when there is none, or when the line
// holds a CR or NUL elsewhere.
func text(line []byte) ([]byte, bool) {
	n := len(line) - 1
	if n < 0 || line[n] != '\r' {
		return line, false // a bare LF
	}
	return line[:n], clean(line[:n])
}

func clean(line []byte) bool {
	return bytes.IndexByte(line, '\r') < 0 && bytes.IndexByte(line, 0) < 0
}

// chunkSize reads the hexadecimal size of a chunk.
func chunkSize(digits []byte) (n int64, ok bool) {
	if len(digits) == 0 || len(digits) > 15 {
		return 0, false
	}
	for _, d := range digits {
		switch {
		case d >= '0' && d <= '9':
			n = n<<4 | int64(d-'0')
		case d|0x20 >= 'a' && d|0x20 <= 'f':
			n = n<<4 | int64(d|0x20-'a'+10)
		default:
			return 0, false
		}
	}
	return n, true
}
