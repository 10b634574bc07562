package mask

import (
	"bytes"
	"encoding/binary"
	"unicode/utf8"
)

// byteOrderMark may occur once before a stream or a document in UTF-8.
const byteOrderMark = "\xef\xbb\xbf"

// maxToken limits the name or id of an event that stays when members are masked, in bytes, and
// maxRetry the digits of a retry time.
const (
	maxToken = 256
	maxRetry = 8
	// minRepeated is the minimum length of an id that counts as a repetition of masked text. Single
	// digits occur in many ids.
	minRepeated = 4
)

// lineEnd returns the length of the first line in p with its end: LF, CRLF or CR. It returns 0 if
// the line is incomplete; a CR at the end of p may be half of a CRLF.
func lineEnd(p []byte) int {
	i := bytes.IndexAny(p, "\r\n")
	switch {
	case i < 0 || p[i] == '\r' && i+1 == len(p):
		return 0
	case p[i] == '\r' && p[i+1] == '\n':
		return i + 2
	}
	return i + 1
}

// line is a line of an event: raw[from:next] with its end, and raw[start:end] is its value.
type line struct {
	name             string
	from, start, end int
	next             int
}

// linesOf returns the lines of an event. In a stream of documents there is one line, which counts
// as data.
func (s *EventStream) linesOf(raw []byte) (lines []line) {
	if s.values != nil {
		from := len(raw) - len(bytes.TrimLeft(raw, separators))
		return []line{{name: "data", from: 0, start: from, end: len(raw), next: len(raw)}}
	}
	if s.lines {
		text := bytes.TrimRight(raw, "\r\n")
		from := len(text) - len(bytes.TrimLeft(text, "\x1e")) // application/json-seq
		return []line{{name: "data", from: 0, start: from, end: len(text), next: len(raw)}}
	}
	for i := 0; i < len(raw); {
		n := lineEnd(raw[i:])
		if n == 0 {
			n = len(raw) - i
		}
		text := bytes.TrimRight(raw[i:i+n], "\r\n")
		l := line{from: i, start: i, end: i + len(text), next: i + n}
		name, val, ok := bytes.Cut(text, []byte(":"))
		switch l.name = string(name); {
		case ok:
			l.start = l.end - len(val)
			if len(val) > 0 && val[0] == ' ' {
				l.start++
			}
		case l.field():
			l.start = l.end // a field without a value
		default:
			l.name = ""
		}
		lines = append(lines, l)
		i += n
	}
	return lines
}

// field reports whether the line is a field that clients know.
func (l *line) field() bool {
	switch l.name {
	case "data", "event", "id", "retry":
		return true
	}
	return false
}

// textStart returns where the text of a line begins: its value, or the whole line if clients do not
// know the field.
func (l *line) textStart() int {
	if l.field() {
		return l.start
	}
	return l.from
}

// dataOf returns the document of an event, and the number of its lines.
func dataOf(raw []byte, lines []line) (doc []byte, n int) {
	for _, l := range lines {
		if l.name == "data" {
			if n++; n > 1 {
				doc = append(doc, '\n')
			}
			doc = append(doc, raw[l.start:l.end]...)
		}
	}
	return doc, n
}

// rewrite returns a copy of an event with another document. If members are masked by path, it omits
// whatever could repeat their values.
func (s *EventStream) rewrite(raw []byte, lines []line, doc, changed []byte) []byte {
	same := bytes.Equal(doc, changed)
	if same && (s.lines || len(s.rules.paths) == 0) {
		return bytes.Clone(raw)
	}
	out := make([]byte, 0, len(raw)+len(changed))
	put := false
	for _, l := range lines {
		switch {
		case l.name != "data" || same:
			if value, ok := s.cleanLine(&l, raw, doc, changed); ok {
				out = append(append(out, value...), raw[l.end:l.next]...)
			}
		case s.lines:
			out = append(append(append(out, raw[:l.start]...), changed...), raw[l.end:]...)
		case !put:
			put = true
			for part := range bytes.SplitSeq(changed, []byte("\n")) {
				out = append(append(append(out, "data: "...), part...), raw[l.end:l.next]...)
			}
		}
	}
	return out
}

// cleanLine returns what stays of a line that is not part of the document, or false if nothing does.
// If members are masked by path, comments lose their text and unknown fields are dropped: no client
// reads them, and they may contain a document. An id or a name stays if it is a plain word and
// repeats nothing that is masked.
func (s *EventStream) cleanLine(l *line, raw, doc, changed []byte) ([]byte, bool) {
	all, text := raw[l.from:l.end], raw[l.start:l.end]
	if len(s.rules.paths) == 0 || l.name == "data" || l.from == l.end {
		return all, true
	}
	switch {
	case raw[l.from] == ':':
		return raw[l.from : l.from+1], true
	case l.name == "retry":
		return all, len(text) <= maxRetry && allBytes(text, isDigit)
	case l.name == "id", l.name == "event":
		hidden := len(text) >= minRepeated && bytes.Contains(doc, text) && !bytes.Contains(changed, text)
		return all, len(text) <= maxToken && allBytes(text, isTokenByte) && !hidden
	}
	return nil, false
}

func allBytes(text []byte, ok func(byte) bool) bool {
	for _, c := range text {
		if !ok(c) {
			return false
		}
	}
	return true
}

func isDigit(c byte) bool { return c >= '0' && c <= '9' }

// isTokenByte reports whether c may occur in ids and names of events. Quotes, brackets, braces,
// spaces, escapes and non-ASCII bytes could form a text or a document.
func isTokenByte(c byte) bool {
	return isDigit(c) || c|0x20 >= 'a' && c|0x20 <= 'z' || bytes.IndexByte([]byte("-._~:/+=@#,;!$*()|"), c) >= 0
}

// places maps positions in a document to those in its event, line by line.
type places []struct{ doc, raw int }

func placesOf(lines []line) (p places) {
	doc := 0
	for _, l := range lines {
		if l.name == "data" {
			p = append(p, struct{ doc, raw int }{doc, l.start})
			doc += l.end - l.start + 1
		}
	}
	return p
}

func (p places) raw(doc int) int {
	i := len(p) - 1
	for i > 0 && p[i].doc > doc {
		i--
	}
	return p[i].raw + doc - p[i].doc
}

// IsText reports whether bytes are UTF-8 text: complete characters, and none of the controls that
// text in UTF-16 or UTF-32 contains.
func IsText(p []byte) bool {
	const spaces, tops = 0x2020202020202020, 0x8080808080808080
	i := 0
	for ; i+8 <= len(p); i += 8 {
		// No byte of the eight is below a space: none of them borrows.
		if x := binary.LittleEndian.Uint64(p[i:]); (x-spaces)&^x&tops != 0 && hasForeign(p[i:i+8]) {
			return false
		}
	}
	return !hasForeign(p[i:]) && utf8.Valid(p)
}

func hasForeign(p []byte) bool {
	for _, c := range p {
		if c < 0x20 && foreign[c] {
			return true
		}
	}
	return false
}

// foreign are controls that UTF-8 text does not contain.
var foreign = [0x20]bool{
	0: true, 1: true, 2: true, 3: true, 4: true, 5: true, 6: true, 0x0e: true, 0x0f: true, 0x10: true, 0x11: true, 0x12: true,
	0x13: true, 0x14: true, 0x15: true, 0x16: true, 0x17: true, 0x18: true, 0x19: true, 0x1a: true,
}
