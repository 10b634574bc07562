package mask

import (
	"strings"
	"testing"

	"github.com/gatehouse-dev/gatehouse/internal/errtest"
	"github.com/gatehouse-dev/gatehouse/internal/rego/masking"
)

// TestPathsInEvents checks that nothing in an event repeats what its masked members contain. It is
// removed, or the event is an error.
func TestPathsInEvents(t *testing.T) {
	const doc = `{"ssn":"canary-1","n":1}`
	const hidden = `{"ssn":"[redacted]","n":1}`
	for name, tc := range map[string]struct{ in, want string }{ // without want: an error
		"an event":                  {"data: " + doc + "\n\n", "data: " + hidden + "\n\n"},
		"a byte order mark":         {byteOrderMark + "data: " + doc + "\n\n", "data: " + hidden + "\n\n"},
		"two marks":                 {byteOrderMark + byteOrderMark + "data: " + doc + "\n\n", "\n"},
		"an id":                     {"id: " + doc + "\ndata: {}\n\n", "data: {}\n\n"},
		"an id that repeats":        {"id: canary-1\ndata: " + doc + "\n\n", "data: " + hidden + "\n\n"},
		"an id that does not":       {"id: 7_a-b==\ndata: " + doc + "\n\n", "id: 7_a-b==\ndata: " + hidden + "\n\n"},
		"a name":                    {"event: " + doc + "\ndata: {}\n\n", "data: {}\n\n"},
		"a plain name":              {"event: message\ndata: " + doc + "\n\n", "event: message\ndata: " + hidden + "\n\n"},
		"a comment":                 {": " + doc + "\n\n", ":\n\n"},
		"a comment without a space": {":" + doc + "\r\rdata: {}\r\r", ":\r\rdata: {}\r\r"},
		"an unknown field":          {"dat: " + doc + "\ndata: {}\n\n", "data: {}\n\n"},
		"a field in another case":   {"Data: " + doc + "\n\n", "\n"},
		"a space before the colon":  {"data : " + doc + "\n\n", "\n"},
		"a space before the field":  {" data: " + doc + "\n\n", "\n"},
		"no colon":                  {doc[:8] + "\n\n", "\n"},
		"a field without a value":   {"data\n\n", "data\n\n"},
		"a time to wait":            {"retry: 3000\n\n", "retry: 3000\n\n"},
		"a time that is none":       {"retry: " + doc + "\n\n", "\n"},
		"no end":                    {"data: " + doc, "data: " + hidden},
		"no end of an event":        {"data: " + doc + "\n", "data: " + hidden + "\n"},
		"carriage returns":          {"event: x\rdata: " + doc + "\r\r", "event: x\rdata: " + hidden + "\r\r"},
		"all ends of lines":         {"event: x\r\ndata: " + doc + "\r\n\r\n", "event: x\r\ndata: " + hidden + "\r\n\r\n"},
		"several lines":             {"data: {\"ssn\":\ndata: \"canary-1\"\ndata:,\"n\":1}\n\n", "data: {\"ssn\":\ndata: \"[redacted]\"\ndata: ,\"n\":1}\n\n"},
		"a string over two lines":   {"data: {\"ssn\":\"cana\ndata: ry-1\"}\n\n", ""},
		"no document":               {"data: canary-1\n\n", ""},
		"a string":                  {"data: \"canary-1\"\n\n", ""},
		"two documents":             {"data: " + doc + " " + doc + "\n\n", ""},
		"not UTF-8":                 {"data: {\"ssn\":\"canary-1\xff\"}\n\n", ""},
		"UTF-16":                    {wide("data: "+doc+"\n\n", false), ""},
		"UTF-16, the other way":     {wide("data: "+doc+"\n\n", true), ""},
		"the end of a stream":       {"data: [DONE]\n\n", "data: [DONE]\n\n"},
		"an empty event":            {"id: 1\ndata: \n\n", "id: 1\ndata: \n\n"},
		"JSON in JSON":              {"data: {\"text\":\"{\\\"ssn\\\":\\\"canary-1\\\"}\"}\n\n", "data: {\"text\":\"{\\\"ssn\\\":\\\"[redacted]\\\"}\"}\n\n"},
	} {
		for size := 1; size <= len(tc.in); size++ {
			r, err := New([]masking.MaskRule{{Path: "ssn", Strategy: "redact"}, {Path: "text.ssn", Strategy: "redact"}}, nil)
			errtest.Must(t, err)
			var s sink
			to := r.EventsTo(s.take)
			for rest := tc.in; rest != "" && err == nil; {
				n := min(size, len(rest))
				_, err = to.Write([]byte(rest[:n]))
				rest = rest[n:]
			}
			if err == nil {
				err = to.Close()
			}
			if got := s.out.String(); strings.Contains(got, "canary") || tc.want != "" && (err != nil || got != tc.want) || tc.want == "" && err == nil {
				t.Errorf("%s in pieces of %d: %q %v, want %q", name, size, got, err, tc.want)
				break
			}
		}
	}
}

// wide encodes a text in UTF-16, little or big endian.
func wide(s string, big bool) string {
	var b strings.Builder
	for _, c := range []byte(s) {
		if big {
			b.WriteString("\x00" + string(rune(c)))
		} else {
			b.WriteString(string(rune(c)) + "\x00")
		}
	}
	return b.String()
}
