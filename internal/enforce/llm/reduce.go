package llm

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"strings"
)

const (
	// longString is the length in bytes from which a text may be media that is left out.
	longString = 64 << 10
	// keptOfMedia is the length of the beginning that stays, by which media are recognised later.
	keptOfMedia = 4 << 10
	// deepest is the nesting up to which places are tracked.
	deepest = 128
	// maxKeptKey limits the length of the names that identify places.
	maxKeptKey = 32
)

// Errors of Reduce.
var (
	// ErrTooMuchText means that a document has more text than may be read.
	ErrTooMuchText = errors.New("the document has too much text")
	errTooDeep     = errors.New("the document is nested too deeply")
)

// Reduce copies a JSON document without long base64 in the places of media, of which it keeps the
// beginning. The copy has at most `most` bytes. Reduce does not validate the document, and needs no
// more memory than its result. cut is the number of shortened texts.
func Reduce(r io.Reader, most int) (doc []byte, cut int, err error) {
	d := reducer{in: bufio.NewReaderSize(r, 32<<10), most: most}
	if err := d.run(); err != nil {
		return nil, 0, err
	}
	return d.out, len(d.cuts), nil
}

// Cut is a text that was removed from a document: the bytes from From to To.
type Cut struct{ From, To int64 }

// Excise is like Reduce, but removes such texts completely. In place of each it writes mark, the
// number of the cut, and mark again, so that Splice can put it back.
func Excise(r io.Reader, most int, mark string) (doc []byte, cuts []Cut, err error) {
	d := reducer{in: bufio.NewReaderSize(r, 32<<10), most: most, mark: mark}
	if err := d.run(); err != nil {
		return nil, nil, err
	}
	return d.out, d.cuts, nil
}

// Splice writes a document with the texts that Excise removed, which it reads from the original.
// Texts whose marks are gone stay out.
func Splice(to io.Writer, doc []byte, mark string, cuts []Cut, original io.Reader) error {
	var at int64
	for i, cut := range cuts {
		before, after, found := bytes.Cut(doc, placeholder(mark, i))
		if !found {
			continue
		}
		if _, err := to.Write(before); err != nil {
			return err
		}
		if _, err := io.CopyN(io.Discard, original, cut.From-at); err != nil {
			return err
		}
		if _, err := io.CopyN(to, original, cut.To-cut.From); err != nil {
			return err
		}
		doc, at = after, cut.To
	}
	_, err := to.Write(doc)
	return err
}

// placeholder returns the text in place of a cut. The number is written in letters, because digits
// could be taken for personal data.
func placeholder(mark string, i int) []byte {
	out := []byte(mark)
	for ; i > 0; i /= 16 {
		out = append(out, 'a'+byte(i%16))
	}
	return append(append(out, 'z'), mark...)
}

func (d *reducer) run() error {
	for {
		c, err := d.next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err == nil {
			err = d.step(c)
		}
		if err != nil {
			return err
		}
	}
}

func (d *reducer) next() (byte, error) {
	c, err := d.in.ReadByte()
	if err == nil {
		d.read++
	}
	return c, err
}

// container is an open array or object.
type container struct {
	object bool
	named  bool // the next string is a value
	at     place
	key    string
}

type reducer struct {
	in   *bufio.Reader
	out  []byte
	most int
	read int64 // number of bytes read
	mark string
	cuts []Cut
	open []container
}

func (d *reducer) put(c byte) error {
	if len(d.out) >= d.most {
		return ErrTooMuchText
	}
	d.out = append(d.out, c)
	return nil
}

// here returns the place of the next value.
func (d *reducer) here() place {
	if len(d.open) == 0 {
		return place{}
	}
	top := &d.open[len(d.open)-1]
	if top.object {
		return top.at.below(top.key)
	}
	return top.at
}

func (d *reducer) step(c byte) error {
	if err := d.put(c); err != nil {
		return err
	}
	switch c {
	case '"':
		return d.text()
	case '{', '[':
		if len(d.open) == deepest {
			return errTooDeep
		}
		d.open = append(d.open, container{object: c == '{', at: d.here()})
	case '}', ']':
		if len(d.open) > 0 {
			d.open = d.open[:len(d.open)-1]
		}
	case ',', ':':
		if len(d.open) > 0 {
			d.open[len(d.open)-1].named = c == ':'
		}
	}
	return nil
}

// text copies a string whose opening quote is already copied.
func (d *reducer) text() error {
	at := len(d.out)
	for {
		c, err := d.next()
		if err != nil {
			return asUnexpectedEOF(err)
		}
		if err := d.put(c); err != nil {
			return err
		}
		switch c {
		case '"':
			if n := len(d.open); n > 0 && d.open[n-1].object && !d.open[n-1].named {
				raw := d.out[at : len(d.out)-1]
				d.open[n-1].key = string(raw[:min(len(raw), maxKeptKey)])
			}
			return nil
		case '\\':
			if c, err = d.next(); err != nil {
				return asUnexpectedEOF(err)
			}
			if err := d.put(c); err != nil {
				return err
			}
		}
		if len(d.out)-at == longString || len(d.out)-at == longString+1 {
			if d.isMediaSoFar(at) {
				return d.skip(at)
			}
		}
	}
}

// isMediaSoFar reports whether the string read so far is media.
func (d *reducer) isMediaSoFar(at int) bool {
	n := len(d.open)
	if n > 0 && d.open[n-1].object && !d.open[n-1].named {
		return false
	}
	// Some encoders escape each slash.
	return isMedia(d.here(), strings.ReplaceAll(string(d.out[at:]), `\/`, "/"))
}

// skip skips the rest of a string that is media.
func (d *reducer) skip(at int) error {
	from := d.read - int64(len(d.out)-at)
	kept := at
	if d.mark == "" {
		if kept += keptOfMedia; d.out[kept-1] == '\\' {
			kept++
		}
	}
	d.out = d.out[:kept]
	if d.mark != "" {
		d.out = append(d.out, placeholder(d.mark, len(d.cuts))...)
	}
	padding := false
	for {
		c, err := d.next()
		switch {
		case err != nil:
			return asUnexpectedEOF(err)
		case c == '"':
			d.cuts = append(d.cuts, Cut{from, d.read - 1})
			d.out = append(d.out, c)
			return nil
		case c == '=':
			padding = true
		case padding:
			return ErrTooMuchText
		case c == '\\':
			if c, err = d.next(); err != nil {
				return asUnexpectedEOF(err)
			}
			if c != '/' {
				return ErrTooMuchText
			}
		case !isBase64Byte(c):
			return ErrTooMuchText
		}
	}
}

func asUnexpectedEOF(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}
