package llm

import (
	"unicode/utf8"

	"github.com/gatehouse-dev/gatehouse/internal/rego/value"
)

// Meter measures the cost of an answer as its bytes pass. It keeps only the current `usage` object,
// so an answer may be of any size. It counts the text of a stream without `usage`.
//
// `usage` counts only at the top of a document, or in `message` or `response` there (Anthropic's
// message_start, OpenAI's response.completed). Anywhere deeper, the caller may have made the model
// write it.
type Meter struct {
	model  string
	events bool // text/event-stream

	// The position in the document.
	depth   int
	keys    [2]string // of the members around the position, at depth 1 and 2
	key     []byte    // the string being read
	inText  bool
	escaped bool
	isKey   bool // the string being read may be the name of a member
	object  [3]bool
	last    string // the last string that may be the name of a member
	line    []byte // the beginning of the current line of events
	inData  bool
	cr      bool // the last byte was a CR
	ending  bool // this event is the last one
	ended   bool

	capture []byte
	from    int // depth at which the capture began; 0 if nothing is captured

	input, output int64
	told          bool
	ascii, other  int64 // characters of texts
	counting      bool
}

const (
	maxKey     = 64
	maxLine    = 40
	maxCapture = 16 << 10
)

// NewMeter returns a meter for an answer of a model.
func NewMeter(model string, events bool) *Meter { return &Meter{model: model, events: events} }

// Write reads the next bytes. It never fails.
func (m *Meter) Write(p []byte) (int, error) {
	if !m.events {
		for _, c := range p {
			m.step(c)
		}
		return len(p), nil
	}
	for _, c := range p {
		m.eventByte(c)
	}
	return len(p), nil
}

// eventByte reads lines. Only `data:` lines hold documents.
func (m *Meter) eventByte(c byte) {
	switch {
	case c == '\n' && m.cr:
		m.cr = false
		return
	case c == '\n' || c == '\r':
		m.endLine()
		m.cr = c == '\r'
		return
	case m.inData:
		m.step(c)
	}
	m.cr = false
	if len(m.line) < maxLine {
		if m.line = append(m.line, c); string(m.line) == "data:" {
			m.inData = true
		}
	}
}

// lastWords are the lines of a stream's last event: of chat completions, messages and responses.
var lastWords = map[string]bool{
	"data: [DONE]": true, "event: message_stop": true,
	"event: response.completed": true, "event: response.incomplete": true, "event: response.failed": true,
}

func (m *Meter) endLine() {
	if m.inData {
		m.endDocument()
	}
	if len(m.line) == 0 {
		m.ended = m.ended || m.ending
	}
	m.ending = m.ending || lastWords[string(m.line)]
	m.inData, m.line = false, m.line[:0]
}

// IsOver reports whether the stream's last event has passed. Clients need not read on, even if the
// stream has not ended.
func (m *Meter) IsOver() bool { return m.ended }

// endDocument resets the position: each event is a new document.
func (m *Meter) endDocument() {
	m.depth, m.inText, m.escaped, m.from, m.counting = 0, false, false, 0, false
	m.capture, m.key = m.capture[:0], m.key[:0]
}

func (m *Meter) step(c byte) {
	if m.from > 0 && len(m.capture) <= maxCapture {
		m.capture = append(m.capture, c)
	}
	if m.inText {
		m.textByte(c)
		return
	}
	switch c {
	case '"':
		m.inText, m.key = true, m.key[:0]
		m.isKey = m.depth >= 1 && m.depth <= 2 && m.object[m.depth]
	case ':':
		if m.depth >= 1 && m.depth <= 2 && m.object[m.depth] {
			m.keys[m.depth-1] = m.last
		}
		m.counting = textual[m.last]
	case ',':
		m.counting = false
	case '{', '[':
		m.depth++
		if m.depth <= 2 {
			m.object[m.depth] = c == '{'
			m.keys[m.depth-1] = ""
		}
		if c == '{' && m.from == 0 && m.usageHere() {
			m.from, m.capture = m.depth, append(m.capture[:0], c)
		}
		m.counting = m.counting && c == '['
	case '}', ']':
		if m.from > 0 && m.depth == m.from {
			m.readCapture()
		}
		if m.depth > 0 {
			m.depth--
		}
		m.counting = false
	}
}

// usageHere reports whether the object that begins here is the usage of the answer.
func (m *Meter) usageHere() bool {
	switch m.depth {
	case 2:
		return m.object[1] && m.keys[0] == "usage"
	case 3:
		return m.object[1] && m.object[2] && (m.keys[0] == "message" || m.keys[0] == "response") && m.keys[1] == "usage"
	}
	return false
}

// textual are members that hold the text of the model.
var textual = map[string]bool{
	"content": true, "text": true, "delta": true, "arguments": true, "partial_json": true, "thinking": true,
	"reasoning": true, "reasoning_content": true, "refusal": true, "input": true,
}

func (m *Meter) textByte(c byte) {
	switch {
	case m.escaped:
		m.escaped = false
		if m.counting {
			m.ascii++
		}
		return
	case c == '\\':
		m.escaped = true
		return
	case c == '"':
		m.inText = false
		m.last = string(m.key)
		return
	}
	if len(m.key) < maxKey {
		m.key = append(m.key, c)
	}
	if !m.counting {
		return
	}
	if c < utf8.RuneSelf {
		m.ascii++
	} else if c >= 0xc0 {
		m.other++
	}
}

// readCapture reads the captured object. A stream may report usage several times, with growing
// figures, so the greatest counts.
func (m *Meter) readCapture() {
	m.from = 0
	if len(m.capture) > maxCapture {
		return
	}
	v, err := value.Decode(m.capture, value.Limits{Depth: 8, Bytes: maxCapture})
	if err != nil {
		return
	}
	sum := func(names ...string) (n int64, found bool) {
		for _, name := range names {
			if i, ok := v.Get(name).Int64(); ok && i > 0 {
				n, found = n+i, true
			}
		}
		return n, found
	}
	// Anthropic counts the cached part of a prompt separately, OpenAI includes it.
	in, ok1 := sum("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens")
	if n, ok := sum("prompt_tokens"); ok {
		in, ok1 = n, true
	}
	out, ok2 := sum("output_tokens")
	if n, ok := sum("completion_tokens"); ok {
		out, ok2 = n, true
	}
	if !ok1 && !ok2 {
		return
	}
	m.told = true
	m.input, m.output = max(m.input, in), max(m.output, out)
}

// Cost is the cost of an answer.
type Cost struct {
	Reported      bool // the answer reported its usage; otherwise its text was counted
	input, output int64
	counted       int64
}

// Cost returns the cost so far.
func (m *Meter) Cost() Cost {
	return Cost{Reported: m.told, input: m.input, output: m.output, counted: estimateTokens(m.model, m.ascii, m.other)}
}

// Total returns the cost in tokens, including the prompt, which was estimated beforehand.
func (c Cost) Total(estimated int64) int64 {
	switch {
	case c.Reported && c.input > 0 && c.output > 0:
		return c.input + c.output
	case c.Reported && c.input > 0: // the beginning of an interrupted stream
		return c.input + c.counted
	case c.Reported:
		return estimated + c.output
	}
	return estimated + c.counted
}
