package framing

import (
	"bytes"
	"errors"
)

// errIdleTimeout means that a 408 arrived in place of an answer: the application closed the idle
// connection before it saw the request (RFC 9110 section 15.5.9).
var errIdleTimeout = errors.New("framing: the application closed the idle connection")

// answers tracks the answers on one connection.
type answers struct {
	at    int
	lines lineReader
	left  int64

	reused  bool // an answer came on this connection before
	head    bool // of the request: HEAD
	upgrade bool // of the request: it asks for another protocol

	status int
	http10 bool
	bareLF bool // a line ended in a bare LF
	closes bool // the application says that it closes the connection
	body   lengths
}

// begin prepares for the answer to a request.
func (a *answers) begin() {
	a.at, a.lines.partial = inStart, a.lines.partial[:0]
	a.bareLF, a.closes, a.status = false, false, 0
}

// allowsNext reports whether another request may follow the answer. It may not follow an answer
// whose body is not read, such as that to HEAD. Some applications send a body there by mistake, at
// once or a moment later, and it would be taken for the next answer.
func (a *answers) allowsNext() bool {
	bodiless := a.head || a.status == 204 || a.status == 304
	return !bodiless && !a.http10 && !a.bareLF && !a.closes && a.status != 408
}

// scan tracks received data. It returns how many bytes belong to the answer, and whether the answer
// is complete.
func (a *answers) scan(data []byte) (n int, done bool, err error) {
	for i := 0; i < len(data); {
		switch a.at {
		case inRaw, inRest:
			return len(data), false, nil
		case inBody, inChunk:
			n := int64(len(data) - i)
			if n < a.left {
				a.left -= n
				return len(data), false, nil
			}
			i += int(a.left)
			if a.at == inBody {
				return i, true, nil
			}
			a.at = inSize
			continue
		}
		line, n, ok := a.lines.next(data[i:])
		if !ok {
			return 0, false, ErrFraming
		}
		if n == 0 {
			return len(data), false, nil
		}
		i += n
		if done, err := a.readLine(line); done || err != nil {
			return i, done, err
		}
	}
	return len(data), false, nil
}

// readLine reads one line without its LF. done means that the answer is complete.
func (a *answers) readLine(line []byte) (done bool, err error) {
	line, ok := withoutCR(line)
	if !ok {
		// Some applications end the lines of a head with a bare LF, and net/http accepts
		// that too. Around chunks, parsers disagree on a bare LF.
		if a.at != inStart && a.at != inHead || !isClean(line) {
			return false, ErrFraming
		}
		a.bareLF = true
	}
	switch a.at {
	case inStart:
		return false, a.statusLine(line)
	case inHead:
		if len(line) == 0 {
			return a.endHead()
		}
		name, value, ok := a.body.field(line, a.http10)
		if !ok {
			return false, ErrFraming
		}
		if isNamed(name, "Connection") && asksToClose(value) {
			a.closes = true
		}
	case inSize:
		return false, a.chunkLine(line)
	case inTrailer:
		if len(line) == 0 {
			return true, nil
		}
		var none lengths
		if _, _, ok := none.field(line, false); !ok || none != (lengths{}) {
			return false, ErrFraming
		}
	}
	return false, nil
}

// statusLine reads a status line.
func (a *answers) statusLine(line []byte) error {
	if len(line) < len("HTTP/1.1 200") || !bytes.HasPrefix(line, []byte("HTTP/1.")) || line[7] != '0' && line[7] != '1' || line[8] != ' ' ||
		len(line) > 12 && line[12] != ' ' {
		return ErrFraming
	}
	a.status = 0
	for _, d := range line[9:12] {
		if d < '0' || d > '9' {
			return ErrFraming
		}
		a.status = a.status*10 + int(d-'0')
	}
	if a.status < 100 {
		return ErrFraming
	}
	if a.status == 408 && a.reused {
		return errIdleTimeout
	}
	a.at, a.http10, a.body = inHead, line[7] == '0', lengths{}
	return nil
}

// endHead determines from a complete head what follows it. done means that the answer is complete.
func (a *answers) endHead() (done bool, err error) {
	switch {
	case a.body.codingCount > 0 && a.body.lengthCount > 0:
		return false, ErrFraming
	case a.status == 101:
		if !a.upgrade {
			return false, ErrFraming
		}
		a.at = inRaw
	case a.status < 200:
		a.at = inStart
	case a.head || a.status == 204 || a.status == 304:
		return true, nil
	case a.body.codingCount > 0:
		a.at = inSize
	case a.body.lengthCount == 0:
		a.at = inRest
	case a.body.length == 0:
		return true, nil
	default:
		a.at, a.left = inBody, a.body.length
	}
	return false, nil
}

// chunkLine reads the size line of a chunk. It accepts extensions and spaces after the size as
// net/http does.
func (a *answers) chunkLine(line []byte) error {
	digits, _, _ := bytes.Cut(line, []byte{';'})
	n, ok := chunkSize(bytes.TrimRight(digits, " \t"))
	switch {
	case !ok:
		return ErrFraming
	case n == 0:
		a.at = inTrailer
	default:
		a.at, a.left = inChunk, n+2
	}
	return nil
}

// asksToClose reports whether a Connection field contains close.
func asksToClose(value []byte) bool {
	for part := range bytes.SplitSeq(value, []byte{','}) {
		if bytes.EqualFold(trim(part), []byte("close")) {
			return true
		}
	}
	return false
}

// isTimeout reports whether b begins with a 408, with which an application closes an idle
// connection.
func isTimeout(b []byte) bool {
	return len(b) >= 12 && bytes.HasPrefix(b, []byte("HTTP/1.")) && string(b[8:12]) == " 408"
}
