package fastpath

import (
	"net/http"
	"strconv"
	"strings"
)

// most is the largest buffer that is kept for the next answer, in bytes.
const most = 64 << 10

// answer is the http.ResponseWriter of a connection. It buffers the whole answer, and is reused.
type answer struct {
	header http.Header
	status int
	head   []byte
	body   []byte
	date   string
	last   bool // the connection ends with this answer
}

func (a *answer) reset(date string) {
	clear(a.header)
	a.status, a.date, a.last = 0, date, false
	a.head, a.body = reuse(a.head), reuse(a.body)
}

func reuse(b []byte) []byte {
	if cap(b) > most {
		return nil
	}
	return b[:0]
}

// Header implements http.ResponseWriter.
func (a *answer) Header() http.Header { return a.header }

// WriteHeader implements http.ResponseWriter. Informational answers are not sent.
func (a *answer) WriteHeader(status int) {
	if a.status != 0 || status < 200 {
		return
	}
	a.status = status
	text := http.StatusText(status)
	if text == "" {
		text = "status code " + strconv.Itoa(status)
	}
	a.head = append(a.head, "HTTP/1.1 "...)
	a.head = strconv.AppendInt(a.head, int64(status), 10)
	a.head = append(append(append(a.head, ' '), text...), "\r\nDate: "...)
	a.head = append(append(a.head, a.date...), "\r\n"...)
	if status == http.StatusNotModified {
		delete(a.header, "Content-Type")
	}
	for name, values := range a.header {
		switch name {
		case "Date", "Content-Length", "Transfer-Encoding": // finish and this method set these
		case "Connection":
			a.last = a.last || len(values) > 0 && strings.EqualFold(values[0], "close")
		default:
			a.fields(name, values)
		}
	}
}

// fields writes the header fields of one name. Like net/http, it replaces line breaks in values by
// spaces, so that a value cannot start a new field.
func (a *answer) fields(name string, values []string) {
	for _, v := range values {
		if strings.ContainsAny(v, "\r\n") {
			v = strings.NewReplacer("\r", " ", "\n", " ").Replace(v)
		}
		a.head = append(append(a.head, name...), ": "...)
		a.head = append(append(a.head, v...), "\r\n"...)
	}
}

// Write implements http.ResponseWriter. It never fails.
func (a *answer) Write(p []byte) (int, error) {
	if a.status == 0 {
		a.WriteHeader(http.StatusOK)
	}
	a.body = append(a.body, p...)
	return len(p), nil
}

// finish returns the bytes to send. If last is set, the connection ends after them.
func (a *answer) finish(last bool) []byte {
	if a.status == 0 {
		a.WriteHeader(http.StatusOK)
	}
	if a.last = a.last || last; a.last {
		a.head = append(a.head, "Connection: close\r\n"...)
	}
	if a.status == http.StatusNoContent || a.status == http.StatusNotModified {
		return append(a.head, "\r\n"...)
	}
	a.head = append(a.head, "Content-Length: "...)
	a.head = strconv.AppendInt(a.head, int64(len(a.body)), 10)
	a.head = append(a.head, "\r\n\r\n"...)
	a.head = append(a.head, a.body...)
	return a.head
}
