// Package framing tracks HTTP/1.1 messages byte by byte, so that no two parsers can disagree
// on where a message ends. net/http accepts what request smuggling needs: two lengths in one
// message, the same length twice, folded lines, and lines that end in a bare LF. It corrects
// them before a handler could notice.
//
// ServerConn refuses such requests from clients. ClientConn refuses such answers from
// applications, and closes a connection on which an application sends more than the answer.
// Both leave the parsing of valid messages to net/http.
package framing

import (
	"bytes"
	"errors"
)

// ErrFraming means that two parsers could disagree on where a message ends (RFC 9112 section 6).
var ErrFraming = errors.New("framing: the message's framing is ambiguous")

// maxLine limits the length of an unfinished line, in bytes.
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
	inRaw            // no longer HTTP/1: a tunnel, HTTP/2, or a head that is too long for the server
)

// lineReader joins lines that arrive in several pieces.
type lineReader struct{ partial []byte }

// next returns the first line of data without its LF, and how many bytes of data it consumed. If
// the line is unfinished, it keeps data and n is 0. ok is false if the line is too long.
func (l *lineReader) next(data []byte) (line []byte, n int, ok bool) {
	end := bytes.IndexByte(data, '\n')
	if end < 0 {
		if len(l.partial)+len(data) > maxLine {
			return nil, 0, false
		}
		l.partial = append(l.partial, data...)
		return nil, 0, true
	}
	line = data[:end]
	if len(l.partial) > 0 {
		line = append(l.partial, line...)
		l.partial = line[:0]
	}
	return line, end + 1, true
}

// lengths is what a head says about the length of its body.
type lengths struct {
	lengthCount int   // Content-Length fields
	length      int64 // the value of the one
	codingCount int   // Transfer-Encoding fields
}

// field reads one line of the header. It returns the name and the value. ok is false if the line is
// not a field, is folded, or repeats or malforms a length.
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
	case isNamed(name, "Content-Length"):
		if l.lengthCount++; l.lengthCount > 1 || len(value) == 0 || len(value) > 18 {
			return nil, nil, false
		}
		for _, d := range value {
			if d < '0' || d > '9' {
				return nil, nil, false
			}
			l.length = l.length*10 + int64(d-'0')
		}
	case isNamed(name, "Transfer-Encoding"):
		if l.codingCount++; l.codingCount > 1 || http10 || !bytes.EqualFold(value, []byte("chunked")) {
			return nil, nil, false
		}
	}
	return name, value, true
}

// trim returns s without spaces and tabs at both ends.
func trim(s []byte) []byte {
	for len(s) > 0 && (s[0] == ' ' || s[0] == '\t') {
		s = s[1:]
	}
	for n := len(s); n > 0 && (s[n-1] == ' ' || s[n-1] == '\t'); n-- {
		s = s[:n-1]
	}
	return s
}

func isNamed(name []byte, want string) bool {
	return len(name) == len(want) && bytes.EqualFold(name, []byte(want))
}

// withoutCR returns a line without its CR. ok is false if the line does not end in a CR, or
// contains another CR or a NUL.
func withoutCR(line []byte) ([]byte, bool) {
	n := len(line) - 1
	if n < 0 || line[n] != '\r' {
		return line, false // a bare LF
	}
	return line[:n], isClean(line[:n])
}

// isClean reports whether a line contains neither CR nor NUL.
func isClean(line []byte) bool {
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
