// Package format is pure. It formats a notification for each type of receiver. A Type checks the
// settings of a channel, builds the request that sends a Message, and reads the answer.
package format

import (
	"encoding/json"
	"strings"
	"time"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"
)

// The severities, from the least to the most severe.
const (
	Info     = "info"
	Warning  = "warning"
	Error    = "error"
	Critical = "critical"
)

// Severities returns all severities, the least severe first.
func Severities() []string { return []string{Info, Warning, Error, Critical} }

// The states of the fault that a message is about.
const (
	Firing   = "firing"
	Resolved = "resolved"
)

// Message is one notification. A generic webhook receives it in this form.
type Message struct {
	ID          string    `json:"id" doc:"Identifies the notification; the same in each attempt."`
	Alert       string    `json:"alert" doc:"The subject."`
	Severity    string    `json:"severity" enum:"info,warning,error,critical" doc:"Severity."`
	Status      string    `json:"status" enum:"firing,resolved" doc:"resolved: the fault has ended."`
	Title       string    `json:"title" doc:"One line."`
	Text        string    `json:"message" doc:"What happened."`
	Facts       []Fact    `json:"facts" doc:"Details."`
	Tenant      string    `json:"tenant" doc:"Tenant."`
	Environment string    `json:"environment,omitempty" doc:"Environment; absent: it concerns the whole tenant."`
	Fault       string    `json:"fault" doc:"Identifies the subject of the notification: the same in all notifications about one fault."`
	Link        string    `json:"link,omitempty" doc:"Link to the object in the console."`
	At          time.Time `json:"timestamp" doc:"When it happened."`
	Digest      []Summary `json:"digest,omitempty" doc:"The messages in the digest, the most severe first, at most 100; absent: it is not a digest."`
}

// Summary is one message in a digest.
type Summary struct {
	ID       string    `json:"id" doc:"Identifies the message."`
	Alert    string    `json:"alert" doc:"The subject."`
	Severity string    `json:"severity" enum:"info,warning,error,critical" doc:"Severity."`
	Status   string    `json:"status" enum:"firing,resolved" doc:"resolved: the fault has ended."`
	Title    string    `json:"title" doc:"One line."`
	Fault    string    `json:"fault" doc:"Identifies the subject of the message."`
	Link     string    `json:"link,omitempty" doc:"Link to the object in the console."`
	At       time.Time `json:"timestamp" doc:"When it happened."`
}

// Summary returns the message as an entry of a digest.
func (m Message) Summary() Summary {
	return Summary{ID: m.ID, Alert: m.Alert, Severity: m.Severity, Status: m.Status, Title: m.Title, Fault: m.Fault, Link: m.Link, At: m.At}
}

// Line returns the summary in one line. at is the time as text.
func (s Summary) Line(at string) string {
	return at + " " + Message{Severity: s.Severity, Status: s.Status, Title: s.Title}.head()
}

// Fact is one detail of a message.
type Fact struct {
	Name  string `json:"name" doc:"Name."`
	Value string `json:"value" doc:"Value."`
}

// Clean shortens the texts of a message to their limits, and removes control characters.
func (m Message) Clean() Message {
	m.Title = line(m.Title, 200)
	m.Text = text(m.Text, 2000)
	facts := make([]Fact, 0, len(m.Facts))
	for _, f := range m.Facts[:min(len(m.Facts), 20)] {
		facts = append(facts, Fact{line(f.Name, 100), line(f.Value, 500)})
	}
	m.Facts = facts
	return m
}

// head returns the title, with the severity or "resolved" before it.
func (m Message) head() string {
	if m.Status == Resolved {
		return "[resolved] " + m.Title
	}
	return "[" + m.Severity + "] " + m.Title
}

// facts returns all details. Those that every message has come last.
func (m Message) facts() []Fact {
	out := append([]Fact{}, m.Facts...)
	if m.Environment != "" {
		out = append(out, Fact{"environment", m.Environment})
	}
	return append(out, Fact{"tenant", m.Tenant}, Fact{"time", m.At.UTC().Format(time.RFC3339)})
}

// plain returns the message as plain text.
func (m Message) plain() string {
	var b strings.Builder
	b.WriteString(m.Text)
	b.WriteString("\n\n")
	for _, f := range m.facts() {
		b.WriteString(f.Name + ": " + f.Value + "\n")
	}
	if m.Link != "" {
		b.WriteString("\n" + m.Link + "\n")
	}
	return b.String()
}

// source returns where it happened: tenant and environment.
func (m Message) source() string {
	if m.Environment != "" {
		return "gatehouse " + m.Tenant + "/" + m.Environment
	}
	return "gatehouse " + m.Tenant
}

// fitMessage calls write with as many facts and as much text of the message as fit into limit bytes of
// JSON.
func fitMessage(m Message, limit int, write func(m Message) any) any {
	for {
		out := write(m)
		size, err := json.Marshal(out)
		if err != nil || len(size) <= limit {
			return out
		}
		switch {
		case len(m.Facts) > 0:
			m.Facts = m.Facts[:len(m.Facts)-1]
		case len(m.Text) > 100:
			m.Text = text(m.Text, len(m.Text)/2)
		default:
			return out
		}
	}
}

// truncateUTF16 shortens s to at most n characters, counted in UTF-16 code units, as receivers count them.
func truncateUTF16(s string, n int) string {
	length := 0
	for _, r := range s {
		length += utf16.RuneLen(r)
	}
	if length <= n {
		return s
	}
	length = 0
	for i, r := range s {
		if length += utf16.RuneLen(r); length > n-1 {
			return s[:i] + "…"
		}
	}
	return s
}

// Line returns a foreign text in one line, short enough to show.
func Line(s string) string { return line(s, 200) }

// line returns text in one line of at most n bytes.
func line(s string, n int) string { return text(strings.Join(strings.Fields(s), " "), n) }

// text returns s without control characters, shortened to at most n bytes.
func text(s string, n int) string {
	s = strings.Map(func(r rune) rune {
		if r != '\n' && unicode.IsControl(r) || r == '\u2028' || r == '\u2029' || unicode.Is(unicode.Bidi_Control, r) {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(s, "\uFFFD"))
	if len(s) <= n {
		return s
	}
	const more = "…"
	cut := n - len(more)
	for cut > 0 && !utf8.RuneStart(s[cut]) {
		cut--
	}
	return s[:cut] + more
}
