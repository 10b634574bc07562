package framing

import "bytes"

// requests tracks the requests on one connection.
type requests struct {
	at    int
	lines lineReader
	left  int64 // bytes of body or chunk to come

	http10  bool
	head    bool // the latest request's method is HEAD
	upgrade bool // the latest request asks for another protocol
	body    lengths
}

// atBoundary reports whether no request is unfinished.
func (r *requests) atBoundary() bool { return r.at == inStart && len(r.lines.partial) == 0 }

// scan tracks data, and returns how many bytes may be passed on: all of them or, if a message is
// ambiguous, those before that message.
func (r *requests) scan(data []byte) int {
	messageAt := 0
	for i := 0; i < len(data); {
		switch r.at {
		case inRaw:
			return len(data)
		case inBody, inChunk:
			n := int64(len(data) - i)
			if n < r.left {
				r.left -= n
				return len(data)
			}
			i += int(r.left)
			if r.at == inChunk {
				r.at = inSize
			} else {
				r.at = inStart
				messageAt = i
			}
			continue
		}
		line, n, ok := r.lines.next(data[i:])
		if !ok {
			r.at = inRaw // the server refuses the request because of its size
			return len(data)
		}
		if n == 0 {
			return len(data)
		}
		i += n
		before := r.at
		if !r.readLine(line) {
			return messageAt
		}
		if r.at == inStart && before != inStart {
			messageAt = i
		}
	}
	return len(data)
}

// readLine reads one line without its LF. It returns false if the line is ambiguous.
func (r *requests) readLine(line []byte) bool {
	line, ok := withoutCR(line)
	if !ok {
		return false
	}
	n := len(line)
	switch r.at {
	case inStart:
		if n == 0 {
			return true // an empty line before a request (RFC 9112 section 2.2); the server decides
		}
		if string(line) == "PRI * HTTP/2.0" {
			r.at = inRaw
			return true
		}
		r.at, r.http10 = inHead, bytes.HasSuffix(line, []byte(" HTTP/1.0"))
		r.head, r.upgrade, r.body = bytes.HasPrefix(line, []byte("HEAD ")), false, lengths{}
		return true
	case inHead:
		if n == 0 {
			return r.endHead()
		}
		name, _, ok := r.body.field(line, r.http10)
		if isNamed(name, "Upgrade") {
			r.upgrade = true
		}
		return ok
	case inSize:
		return r.chunkLine(line)
	case inTrailer:
		if n == 0 {
			r.at = inStart
			return true
		}
		return line[0] != ' ' && line[0] != '\t'
	}
	return false
}

// endHead determines from a complete head what follows it. It returns false if the head is
// ambiguous.
func (r *requests) endHead() bool {
	switch {
	case r.body.codingCount > 0 && r.body.lengthCount > 0:
		return false
	case r.body.codingCount > 0:
		r.at = inSize
	case r.body.length > 0:
		r.at, r.left = inBody, r.body.length
	default:
		r.at = inStart
	}
	return true
}

// chunkLine reads the size line of a chunk. It refuses extensions: nobody needs them, and parsers
// have disagreed on them.
func (r *requests) chunkLine(line []byte) bool {
	n, ok := chunkSize(line)
	switch {
	case !ok:
		return false
	case n == 0:
		r.at = inTrailer
	default:
		r.at, r.left = inChunk, n+2
	}
	return true
}
