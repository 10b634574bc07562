package mask

import (
	"bytes"
	"io"
)

// AnyStream masks personal data in text that may be JSON, whatever its media type says. If the text
// begins like a document, it is read as one, and anything that is not JSON fails.
type AnyStream struct {
	rules *Rules
	out   func([]byte) error
	head  []byte
	first values // finds the end of the first document
	whole int    // its length, once it is complete
	to    io.WriteCloser
}

// AnyTo returns a stream that writes masked text to out.
func (r *Rules) AnyTo(out func([]byte) error) *AnyStream { return &AnyStream{rules: r, out: out} }

// maxBlank limits the white space before a text, in bytes.
const maxBlank = 4096

// maxFirst limits how much of a document is buffered to see whether another one follows it, in
// bytes. Documents that each bring a part of one text are smaller.
const maxFirst = 64 << 10

// Write implements io.Writer.
func (a *AnyStream) Write(p []byte) (int, error) {
	if a.to != nil {
		return a.to.Write(p)
	}
	a.head = append(a.head, p...)
	kind := startOf(a.head)
	if kind == undecided && len(a.head) < maxBlank {
		return len(p), nil
	}
	if kind == document {
		if kind = a.follow(); kind == document && len(a.head) < maxFirst {
			return len(p), nil
		}
	}
	if err := a.begin(kind); err != nil {
		return 0, err
	}
	return len(p), nil
}

// Close writes the rest.
func (a *AnyStream) Close() error {
	if a.to == nil {
		if err := a.begin(startOf(a.head)); err != nil {
			return err
		}
	}
	return a.to.Close()
}

// follow reports whether another document follows the first one. Models that stream send a document
// for each word.
func (a *AnyStream) follow() bodyStart {
	text := bytes.TrimPrefix(a.head, []byte(byteOrderMark))
	if a.whole == 0 {
		a.whole = a.first.end(text)
	}
	if a.whole > 0 && len(bytes.TrimLeft(text[a.whole:], separators)) > 0 {
		return documents
	}
	return document
}

func (a *AnyStream) begin(kind bodyStart) error {
	switch kind {
	case documents:
		a.to = a.rules.valuesTo(a.out)
	case document:
		a.to = a.rules.JSONTo(a.out)
	default:
		a.to = a.rules.TextTo(a.out)
	}
	head := a.head
	a.head = nil
	_, err := a.to.Write(head)
	return err
}

// bodyStart is what the first bytes of a body show.
type bodyStart uint8

const (
	undecided bodyStart = iota
	prose
	document
	documents // several in a row
)

// startOf returns the bodyStart of the beginning of a text. A document begins with {" or {}, [{, [[, [" or
// [].
func startOf(p []byte) bodyStart {
	p = bytes.TrimLeft(bytes.TrimPrefix(p, []byte(byteOrderMark)), " \t\r\n\x1e")
	if len(p) == 0 {
		return undecided
	}
	next := bytes.TrimLeft(p[1:], " \t\r\n")
	switch {
	case p[0] != '{' && p[0] != '[':
		return prose
	case len(next) == 0:
		return undecided
	case p[0] == '{' && (next[0] == '"' || next[0] == '}'), p[0] == '[' && bytes.IndexByte([]byte(`{["]`), next[0]) >= 0:
		return document
	}
	return prose
}
