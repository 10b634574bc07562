package mask

import "bytes"

// AnyStream hides personal data in a text that may as well be JSON, whatever its
// media type says: what begins as a document is read as one, and then nothing
// passes but JSON.
type AnyStream struct {
	rules *Rules
	out   func([]byte) error
	head  []byte
	first values // where the first document ends
	whole int    // its length, once it is there whole
	to    interface {
		Write([]byte) (int, error)
		Close() error
	}
}

// AnyTo makes a stream that hands to out what is settled.
func (r *Rules) AnyTo(out func([]byte) error) *AnyStream { return &AnyStream{rules: r, out: out} }

// maxBlank is how much white space before a text is waited through, in bytes.
const maxBlank = 4096

// maxFirst is how much of a document is held to see whether another one follows it, in
// bytes. Documents that each bring a part of one text are smaller.
const maxFirst = 64 << 10

// Write implements io.Writer.
func (a *AnyStream) Write(p []byte) (int, error) {
	if a.to != nil {
		return a.to.Write(p)
	}
	a.head = append(a.head, p...)
	kind := opens(a.head)
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

// Close hands out the rest.
func (a *AnyStream) Close() error {
	if a.to == nil {
		if err := a.begin(opens(a.head)); err != nil {
			return err
		}
	}
	return a.to.Close()
}

// follow says whether another document follows the first one: models that stream send
// one for each word.
func (a *AnyStream) follow() opened {
	text := bytes.TrimPrefix(a.head, []byte(byteOrderMark))
	if a.whole == 0 {
		a.whole = a.first.end(text)
	}
	if a.whole > 0 && len(bytes.TrimLeft(text[a.whole:], separators)) > 0 {
		return documents
	}
	return document
}

func (a *AnyStream) begin(kind opened) error {
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

// opened is what the first bytes of a body tell.
type opened uint8

const (
	undecided opened = iota
	prose
	document
	documents // one after another
)

// opens tells whether a text begins as an object or an array of JSON does, and no
// other text: {" or {}, [{, [[, [" or [].
func opens(p []byte) opened {
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
