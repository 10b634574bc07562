package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

func TestParseAnswer(t *testing.T) {
	for name, c := range map[string]struct {
		wire   string
		status int
		body   string
	}{
		"with a length": {"HTTP/1.1 200 OK\r\nX: y\r\ncontent-length: 5\r\n\r\nhello", 200, "hello"},
		"no body":       {"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n", 403, ""},
		"in chunks":     {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\nA\r\n, everyone\r\n0\r\n\r\n", 200, "hello, everyone"},
	} {
		for n := range len(c.wire) {
			if _, _, whole, err := parseAnswer([]byte(c.wire[:n])); whole || err != nil {
				t.Errorf("%s: %d bytes are whole, error %v", name, n, err)
			}
		}
		status, body, whole, err := parseAnswer([]byte(c.wire))
		if status != c.status || string(body) != c.body || !whole || err != nil {
			t.Errorf("%s: %d %q %v, error %v", name, status, body, whole, err)
		}
	}
	for _, wire := range []string{"HTTP\r\n\r\n", "HTTP/1.1 abc\r\n\r\n", "HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n"} {
		if _, _, whole, err := parseAnswer([]byte(wire)); whole || err == nil {
			t.Errorf("%q is no answer", wire)
		}
	}
}

// A load has each connection ask one request after the other, and ends with the
// first answer that does not count.
func TestLoad(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		for range 40 { // more than one read
			fmt.Fprint(w, r.URL.Path, strings.Repeat("x", 4096))
		}
	}))
	defer s.Close()
	addr := strings.TrimPrefix(s.URL, "http://")
	seen := map[byte]int{}
	l := load{addr: addr, conns: 3, length: 200 * time.Millisecond, requests: [][]byte{
		get(addr, "/a", nil), get(addr, "/b", nil), post(addr, "/c", nil, make([]byte, 8<<20)),
	}, accept: func(status int, body []byte) error {
		if status != 200 || len(body) != 40*(2+4096) {
			return fmt.Errorf("answered %d with %d bytes", status, len(body))
		}
		seen[body[1]]++
		return nil
	}}
	f, err := l.run(context.Background())
	if err != nil || f.requests != seen['a']+seen['b']+seen['c'] || len(seen) != 3 || f.p50 <= 0 || f.p99 < f.p50 {
		t.Errorf("%+v, seen %v, error %v", f, seen, err)
	}
	l.accept = func(int, []byte) error { return fmt.Errorf("not this one") }
	if _, err := l.run(context.Background()); err == nil || err.Error() != "not this one" {
		t.Errorf("error %v", err)
	}
}
