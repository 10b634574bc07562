package fastpath

import (
	"bytes"
	"net/http"
	"net/textproto"
	"net/url"
	"strings"
)

// maxFields is how many header fields a request in the fast path may have.
const maxFields = 64

// head is the header of a request, in the only form that the fast path accepts:
//
//	POST /path?query HTTP/1.1
//	Host: name
//	Content-Length: digits
//	Name: visible characters
//
// It is reused for the next request; its strings are not.
type head struct {
	target, host string
	url          url.URL
	header       http.Header
	values       []string // backs the values of header
	size         int      // bytes up to the body
	length       int      // bytes of the body
}

// parse reads the header at the beginning of data. It returns false if the header is incomplete, or
// has anything that needs care: another method, version or form of the target, transfer codings,
// expectations, upgrades, connections to close, a second Host or Content-Length, or unusual
// characters. net/http reads the headers that it accepts in the same way (FuzzParse).
func (h *head) parse(data []byte, brief func(path string) bool) bool {
	const method, version = "POST ", " HTTP/1.1"
	if !bytes.HasPrefix(data, []byte(method)) {
		return false
	}
	end := bytes.Index(data, []byte("\r\n\r\n"))
	if end < 0 {
		return false
	}
	h.size = end + len("\r\n\r\n")
	line, rest, _ := strings.Cut(string(data[:end+len("\r\n")]), "\r\n")
	target, ok := strings.CutSuffix(line[len(method):], version)
	return ok && h.parseTarget(target) && brief(h.url.Path) && h.fields(rest)
}

// parseTarget reads a request target in origin form (RFC 9112).
func (h *head) parseTarget(target string) bool {
	path, query, asked := strings.Cut(target, "?")
	if !strings.HasPrefix(path, "/") || strings.HasPrefix(path, "//") || !all(path, inPath) || asked && query == "" || !all(query, inQuery) {
		return false
	}
	h.target, h.url = target, url.URL{Path: path, RawQuery: query}
	return true
}

// fields reads the header fields. Each ends with CR LF.
func (h *head) fields(rest string) bool {
	clear(h.header)
	h.values, h.host, h.length = h.values[:0], "", -1
	for n := 0; rest != ""; n++ {
		var line string
		line, rest, _ = strings.Cut(rest, "\r\n")
		name, value, ok := strings.Cut(line, ":")
		value = strings.Trim(value, " \t")
		if !ok || n == maxFields || name == "" || !all(name, inName) || !all(value, inValue) || !h.field(textproto.CanonicalMIMEHeaderKey(name), value) {
			return false
		}
	}
	return h.host != "" && h.length >= 0
}

// field stores one header field. It returns false for fields that change how the message is framed
// or handled.
func (h *head) field(name, value string) bool {
	switch name {
	case "Host":
		if h.host != "" || !all(value, inHost) {
			return false
		}
		h.host = value
		return true
	case "Content-Length":
		if h.length >= 0 || !h.measure(value) {
			return false
		}
	case "Connection":
		if !strings.EqualFold(value, "keep-alive") {
			return false
		}
	case "Transfer-Encoding", "Expect", "Trailer", "Upgrade", "Te", "Pragma", "Proxy-Connection":
		return false
	}
	if before, twice := h.header[name]; twice {
		h.header[name] = append(before, value)
		return true
	}
	h.values = append(h.values, value)
	last := len(h.values)
	h.header[name] = h.values[last-1 : last : last]
	return true
}

// measure reads a Content-Length of at most five digits. Longer bodies do not fit into the buffer.
func (h *head) measure(value string) bool {
	if len(value) == 0 || len(value) > 5 {
		return false
	}
	n := 0
	for _, c := range []byte(value) {
		if c < '0' || c > '9' {
			return false
		}
		n = n*10 + int(c-'0')
	}
	h.length = n
	return true
}

// The parts of a header in which a character can be allowed.
const (
	inPath uint8 = 1 << iota
	inQuery
	inName
	inValue
	inHost
)

// places lists for each character the parts in which it is allowed.
var places = func() (t [256]uint8) {
	for c := 0x20; c < 0x7f; c++ {
		t[c] |= inValue
	}
	t['\t'] |= inValue
	mark := func(set string, place uint8) {
		for _, c := range []byte(set) {
			t[c] |= place
		}
	}
	const alnum = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
	mark(alnum+"/-_.~", inPath)
	mark(alnum+"-_.~=&%+,:@/", inQuery)
	mark(alnum+"-_", inName)
	mark(alnum+"-_.:[]", inHost)
	return t
}()

// all reports whether all characters of s are allowed in a place.
func all(s string, place uint8) bool {
	for i := range len(s) {
		if places[s[i]]&place == 0 {
			return false
		}
	}
	return true
}
