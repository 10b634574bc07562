package framing

import "bytes"

// requests follows the requests of one connection, one after the other.
type requests struct {
	at    int
	lines lineReader
	left  int64 // bytes of body or chunk to come

	http10  bool
	head    bool // the latest request's method is HEAD
	upgrade bool // the latest request asks for another protocol
	body    lengths
}

// between reports that no request is unfinished.
func (r *requests) between() bool { return r.at == inStart && len(r.lines.part) == 0 }

// scan follows data and returns how much of it may be read: all, or, where it is
// ambiguous, what stands before the message in question.
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
			r.at = inRaw // the server refuses it for its size
			return len(data)
		}
		if n == 0 {
			return len(data)
		}
		i += n
		was := r.at
		if !r.accept(line) {
			return messageAt
		}
		if r.at == inStart && was != inStart {
			messageAt = i
		}
	}
	return len(data)
}

// accept takes one line without its LF; false when it may be read in two ways.
func (r *requests) accept(line []byte) bool {
	line, ok := text(line)
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
			return r.frame()
		}
		name, _, ok := r.body.field(line, r.http10)
		if named(name, "Upgrade") {
			r.upgrade = true
		}
		return ok
	case inSize:
		return r.size(line)
	case inTrailer:
		if n == 0 {
			r.at = inStart
			return true
		}
		return line[0] != ' ' && line[0] != '\t'
	}
	return false
}

// frame ends a head and says what follows.
func (r *requests) frame() bool {
	switch {
	case r.body.chunks > 0 && r.body.given > 0:
		return false
	case r.body.chunks > 0:
		r.at = inSize
	case r.body.length > 0:
		r.at, r.left = inBody, r.body.length
	default:
		r.at = inStart
	}
	return true
}

// size reads a chunk's size line. Extensions have no use here and a history of
// being read in several ways.
func (r *requests) size(line []byte) bool {
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
