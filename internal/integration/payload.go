package integration

import (
	"bytes"
	"cmp"
	"encoding/json"
	"strconv"

	"github.com/gatehouse-dev/gatehouse/internal/audit/tail"
	"github.com/gatehouse-dev/gatehouse/internal/fault"
)

// The values of the setting format.
const (
	formatJSON   = "jsonl"
	formatCEF    = "cef"
	formatSyslog = "rfc5424"
)

// maxMessage is the longest message to a syslog server, in bytes. RFC 5425 asks servers to accept
// 8192 bytes; many truncate longer messages.
const maxMessage = 8192

// formatOf returns the format of the entries that a SIEM gets.
func formatOf(it Integration) string {
	chosen, _ := it.Settings[settingFormat].(string)
	if _, stream := syslogAddress(it.Endpoint); stream && chosen == "" {
		return formatSyslog
	}
	return cmp.Or(chosen, formatJSON)
}

// contentType returns the media type of a request to a SIEM.
func contentType(it Integration) string {
	if formatOf(it) == formatJSON {
		return "application/x-ndjson"
	}
	return "text/plain; charset=utf-8"
}

// encode writes entries in the format of an integration: one on each line, or for a syslog server
// each after its length (RFC 5425).
func encode(it Integration, lines []tail.Line) ([]byte, error) {
	var b bytes.Buffer
	_, stream := syslogAddress(it.Endpoint)
	kind := formatOf(it)
	for _, l := range lines {
		text, err := entryText(kind, stream, l)
		if err != nil {
			return nil, err
		}
		if stream {
			b.WriteString(strconv.Itoa(len(text)) + " ")
			b.Write(text)
			continue
		}
		b.Write(text)
		b.WriteByte('\n')
	}
	return b.Bytes(), nil
}

// entryText returns one entry as text.
func entryText(kind string, stream bool, l tail.Line) ([]byte, error) {
	switch {
	case kind == formatJSON:
		return jsonLine(l)
	case kind == formatCEF && !stream:
		return cefLine(l)
	}
	head := syslogHead(l)
	if kind == formatCEF {
		line, err := cefLine(l)
		return append(head, line...), err
	}
	line, err := shortLine(l, maxMessage-len(head))
	return append(head, line...), err
}

// jsonLine returns a value as JSON, without a line feed.
func jsonLine(value any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(value); err != nil {
		return nil, fault.Wrap(err, "write a line of the audit")
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}

// shortened is an entry that was too long for its target. It says which members were left out.
type shortened struct {
	tail.Line
	Decision  json.RawMessage `json:"decision,omitempty"`
	Event     json.RawMessage `json:"event,omitempty"`
	Shortened []string        `json:"shortened"`
}

// large lists the members of a decision or an event that can be large, the least important first.
var large = []string{"trace", "explanation", "input", "event_context", "changes"}

// shortLine returns an entry as JSON of a limited number of bytes. It leaves out large members, and
// if that is not enough, the whole decision or event. It always keeps the position in the chain,
// even if that is longer.
func shortLine(l tail.Line, most int) ([]byte, error) {
	text, err := jsonLine(l)
	if err != nil || len(text) <= most {
		return text, err
	}
	s := shortened{Line: l}
	entry, target, name := l.Decision, &s.Decision, "decision"
	if l.Event != nil {
		target, name = &s.Event, "event"
		if entry, err = jsonLine(l.Event); err != nil {
			return nil, err
		}
	}
	var members map[string]json.RawMessage
	if err := json.Unmarshal(entry, &members); err != nil {
		return nil, fault.Wrap(err, "read an entry of the audit")
	}
	for _, member := range large {
		if value := members[member]; value == nil || string(value) == "null" {
			continue
		}
		delete(members, member)
		s.Shortened = append(s.Shortened, name+"."+member)
		if *target, err = jsonLine(members); err != nil {
			return nil, err
		}
		if text, err = jsonLine(s); err != nil || len(text) <= most {
			return text, err
		}
	}
	*target, s.Shortened = nil, []string{name}
	return jsonLine(s)
}
