package mask

import (
	"bytes"
	"encoding/json"
	"errors"

	"github.com/gatehouse-dev/gatehouse/internal/enforce/pii"
)

var errEvent = errors.New("an event cannot be masked")

// EventStream masks a stream of server-sent events. Its texts come in deltas: a
// card number may begin in one event and end in the fifth. An event is held
// until no text of it can turn out to be the beginning of something, then it
// goes on as it came but for what is masked; the order of events stays.
type EventStream struct {
	rules *Rules
	out   func([]byte) error

	buf      []byte // the beginning of an event
	queue    []*event
	held     int // bytes of buf's events in the queue
	channels map[string]*channel
	done     []byte
}

// event is one that was read, with what is to be changed in it.
type event struct {
	raw     []byte
	edits   []edit
	pending int // parts of texts that are not settled
}

type edit struct {
	start, end int // in raw
	with       []byte
}

// channel is a text that comes in parts.
type channel struct {
	text  []byte
	from  int // what is before it is settled
	base  int // position of text[0] in the whole
	parts []*part
	begun bool
}

// part is what one event adds to a channel.
type part struct {
	ev         *event
	start, end int     // in the whole text
	raw        int     // where its inside begins in the event
	at         []int32 // places of its bytes there; nil: one by one
	quoted     bool
}

// EventsTo makes a stream that hands whole events on to out.
func (r *Rules) EventsTo(out func([]byte) error) *EventStream {
	return &EventStream{rules: r, out: out, channels: map[string]*channel{}}
}

// Write implements io.Writer.
func (s *EventStream) Write(p []byte) (int, error) {
	s.buf = held(s.buf, p)
	from := 0
	for {
		n := eventEnd(s.buf[from:])
		if n == 0 {
			break
		}
		if err := s.event(s.buf[from : from+n]); err != nil {
			return 0, err
		}
		from += n
	}
	s.buf = slim(s.buf[:copy(s.buf, s.buf[from:])])
	if len(s.buf)+s.held > MaxHeld {
		return 0, errHeld
	}
	return len(p), s.release()
}

// Close hands on what is held; every text is at its end.
func (s *EventStream) Close() error {
	if len(s.buf) > 0 {
		if err := s.event(s.buf); err != nil {
			return err
		}
		s.buf = nil
	}
	s.finish("")
	return s.release()
}

// eventEnd is the length of the event at the beginning of p with the empty line
// after it; 0: it is not whole.
func eventEnd(p []byte) int {
	for i := 0; i < len(p); {
		n := lineEnd(p[i:])
		if n == 0 {
			return 0
		}
		if c := p[i]; c == '\n' || c == '\r' {
			return i + n
		}
		i += n
	}
	return 0
}

// lineEnd is the length of the line at the beginning of p with its end: LF, CRLF
// or CR. A CR at the end of p may be half of a CRLF: 0.
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

// line is a line of an event: its value stands at raw[start:end].
type line struct {
	name       string
	start, end int
}

func linesOf(raw []byte) (lines []line) {
	for i := 0; i < len(raw); {
		n := lineEnd(raw[i:])
		if n == 0 {
			n = len(raw) - i
		}
		text := bytes.TrimRight(raw[i:i+n], "\r\n")
		l := line{start: i, end: i + len(text)}
		if name, val, ok := bytes.Cut(text, []byte(":")); ok {
			l.name = string(name)
			l.start = l.end - len(val)
			if len(val) > 0 && val[0] == ' ' {
				l.start++
			}
		}
		lines = append(lines, l)
		i += n
	}
	return lines
}

// event takes a whole event.
func (s *EventStream) event(raw []byte) error {
	raw = bytes.Clone(raw)
	lines := linesOf(raw)
	var doc []byte
	n := 0
	for _, l := range lines {
		if l.name == "data" {
			if n++; n > 1 {
				doc = append(doc, '\n')
			}
			doc = append(doc, raw[l.start:l.end]...)
		}
	}
	text := bytes.TrimSpace(doc)
	structured := len(text) > 0 && (text[0] == '{' || text[0] == '[') && json.Valid(doc)
	switch {
	case n > 0 && s.rules.Structured() && !structured && len(text) > 0 && string(text) != "[DONE]":
		return errEvent
	case structured && s.rules.Structured():
		changed, err := s.rules.structured(doc)
		if err != nil {
			return err
		}
		if !bytes.Equal(changed, doc) {
			raw = withData(raw, lines, changed)
			lines, doc = linesOf(raw), changed
		}
	}
	ev := &event{raw: raw}
	s.queue = append(s.queue, ev)
	s.held += len(raw)
	if s.rules.set == 0 {
		return nil
	}
	for _, l := range lines {
		if l.name != "data" && l.name != "retry" && l.end > l.start {
			s.alone(ev, l.start, raw[l.start:l.end], false)
		}
	}
	switch {
	case string(text) == "[DONE]":
		s.finish("")
	case structured:
		s.document(ev, doc, placesOf(lines))
	default:
		s.plain(ev, lines)
	}
	return nil
}

// withData is the event with another document.
func withData(raw []byte, lines []line, doc []byte) []byte {
	out := make([]byte, 0, len(raw)+len(doc))
	at, put := 0, false
	for i, l := range lines {
		next := len(raw)
		if i+1 < len(lines) {
			next = at + lineEnd(raw[at:])
		}
		if l.name != "data" {
			out = append(out, raw[at:next]...)
		} else if !put {
			put = true
			for part := range bytes.SplitSeq(doc, []byte("\n")) {
				out = append(append(append(out, "data: "...), part...), raw[l.end:next]...)
			}
		}
		at = next
	}
	return out
}

// places map positions of a document to those in its event, line by line.
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

// document takes the strings of an event.
func (s *EventStream) document(ev *event, doc []byte, where places) {
	sh := shapeOf(doc)
	keyed := &JSONStream{rules: s.rules}
	for _, p := range sh.pieces {
		inner := doc[p.start:p.end]
		raw := where.raw(p.start)
		if p.channel == "" {
			s.alone(ev, raw, inner, true)
			continue
		}
		text, at := inner, []int32(nil)
		if bytes.IndexByte(inner, '\\') >= 0 {
			text, at = Unescape(nil, nil, inner)
		}
		s.extend(p.channel, ev, text, at, raw, true)
	}
	s.members(ev, doc, where, keyed)
	for _, prefix := range sh.ends {
		s.finish(prefix)
	}
	if sh.last {
		s.finish("")
	}
}

// members masks what the names of members tell, and numbers: whole values.
func (s *EventStream) members(ev *event, doc []byte, where places, keyed *JSONStream) {
	var walk func(n *node, hint pii.Set)
	walk = func(n *node, hint pii.Set) {
		switch n.kind {
		case '{', '[':
			for i := range n.below {
				m := &n.below[i]
				if n.kind == '{' {
					hint = hintOf([]byte(m.key))
				}
				walk(m, hint)
			}
		case '"':
			text, _ := Unescape(nil, nil, doc[n.start+1:n.end-1])
			if kind, ok := fits(hint&s.rules.set, text); ok {
				ev.replace(edit{where.raw(n.start + 1), where.raw(n.start+1) + n.end - n.start - 2, appendHidden(nil, text, s.rules.how[kind])})
			}
		default:
			keyed.done, keyed.hint = keyed.done[:0], hint
			keyed.scalar(doc[n.start:n.end])
			if len(keyed.done) > 0 && keyed.done[0] == '"' {
				ev.replace(edit{where.raw(n.start), where.raw(n.start) + n.end - n.start, bytes.Clone(keyed.done)})
			}
		}
	}
	root := parse(doc)
	walk(&root, 0)
}

// replace puts an edit in place of those that it covers.
func (e *event) replace(by edit) {
	kept := e.edits[:0]
	for _, old := range e.edits {
		if old.start < by.start || old.end > by.end {
			kept = append(kept, old)
		}
	}
	e.edits = append(kept, by)
}

// plain takes the lines of an event that is no JSON: a part of a text each.
func (s *EventStream) plain(ev *event, lines []line) {
	first := true
	for _, l := range lines {
		if l.name != "data" {
			continue
		}
		if !first {
			s.extend("text", &event{}, []byte("\n"), nil, 0, false)
		}
		first = false
		s.extend("text", ev, ev.raw[l.start:l.end], nil, l.start, false)
	}
}

// alone masks a text that no other event continues.
func (s *EventStream) alone(ev *event, raw int, inner []byte, quoted bool) {
	text, at := inner, []int32(nil)
	if quoted && bytes.IndexByte(inner, '\\') >= 0 {
		text, at = Unescape(nil, nil, inner)
	}
	spans, _ := s.rules.set.Scan(nil, text, 0, true)
	p := &part{ev: ev, raw: raw, at: at, end: len(text), quoted: quoted}
	for _, sp := range spans {
		p.hide(sp.Start, sp.End, s.hidden(text[sp.Start:sp.End], sp.Kind, quoted))
	}
}

func (s *EventStream) hidden(text []byte, kind pii.Kind, quoted bool) []byte {
	if quoted {
		return appendHidden(nil, text, s.rules.how[kind])
	}
	return pii.Hide(nil, text, s.rules.how[kind])
}

// hide notes that a place of the whole text, as far as it is in this part, is
// replaced.
func (p *part) hide(from, to int, with []byte) {
	a, b := max(from, p.start)-p.start, min(to, p.end)-p.start
	if p.at != nil {
		a, b = int(p.at[a]), int(p.at[b])
	}
	p.ev.edits = append(p.ev.edits, edit{p.raw + a, p.raw + b, with})
}

// extend adds a part to a channel.
func (s *EventStream) extend(name string, ev *event, text []byte, at []int32, raw int, quoted bool) {
	c := s.channels[name]
	if c == nil {
		c = &channel{}
		s.channels[name] = c
	}
	if len(text) == 0 {
		return
	}
	start := c.base + len(c.text)
	c.text = append(c.text, text...)
	c.parts = append(c.parts, &part{ev: ev, start: start, end: start + len(text), raw: raw, at: at, quoted: quoted})
	ev.pending++
	if !c.begun {
		c.begun = true
		// The first word of an answer is let go though an address might go on from it.
		if opening[string(bytes.TrimSpace(c.text))] {
			for _, p := range c.parts {
				p.ev.pending--
			}
			c.base += len(c.text) - 1
			c.text, c.parts, c.from = append(c.text[:0], pii.Cut), c.parts[:0], 1
			return
		}
	}
	s.settle(c, false)
}

// settle looks at what a channel has new.
func (s *EventStream) settle(c *channel, final bool) {
	spans, settled := s.rules.set.Scan(nil, c.text, c.from, final)
	for _, sp := range spans {
		from, to := c.base+sp.Start, c.base+sp.End
		first := true
		for _, p := range c.parts {
			if p.end <= from || p.start >= to {
				continue
			}
			var with []byte
			if first {
				with = s.hidden(c.text[sp.Start:sp.End], sp.Kind, p.quoted)
			}
			first = false
			p.hide(from, to, with)
		}
	}
	kept := c.parts[:0]
	for _, p := range c.parts {
		if p.end <= c.base+settled {
			p.ev.pending--
			continue
		}
		kept = append(kept, p)
	}
	clear(c.parts[len(kept):])
	c.parts = kept
	cut := max(0, settled-pii.Context)
	c.text = append(c.text[:0], c.text[cut:]...)
	c.base, c.from = c.base+cut, settled-cut
}

// finish ends every channel whose name begins so.
func (s *EventStream) finish(prefix string) {
	for name, c := range s.channels {
		if len(name) >= len(prefix) && name[:len(prefix)] == prefix {
			s.settle(c, true)
			delete(s.channels, name)
		}
	}
}

// release hands on the events at the head of the queue that are settled.
func (s *EventStream) release() error {
	s.done = s.done[:0]
	n := 0
	for _, ev := range s.queue {
		if ev.pending > 0 {
			break
		}
		s.done = ev.append(s.done)
		s.held -= len(ev.raw)
		n++
	}
	if n == 0 {
		return nil
	}
	kept := copy(s.queue, s.queue[n:])
	clear(s.queue[kept:])
	s.queue = s.queue[:kept]
	return s.out(s.done)
}

// append writes the event as it is after its edits.
func (e *event) append(dst []byte) []byte {
	sortEdits(e.edits)
	at := 0
	for _, x := range e.edits {
		if x.start < at { // within one that was made already
			continue
		}
		dst = append(append(dst, e.raw[at:x.start]...), x.with...)
		at = x.end
	}
	return append(dst, e.raw[at:]...)
}
