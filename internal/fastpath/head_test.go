package fastpath

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func anyPath(string) bool { return true }

// lines joins the lines of a header and ends the header.
func lines(l ...string) string { return strings.Join(l, "\r\n") + "\r\n\r\n" }

const length2 = "Content-Length: 2"

// TestParseRefuses: requests of any other form go to net/http.
func TestParseRefuses(t *testing.T) {
	good := lines("POST /a HTTP/1.1", "Host: x", length2)
	h := head{header: http.Header{}}
	if !h.parse([]byte(good), anyPath) {
		t.Fatal("parse of a plain request = false, want true")
	}
	for _, text := range []string{
		"",
		"POST",
		strings.TrimSuffix(good, "\n"), // incomplete
		lines("GET /a HTTP/1.1", "Host: x", length2),
		lines("post /a HTTP/1.1", "Host: x", length2),
		lines("POST /a HTTP/1.0", "Host: x", length2),
		lines("POST /a HTTP/1.1 ", "Host: x", length2),
		lines("POST  /a HTTP/1.1", "Host: x", length2),
		lines("POST http://x/a HTTP/1.1", "Host: x", length2),
		lines("POST //x/a HTTP/1.1", "Host: x", length2),
		lines("POST * HTTP/1.1", "Host: x", length2),
		lines("POST /%61 HTTP/1.1", "Host: x", length2),
		lines("POST /a? HTTP/1.1", "Host: x", length2),
		lines("POST /a?b#c HTTP/1.1", "Host: x", length2),
		lines("POST /a?b=c;d HTTP/1.1", "Host: x", length2),
		lines("POST /a HTTP/1.1", length2),
		lines("POST /a HTTP/1.1", "Host: ", length2),
		lines("POST /a HTTP/1.1", "Host: x", "Host: x", length2),
		lines("POST /a HTTP/1.1", "Host: x/y", length2),
		lines("POST /a HTTP/1.1", "Host: x"),
		lines("POST /a HTTP/1.1", "Host: x", length2, length2),
		lines("POST /a HTTP/1.1", "Host: x", "Content-Length: 2, 2"),
		lines("POST /a HTTP/1.1", "Host: x", "Content-Length: +2"),
		lines("POST /a HTTP/1.1", "Host: x", "Content-Length: -2"),
		lines("POST /a HTTP/1.1", "Host: x", "Content-Length: 0x2"),
		lines("POST /a HTTP/1.1", "Host: x", "Content-Length:"),
		lines("POST /a HTTP/1.1", "Host: x", "Content-Length: 100000"),
		lines("POST /a HTTP/1.1", "Host: x", "Content-Length : 2"),
		lines("POST /a HTTP/1.1", "Host: x", length2, "Transfer-Encoding: chunked"),
		lines("POST /a HTTP/1.1", "Host: x", length2, "transfer-encoding: identity"),
		lines("POST /a HTTP/1.1", "Host: x", length2, "Expect: 100-continue"),
		lines("POST /a HTTP/1.1", "Host: x", length2, "Connection: close"),
		lines("POST /a HTTP/1.1", "Host: x", length2, "Connection: keep-alive, Upgrade"),
		lines("POST /a HTTP/1.1", "Host: x", length2, "Upgrade: h2c"),
		lines("POST /a HTTP/1.1", "Host: x", length2, "Trailer: X"),
		lines("POST /a HTTP/1.1", "Host: x", length2, "A: b", " folded"),
		lines("POST /a HTTP/1.1", "Host: x", length2, "no colon"),
		lines("POST /a HTTP/1.1", "Host: x", length2, ": nothing"),
		lines("POST /a HTTP/1.1", "Host: x", length2, "A b: c"),
		lines("POST /a HTTP/1.1", "Host: x", length2, "A: b\nC: d"),
		lines("POST /a HTTP/1.1", "Host: x", length2, "A: b\rC: d"),
		lines("POST /a HTTP/1.1", "Host: x", length2, "A: b\x00"),
		lines("POST /a HTTP/1.1", "Host: x", length2, "A: \xff"),
		lines("POST /a HTTP/1.1\nX: y", "Host: x", length2),
		lines("POST /a HTTP/1.1", "Host: x", length2, strings.Repeat("A: b\r\n", maxFields)+"C: d"),
	} {
		if h.parse([]byte(text), anyPath) {
			t.Errorf("parse(%q) = true, want false", text)
		}
	}
	if h.parse([]byte(good), func(path string) bool { return path != "/a" }) {
		t.Error("parse of a path that is not brief = true, want false")
	}
}

// same compares how the fast path and net/http parse text. It returns whether the fast path accepted it.
func same(text []byte) (bool, error) {
	h := head{header: http.Header{}}
	if !h.parse(text, anyPath) {
		return false, nil
	}
	req, err := http.ReadRequest(bufio.NewReader(bytes.NewReader(text)))
	if err != nil {
		return true, fmt.Errorf("net/http refuses it: %w", err)
	}
	type seen struct {
		Method, Target, Host, Path, Query string
		Header                            http.Header
		Length                            int64
		Body                              string
		Close                             bool
	}
	whole := text[h.size:min(len(text), h.size+h.length)]
	ours := seen{"POST", h.target, h.host, h.url.Path, h.url.RawQuery, h.header, int64(h.length), string(whole), false}
	body, err := io.ReadAll(req.Body)
	if err != nil && len(whole) == h.length {
		return true, err
	}
	theirs := seen{req.Method, req.RequestURI, req.Host, req.URL.Path, req.URL.RawQuery, req.Header, req.ContentLength, string(body), req.Close}
	if d := cmp.Diff(theirs, ours); d != "" {
		return true, fmt.Errorf("net/http (-) and the fast path (+) disagree:\n%s", d)
	}
	if req.URL.String() != h.url.String() {
		return true, fmt.Errorf("the URL is %s, net/http says %s", h.url.String(), req.URL)
	}
	return true, nil
}

var plain = []string{
	lines("POST /v1/decisions/evaluate HTTP/1.1", "Host: example.com:8080", "X-API-Key: k", "Content-Type: application/json", length2) + "{}",
	lines("POST /a?environment=sandbox&b=%20+c HTTP/1.1", "host: [::1]:1", "content-length: 0002", "connection: Keep-Alive", "Accept: */*", "accept: text/html") + "{}POST",
	lines("POST /a HTTP/1.1", "Host:x", "Content-Length:0", "X-Empty:", "A:\t b \t"),
	lines("POST /a/../b/. HTTP/1.1", "Host: x", "Cookie: a=b; c=\"d\"", length2) + "{",
}

// TestParseAgrees: net/http reads the requests that the fast path accepts in the same way.
func TestParseAgrees(t *testing.T) {
	for _, text := range plain {
		taken, err := same([]byte(text))
		if err != nil || !taken {
			t.Errorf("%q: accepted: %v, %v, want accepted as net/http reads it", text, taken, err)
		}
	}
}

// TestParseForgets: nothing of a request remains in the next one.
func TestParseForgets(t *testing.T) {
	h := head{header: http.Header{}}
	for _, text := range plain {
		if !h.parse([]byte(text), anyPath) {
			t.Fatalf("parse(%q) = false, want true", text)
		}
		fresh := head{header: http.Header{}}
		fresh.parse([]byte(text), anyPath)
		if d := cmp.Diff(fresh.header, h.header); d != "" || fresh.host != h.host || fresh.url != h.url || fresh.size != h.size || fresh.length != h.length {
			t.Errorf("parse(%q) = %+v in a new head, %+v in a used one\n%s", text, fresh, h, d)
		}
	}
}

// FuzzParse compares the fast path with net/http on arbitrary input.
func FuzzParse(f *testing.F) {
	for _, text := range plain {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		if _, err := same(text); err != nil {
			t.Errorf("%q: %v", text, err)
		}
	})
}
