package framing

import (
	"bufio"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/errtest"
)

// framings are requests on the wire; want is how many of them a handler may
// see, and bad whether the connection must end with a 400.
var framings = []struct {
	name, wire string
	want       int
	bad        bool
}{
	{"plain", "GET / HTTP/1.1\r\nHost: a\r\n\r\n", 1, false},
	{"pipelined", "GET /1 HTTP/1.1\r\nHost: a\r\n\r\nPOST /2 HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabcGET /3 HTTP/1.1\r\nHost: a\r\n\r\n", 3, false},
	{"chunked", "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\nGET /2 HTTP/1.1\r\nHost: a\r\n\r\n", 2, false},
	{"chunked with trailer", "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nTrailer: X-T\r\n\r\n5\r\nhello\r\n0\r\nX-T: 1\r\n\r\nGET /2 HTTP/1.1\r\nHost: a\r\n\r\n", 2, false},
	{"both lengths", "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 0, true},
	{"both lengths, other order", "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nContent-Length: 4\r\n\r\n0\r\n\r\n", 0, true},
	{"same length twice", "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\nContent-Length: 3\r\n\r\nabc", 0, true},
	{"two lengths", "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\nContent-Length: 4\r\n\r\nabc", 0, true},
	{"length list", "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3, 3\r\n\r\nabc", 0, true},
	{"signed length", "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: +3\r\n\r\nabc", 0, true},
	{"space before colon", "POST / HTTP/1.1\r\nHost: a\r\nContent-Length : 3\r\n\r\nabc", 0, true},
	{"xchunked", "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: xchunked\r\n\r\n0\r\n\r\n", 0, true},
	{"chunked twice", "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked, chunked\r\n\r\n0\r\n\r\n", 0, true},
	{"coding with a tab", "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding:\tchunked\r\nTransfer-Encoding: identity\r\n\r\n0\r\n\r\n", 0, true},
	{"folded line", "GET / HTTP/1.1\r\nHost: a\r\nX-A: 1\r\n X-B: 2\r\n\r\n", 0, true},
	{"bare LF", "GET / HTTP/1.1\nHost: a\n\n", 0, true},
	{"bare LF in a field", "GET / HTTP/1.1\r\nHost: a\r\nX-A: 1\nContent-Length: 5\r\n\r\n", 0, true},
	{"bare CR", "GET / HTTP/1.1\r\nHost: a\r\nX-A: 1\rContent-Length: 5\r\n\r\n", 0, true},
	{"NUL", "GET / HTTP/1.1\r\nHost: a\r\nX-A: \x00\r\n\r\n", 0, true},
	{"HTTP/1.0 with a coding", "POST / HTTP/1.0\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 0, true},
	{"chunk extension", "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5;a=b\r\nhello\r\n0\r\n\r\n", 1, true},
	{"bare LF after a chunk size", "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5\nhello\r\n0\r\n\r\n", 1, true},
	{"good, then bad", "GET /1 HTTP/1.1\r\nHost: a\r\n\r\nPOST /2 HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 1, true},
	{"hidden in a body", "POST /1 HTTP/1.1\r\nHost: a\r\nContent-Length: 37\r\n\r\nGET /evil HTTP/1.1\r\nHost: a\r\n\r\nabcdefGET /2 HTTP/1.1\r\nHost: a\r\n\r\n", 2, false},
}

// Only requests whose end is clear reach the handler, however the bytes are split.
func TestFraming(t *testing.T) {
	for _, tc := range framings {
		for _, step := range []int{1 << 20, 7, 1} {
			seen, answers := exchangeRaw(t, tc.wire, step)
			if tc.bad {
				if n := len(answers); n == 0 || answers[n-1] != http.StatusBadRequest {
					t.Errorf("%s in steps of %d: answers %v, want a 400 at the end", tc.name, step, answers)
				}
			} else if len(answers) != tc.want {
				t.Errorf("%s in steps of %d: answers %v, want %d", tc.name, step, answers, tc.want)
			}
			if seen > tc.want {
				t.Errorf("%s in steps of %d: %d requests reached the handler, want %d", tc.name, step, seen, tc.want)
			}
		}
	}
}

// dialStrict connects to a server behind a strict listener.
func dialStrict(t *testing.T, handler http.HandlerFunc) net.Conn {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	errtest.Must(t, err)
	srv := &http.Server{Handler: handler}
	go func() { _ = srv.Serve(Listener{l}) }()
	t.Cleanup(func() { _ = srv.Close() })
	c, err := net.Dial("tcp", l.Addr().String())
	errtest.Must(t, err)
	t.Cleanup(func() { _ = c.Close() })
	_ = c.SetDeadline(time.Now().Add(30 * time.Second))
	return c
}

// exchangeRaw sends wire to a server behind a strict listener. It returns how many requests the
// handler saw, and the status codes of the answers.
func exchangeRaw(t *testing.T, wire string, step int) (seen int, answers []int) {
	t.Helper()
	var count atomic.Int32
	c := dialStrict(t, func(w http.ResponseWriter, r *http.Request) {
		count.Add(1)
		if _, err := io.Copy(io.Discard, r.Body); err != nil {
			w.Header().Set("Connection", "close")
			w.WriteHeader(http.StatusBadRequest)
		}
	})
	defer c.Close()
	go func() {
		for rest := wire; rest != ""; {
			n := min(step, len(rest))
			if _, err := io.WriteString(c, rest[:n]); err != nil {
				return
			}
			rest = rest[n:]
		}
		_ = c.(*net.TCPConn).CloseWrite()
	}()
	br := bufio.NewReader(c)
	for {
		resp, err := http.ReadResponse(br, nil)
		if err != nil {
			break
		}
		_, _ = io.Copy(io.Discard, resp.Body)
		answers = append(answers, resp.StatusCode)
	}
	return int(count.Load()), answers
}

// FuzzServerConn checks that the same bytes are passed on however they are split, and never more of
// them for one split than for another.
func FuzzServerConn(f *testing.F) {
	for _, tc := range framings {
		f.Add(tc.wire, uint8(3))
	}
	f.Fuzz(func(t *testing.T, wire string, step uint8) {
		whole, errWhole := readStrict(wire, 1<<20)
		cut, errCut := readStrict(wire, int(step)+1)
		whole, cut = strings.TrimSuffix(whole, malformed), strings.TrimSuffix(cut, malformed)
		if !strings.HasPrefix(wire, whole) || !strings.HasPrefix(wire, cut) {
			t.Fatalf("%q is read as %q and in pieces as %q, want beginnings of it", wire, whole, cut)
		}
		if errors.Is(errWhole, ErrFraming) != errors.Is(errCut, ErrFraming) {
			t.Fatalf("in one piece: %v; in pieces of %d: %v", errWhole, int(step)+1, errCut)
		}
	})
}

// pieces is a connection that yields its text in pieces.
type pieces struct {
	net.Conn
	rest string
	step int
}

func (p *pieces) Read(b []byte) (int, error) {
	if p.rest == "" {
		return 0, io.EOF
	}
	n := copy(b, p.rest[:min(p.step, len(p.rest))])
	p.rest = p.rest[n:]
	return n, nil
}

// readStrict reads what a server's connection passes on of wire.
func readStrict(wire string, step int) (string, error) {
	c := NewServerConn(&pieces{rest: wire, step: step}, nil)
	data, err := io.ReadAll(c)
	return string(data), err
}

// TestClientLeavesWhileServed checks that a client that disconnects cancels its running request, on
// a new and on a reused connection. A request that is sent ahead is served afterwards.
func TestClientLeavesWhileServed(t *testing.T) {
	arrived, left, resume := make(chan struct{}), make(chan struct{}), make(chan struct{})
	c := dialStrict(t, func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/leave":
			arrived <- struct{}{}
			<-r.Context().Done()
			close(left)
		case "/ahead":
			arrived <- struct{}{}
			<-resume
		}
		_, _ = io.WriteString(w, r.URL.Path)
	})
	br := bufio.NewReader(c)
	send := func(path string) { _, _ = io.WriteString(c, "GET "+path+" HTTP/1.1\r\nHost: a\r\n\r\n") }
	wantAnswer := func(path string) {
		t.Helper()
		resp, err := http.ReadResponse(br, nil)
		errtest.Must(t, err)
		defer resp.Body.Close()
		if text, _ := io.ReadAll(resp.Body); string(text) != path {
			t.Errorf("the answer is for %s, want %s", text, path)
		}
	}
	for range 3 {
		send("/")
		wantAnswer("/")
	}
	send("/ahead")
	<-arrived
	send("/1")
	send("/2")
	close(resume)
	wantAnswer("/ahead")
	wantAnswer("/1")
	wantAnswer("/2")
	send("/leave")
	<-arrived
	_ = c.Close()
	select {
	case <-left:
	case <-time.After(30 * time.Second):
		t.Error("the request of a client that left is not cancelled")
	}
}
