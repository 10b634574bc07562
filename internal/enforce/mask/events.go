package mask

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"slices"
	"strings"

	"github.com/gatehouse-dev/gatehouse/internal/enforce/pii"
)

var errEvent = errors.New("an event cannot be masked")

// EventStream masks a stream of server-sent events. Its texts come in deltas: a card number may
// begin in one event and end in the fifth. So the stream holds an event until no text in it can be
// the beginning of something to mask. Then it passes the event on unchanged, except for masked
// text, in the original order.
type EventStream struct {
	rules *Rules
	out   func([]byte) error

	lines        bool    // each line is a document; there are no events
	values       *values // finds documents in any layout; nil if lines or events separate them
	startChecked bool    // the beginning was checked
	buf          []byte  // the beginning of an event
	looked       int     // the part of buf that contains no end of an event
	queue        []*event
	held         int // bytes of the events in the queue
	channels     map[string]*channel
	done         []byte
}

// event is an event that was read, with the changes to make in it.
type event struct {
	raw     []byte
	edits   []edit
	pending int // parts of texts that are not scanned to their end
}

type edit struct {
	start, end int // positions in raw
	with       []byte
}

// channel is a text that arrives in parts.
type channel struct {
	text         []byte
	from         int // everything before it is scanned
	base         int // position of text[0] in the whole text
	parts        []*part
	startChecked bool
}

// part is what one event adds to a channel.
type part struct {
	ev         *event
	start, end int     // positions in the whole text
	raw        int     // position of its inside in the event
	at         []int32 // positions of its bytes there; nil if they are contiguous
	quoted     bool
}

// EventsTo returns a stream that writes whole events to out.
func (r *Rules) EventsTo(out func([]byte) error) *EventStream {
	return &EventStream{rules: r, out: out, channels: map[string]*channel{}}
}

// LinesTo returns a stream of documents, one on each line (application/x-ndjson,
// application/json-seq). A text may continue from one to the next, as in events.
func (r *Rules) LinesTo(out func([]byte) error) *EventStream {
	s := r.EventsTo(out)
	s.lines = true
	return s
}

// valuesTo returns a stream of documents in any layout. A text may continue from one to the next.
// Anything but JSON fails.
func (r *Rules) valuesTo(out func([]byte) error) *EventStream {
	s := r.LinesTo(out)
	s.values = new(values)
	return s
}

// Write implements io.Writer.
func (s *EventStream) Write(p []byte) (int, error) {
	s.buf = appendHeld(s.buf, p)
	if !s.startChecked {
		if len(s.buf) < len(byteOrderMark) && strings.HasPrefix(byteOrderMark, string(s.buf)) {
			return len(p), nil
		}
		s.startChecked = true
		s.buf = bytes.TrimPrefix(s.buf, []byte(byteOrderMark))
	}
	from := 0
	for {
		n := s.end(s.buf[from:])
		if n == 0 {
			break
		}
		if err := s.event(s.buf[from : from+n]); err != nil {
			return 0, err
		}
		from += n
	}
	s.buf = shrink(s.buf[:copy(s.buf, s.buf[from:])])
	if len(s.buf)+s.held > MaxHeld {
		return 0, ErrHeld
	}
	return len(p), s.release()
}

// Close writes what is held. Every text ends here.
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

// end returns the length of the first complete unit in p: an event with the empty line after it, or
// a line. It returns 0 if there is none. It continues where it stopped.
func (s *EventStream) end(p []byte) int {
	if s.values != nil {
		return s.values.end(p)
	}
	for s.looked < len(p) {
		i := s.looked
		n := lineEnd(p[i:])
		if n == 0 {
			return 0
		}
		s.looked += n
		if c := p[i]; s.lines || c == '\n' || c == '\r' {
			s.looked = 0
			return i + n
		}
	}
	return 0
}

// event reads a whole event.
func (s *EventStream) event(raw []byte) error {
	if !IsText(raw) {
		return errEvent
	}
	lines := s.linesOf(raw)
	doc, n := dataOf(raw, lines)
	text := bytes.TrimSpace(doc)
	if s.values != nil && len(text) > 0 && !json.Valid(doc) {
		return errNotJSON
	}
	structured := len(text) > 0 && (text[0] == '{' || text[0] == '[') && json.Valid(doc)
	changed := doc
	switch {
	case n > 0 && s.rules.NeedsJSON() && !structured && len(text) > 0 && string(text) != "[DONE]":
		return errEvent
	case structured && s.rules.NeedsJSON():
		var err error
		if changed, err = s.rules.structured(doc); err != nil {
			return err
		}
	}
	raw = s.rewrite(raw, lines, doc, changed)
	lines, doc = s.linesOf(raw), changed
	ev := &event{raw: raw}
	s.queue = append(s.queue, ev)
	s.held += len(raw)
	if s.rules.set == 0 {
		return nil
	}
	for _, l := range lines {
		if l.name != "data" {
			s.maskSingle(ev, l.textStart(), raw[l.textStart():l.end], false)
		}
	}
	switch {
	case string(text) == "[DONE]":
		s.finish("")
	case structured, len(text) > 0 && text[0] == '"' && json.Valid(doc):
		s.document(ev, doc, placesOf(lines))
	default:
		s.addText(ev, lines)
	}
	return nil
}

// document reads the strings of an event.
func (s *EventStream) document(ev *event, doc []byte, where places) {
	sh := shapeOf(doc)
	keyed := &JSONStream{rules: s.rules}
	for _, p := range sh.pieces {
		inner := doc[p.start:p.end]
		raw := where.raw(p.start)
		if p.channel == "" {
			s.maskSingle(ev, raw, inner, true)
			continue
		}
		text, at := inner, []int32(nil)
		if bytes.IndexByte(inner, '\\') >= 0 {
			text, at = unescape(nil, nil, inner)
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

// members masks whole values: by the names of members, and numbers.
func (s *EventStream) members(ev *event, doc []byte, where places, keyed *JSONStream) {
	var walk func(n *node, hint pii.Set)
	walk = func(n *node, hint pii.Set) {
		switch n.kind {
		case '{', '[':
			for i := range n.below {
				m := &n.below[i]
				if n.kind == '{' {
					hint = hintOf([]byte(m.key))
					s.maskSingle(ev, where.raw(m.name[0]), doc[m.name[0]:m.name[1]], true)
				}
				walk(m, hint)
			}
		case '"':
			text, _ := unescape(nil, nil, doc[n.start+1:n.end-1])
			if kind, ok := fitsHint(hint&s.rules.set, text); ok {
				ev.replace(edit{where.raw(n.start + 1), where.raw(n.start+1) + n.end - n.start - 2, s.rules.appendQuoted(nil, text, s.rules.how[kind])})
			}
		default:
			keyed.done, keyed.hint = keyed.done[:0], hint
			keyed.maskScalar(doc[n.start:n.end])
			if len(keyed.done) > 0 && keyed.done[0] == '"' {
				ev.replace(edit{where.raw(n.start), where.raw(n.start) + n.end - n.start, bytes.Clone(keyed.done)})
			}
		}
	}
	root := parse(doc)
	walk(&root, 0)
}

// replace adds an edit in place of those that it covers.
func (e *event) replace(by edit) {
	kept := e.edits[:0]
	for _, old := range e.edits {
		if old.start < by.start || old.end > by.end {
			kept = append(kept, old)
		}
	}
	e.edits = append(kept, by)
}

// addText reads the lines of an event that is not JSON, each as a part of a text. A number may
// continue from line to line, with or without a gap at the end of a line.
func (s *EventStream) addText(ev *event, lines []line) {
	var text []byte
	var parts []*part
	for _, l := range lines {
		if l.name != "data" {
			continue
		}
		value := ev.raw[l.start:l.end]
		if len(parts) > 0 {
			s.extend("text", &event{}, []byte{pii.Join}, nil, 0, false)
		}
		s.extend("text", ev, value, nil, l.start, false)
		parts = append(parts, &part{ev: ev, start: len(text), end: len(text) + len(value), raw: l.start})
		text = append(text, value...)
	}
	if len(parts) < 2 {
		return
	}
	spans, _ := (s.rules.set & pii.Numbers).Scan(nil, text, 0, true)
	for _, sp := range spans {
		s.hide(parts, sp.Start, sp.End, text[sp.Start:sp.End], sp.Kind)
	}
}

// hide puts the replacement of a text into the first of its parts, and removes the text from the
// others.
func (s *EventStream) hide(parts []*part, from, to int, text []byte, kind pii.Kind) {
	first := true
	for _, p := range parts {
		if p.end <= from || p.start >= to {
			continue
		}
		var with []byte
		if first {
			with = s.replacement(text, kind, p.quoted)
		}
		first = false
		p.hide(from, to, with)
	}
}

// maskSingle masks a text that no other event continues.
func (s *EventStream) maskSingle(ev *event, raw int, inner []byte, quoted bool) {
	text, at := inner, []int32(nil)
	if quoted && bytes.IndexByte(inner, '\\') >= 0 {
		text, at = unescape(nil, nil, inner)
	}
	spans, _ := s.rules.set.Scan(nil, text, 0, true)
	p := &part{ev: ev, raw: raw, at: at, end: len(text), quoted: quoted}
	for _, sp := range spans {
		p.hide(sp.Start, sp.End, s.replacement(text[sp.Start:sp.End], sp.Kind, quoted))
	}
}

func (s *EventStream) replacement(text []byte, kind pii.Kind, quoted bool) []byte {
	if quoted {
		return s.rules.appendQuoted(nil, text, s.rules.how[kind])
	}
	return s.rules.appendReplacement(nil, text, s.rules.how[kind])
}

// hide replaces the section of this part that is inside from and to, which are positions in the
// whole text.
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
	if !c.startChecked {
		c.startChecked = true
		// The first word of an answer passes at once, even if an e-mail address might begin with
		// it.
		if opening[string(bytes.TrimSpace(c.text))] {
			for _, p := range c.parts {
				p.ev.pending--
			}
			c.base += len(c.text) - 1
			c.text, c.parts, c.from = append(c.text[:0], pii.Cut), c.parts[:0], 1
			return
		}
	}
	s.maskScanned(c, false)
}

// maskScanned masks what is new and scanned in a channel.
func (s *EventStream) maskScanned(c *channel, final bool) {
	spans, scanned := s.rules.set.Scan(nil, c.text, c.from, final)
	for _, sp := range spans {
		s.hide(c.parts, c.base+sp.Start, c.base+sp.End, c.text[sp.Start:sp.End], sp.Kind)
	}
	kept := c.parts[:0]
	for _, p := range c.parts {
		if p.end <= c.base+scanned {
			p.ev.pending--
			continue
		}
		kept = append(kept, p)
	}
	clear(c.parts[len(kept):])
	c.parts = kept
	cut := max(0, scanned-pii.Context)
	c.text = append(c.text[:0], c.text[cut:]...)
	c.base, c.from = c.base+cut, scanned-cut
}

// finish ends every channel whose name has the prefix.
func (s *EventStream) finish(prefix string) {
	for name, c := range s.channels {
		if len(name) >= len(prefix) && name[:len(prefix)] == prefix {
			s.maskScanned(c, true)
			delete(s.channels, name)
		}
	}
}

// release writes the finished events at the head of the queue.
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

// append appends the event with its edits.
func (e *event) append(dst []byte) []byte {
	slices.SortStableFunc(e.edits, func(a, b edit) int {
		return cmp.Or(cmp.Compare(a.start, b.start), cmp.Compare(b.end, a.end))
	})
	at := 0
	for _, x := range e.edits {
		if x.start < at { // inside or touching an edit that was applied already
			at = max(at, x.end)
			continue
		}
		dst = append(append(dst, e.raw[at:x.start]...), x.with...)
		at = x.end
	}
	return append(dst, e.raw[at:]...)
}
