package enforce

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/errtest"
	"github.com/gatehouse-dev/gatehouse/internal/freeport"
	"github.com/gatehouse-dev/gatehouse/internal/fulltest"
)

// hostile is an application that writes its answers byte by byte. It sends late bytes between two
// waves of clients, while its connections are idle.
type hostile struct {
	url  string
	mu   sync.Mutex
	late []lateBytes
}

// lateBytes are what an application sends on an idle connection.
type lateBytes struct {
	send func()
	gone <-chan struct{} // closed when the connection has ended
}

// misbehave answers one request. It calls late with bytes to send while the connection is idle. It
// returns false to close the connection.
type misbehave func(c net.Conn, r *http.Request, token string, late func(string)) bool

// newHostile starts a hostile application; with secure, over TLS.
func newHostile(t *testing.T, secure *tls.Config, answer misbehave) *hostile {
	t.Helper()
	h := &hostile{}
	scheme, wrap := "http://", func(c net.Conn) net.Conn { return c }
	if secure != nil {
		scheme, wrap = "https://", func(c net.Conn) net.Conn { return tls.Server(c, secure) }
	}
	h.url = scheme + freeport.Accept(t, func(c net.Conn) { h.serve(wrap(c), answer) })
	return h
}

func (h *hostile) serve(c net.Conn, answer misbehave) {
	gone := make(chan struct{})
	defer close(gone)
	defer c.Close()
	br := bufio.NewReader(c)
	for {
		r, err := http.ReadRequest(br)
		if err != nil {
			return
		}
		token := r.URL.Path[strings.LastIndexByte(r.URL.Path, '/')+1:]
		if strings.HasPrefix(r.URL.Path, "/good/") {
			_, _ = io.Copy(io.Discard, r.Body)
			_, _ = io.WriteString(c, page(token))
			continue
		}
		if !answer(c, r, token, func(s string) {
			h.mu.Lock()
			h.late = append(h.late, lateBytes{func() { _, _ = io.WriteString(c, s) }, gone})
			h.mu.Unlock()
		}) {
			return
		}
	}
}

// flush sends the late bytes. With ends, it waits until the bouncer has closed the connections. The
// transport watches its idle connections, and a POST sent before it notices the bytes could not be
// repeated.
func (h *hostile) flush(t *testing.T, ends bool) {
	t.Helper()
	h.mu.Lock()
	late := h.late
	h.late = nil
	h.mu.Unlock()
	for _, l := range late {
		l.send()
	}
	for _, l := range late {
		if ends {
			receive(t, "the end of a connection with bytes after the answer", l.gone)
		}
	}
}

// page is a complete, valid answer that names the client it is for.
func page(token string) string {
	return fmt.Sprintf("HTTP/1.1 200 OK\r\nX-For: %[2]s\r\nContent-Length: %[1]d\r\n\r\n%[2]s", len(token), token)
}

// answerWith reads the request to its end and answers with format.
func answerWith(format string) misbehave {
	return func(c net.Conn, r *http.Request, token string, late func(string)) bool {
		_, _ = io.Copy(io.Discard, r.Body)
		_, _ = io.WriteString(c, strings.NewReplacer("{page}", page(token), "{token}", token, "{n}", fmt.Sprint(len(token)), "{p}", fmt.Sprint(len(page(token))), "{x}", fmt.Sprintf("%x", len(token))).Replace(format))
		return true
	}
}

// sendWhileIdle sends a valid answer, and more bytes while the connection is idle.
func sendWhileIdle(format string) misbehave {
	return func(c net.Conn, r *http.Request, token string, late func(string)) bool {
		_, _ = io.Copy(io.Discard, r.Body)
		if r.Method == http.MethodHead {
			_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n")
		} else {
			_, _ = io.WriteString(c, page(token))
		}
		late(strings.ReplaceAll(format, "{page}", page(token)))
		return true
	}
}

const ok = "HTTP/1.1 200 OK\r\n"

// misbehaviours are errors in the framing of answers, made by mistake or to pass one client's page
// to another.
var misbehaviours = map[string]misbehave{
	"HEAD with a body":            answerWith(ok + "Content-Length: {p}\r\n\r\n{page}"),
	"HEAD with chunks":            answerWith(ok + "Transfer-Encoding: chunked\r\n\r\n{x}\r\n{token}\r\n0\r\n\r\n{page}"),
	"HEAD with a late body":       sendWhileIdle("{page}"),
	"204 with a body":             answerWith("HTTP/1.1 204 No Content\r\n\r\n{page}"),
	"204 with a length":           answerWith("HTTP/1.1 204 No Content\r\nContent-Length: 90\r\n\r\n{page}"),
	"304 with a body":             answerWith("HTTP/1.1 304 Not Modified\r\nContent-Length: 90\r\n\r\n{page}"),
	"second answer at once":       answerWith("{page}{page}"),
	"second answer late":          sendWhileIdle("{page}"),
	"two answers late":            sendWhileIdle("{page}{page}"),
	"408 at rest":                 sendWhileIdle("HTTP/1.1 408 Request Timeout\r\nContent-Length: 0\r\n\r\n{page}"),
	"100 at rest":                 sendWhileIdle("HTTP/1.1 100 Continue\r\n\r\n"),
	"103 at rest":                 sendWhileIdle("HTTP/1.1 103 Early Hints\r\n\r\n{page}"),
	"half a status line at rest":  sendWhileIdle("HTTP/1."),
	"line break at rest":          sendWhileIdle("\r\n"),
	"more than the length":        answerWith(ok + "Content-Length: {n}\r\n\r\n{token}{page}"),
	"data after the last chunk":   answerWith(ok + "Transfer-Encoding: chunked\r\n\r\n{x}\r\n{token}\r\n0\r\n\r\n{page}"),
	"trailers, then data":         answerWith(ok + "Trailer: X-T\r\nTransfer-Encoding: chunked\r\n\r\n{x}\r\n{token}\r\n0\r\nX-T: 1\r\n\r\n{page}"),
	"a length among the trailers": answerWith(ok + "Transfer-Encoding: chunked\r\n\r\n{x}\r\n{token}\r\n0\r\nContent-Length: 90\r\n\r\n{page}"),
	"chunk size in LF":            answerWith(ok + "Transfer-Encoding: chunked\r\n\r\n{x}\n{token}\r\n0\r\n\r\n{page}"),
	"chunk extension":             answerWith(ok + "Transfer-Encoding: chunked\r\n\r\n{x};a=b\r\n{token}\r\n0;c\r\n\r\n{page}"),
	"bad chunk size":              answerWith(ok + "Transfer-Encoding: chunked\r\n\r\n+{x}\r\n{token}\r\n0\r\n\r\n{page}"),
	"both lengths":                answerWith(ok + "Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n{x}\r\n{token}\r\n0\r\n\r\n{page}"),
	"two lengths":                 answerWith(ok + "Content-Length: {n}\r\nContent-Length: 1\r\n\r\n{token}{page}"),
	"one length twice":            answerWith(ok + "Content-Length: {n}\r\nContent-Length: {n}\r\n\r\n{token}{page}"),
	"length list":                 answerWith(ok + "Content-Length: {n}, {n}\r\n\r\n{token}{page}"),
	"negative length":             answerWith(ok + "Content-Length: -1\r\n\r\n{token}{page}"),
	"signed length":               answerWith(ok + "Content-Length: +{n}\r\n\r\n{token}{page}"),
	"no length":                   answerWith(ok + "Content-Length:\r\n\r\n{token}{page}"),
	"space before the colon":      answerWith(ok + "Content-Length : {n}\r\n\r\n{token}{page}"),
	"unknown coding":              answerWith(ok + "Transfer-Encoding: gzip, chunked\r\n\r\n{x}\r\n{token}\r\n0\r\n\r\n{page}"),
	"HTTP/1.0":                    answerWith("HTTP/1.0 200 OK\r\nContent-Length: {n}\r\n\r\n{token}{page}"),
	"HTTP/1.0 kept":               answerWith("HTTP/1.0 200 OK\r\nConnection: keep-alive\r\nContent-Length: {n}\r\n\r\n{token}{page}"),
	"HTTP/1.0 with a coding":      answerWith("HTTP/1.0 200 OK\r\nConnection: keep-alive\r\nTransfer-Encoding: chunked\r\n\r\n{x}\r\n{token}\r\n0\r\n\r\n{page}"),
	"close, and goes on":          answerWith(ok + "Connection: close\r\nContent-Length: {n}\r\n\r\n{token}{page}"),
	"head in LF":                  answerWith("HTTP/1.1 200 OK\nContent-Length: {n}\n\n{token}{page}"),
	"folded length":               answerWith(ok + "Content-Length: {n}\r\n 0\r\n\r\n{token}{page}"),
	"folded field":                answerWith(ok + "X-A: 1\r\n Content-Length: 1\r\nContent-Length: {n}\r\n\r\n{token}{page}"),
	"unasked upgrade":             answerWith("HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n{page}"),
	"interim, then two answers":   answerWith("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\n\r\n{page}{page}"),
	"no HTTP":                     answerWith("220 ready\r\n{page}"),
	"early answer": func(c net.Conn, r *http.Request, token string, late func(string)) bool {
		_, _ = io.WriteString(c, page(token)+page(token)) // the body is not read before
		_, _ = io.Copy(io.Discard, r.Body)
		return true
	},
	"408 for an answer": func(c net.Conn, r *http.Request, token string, late func(string)) bool {
		_, _ = io.WriteString(c, "HTTP/1.1 408 Request Timeout\r\nContent-Length: "+fmt.Sprint(len(token))+"\r\n\r\n"+token+page(token))
		return false
	},
	"shorter than the length": func(c net.Conn, r *http.Request, token string, late func(string)) bool {
		_, _ = io.WriteString(c, ok+"Content-Length: 500\r\n\r\n"+token)
		return false
	},
}

var callerToken = regexp.MustCompile(`caller-\d+-`)

// TestEachClientGetsItsOwnAnswer sends many clients at once to applications that send more than the
// answer: on the fast path (GET and HEAD), through the transport (bodies) and over TLS. No answer
// names another client.
func TestEachClientGetsItsOwnAnswer(t *testing.T) {
	t.Parallel()
	fulltest.Only(t)
	files, roots := certificate(t)
	pair, err := tls.LoadX509KeyPair(files["cert"], files["key"])
	errtest.Must(t, err)
	for name, answer := range misbehaviours {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, way := range []string{"lean", "body", "TLS"} {
				var secure *tls.Config
				if way == "TLS" {
					secure = &tls.Config{Certificates: []tls.Certificate{pair}}
				}
				app := newHostile(t, secure, answer)
				p := newPlane(t)
				p.discard = true
				p.publish(enforcing(allowAll))
				b := start(t, p, app.url, func(c *Config) { c.UpstreamTimeout, c.BodyIdle, c.RootCAs = 5*time.Second, 5*time.Second, roots }).at(t, 1)
				sendCrowd(t, b.url, way, app)
				b.stop()
			}
		})
	}
}

// sendCrowd sends waves of clients. Two in three requests are answered badly.
func sendCrowd(t *testing.T, url, way string, app *hostile) {
	t.Helper()
	waves, callers := fulltest.Rounds(3, 8), fulltest.Rounds(9, 24)
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: callers}, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	defer client.CloseIdleConnections()
	var served atomic.Int32
	for wave := range waves {
		var all sync.WaitGroup
		for i := range callers {
			all.Go(func() {
				token := fmt.Sprintf("caller-%d-", wave*callers+i)
				method, target, body := http.MethodGet, "/bad/", io.Reader(nil)
				switch {
				case i%3 == 0:
					target = "/good/"
				case i%3 == 1 && way != "body":
					method = http.MethodHead
				}
				if way == "body" {
					method, body = http.MethodPost, bytes.NewReader(bytes.Repeat([]byte("x"), 1+i%2*(256<<10)))
				}
				req, err := http.NewRequest(method, url+target+token, body)
				if err != nil {
					t.Error(err)
					return
				}
				resp, err := client.Do(req)
				if err != nil {
					return // an answer that broke off names nobody
				}
				got, err := io.ReadAll(resp.Body)
				resp.Body.Close()
				head := fmt.Sprint(resp.Header)
				for _, named := range callerToken.FindAllString(head+string(got), -1) {
					if named != token {
						t.Errorf("%s: %s %s%s = %d %s %q, want nothing for %s", way, method, target, token, resp.StatusCode, head, got, named)
					}
				}
				if err == nil && target == "/good/" && resp.StatusCode == 200 && (string(got) == token || method == http.MethodHead) {
					served.Add(1)
				}
			})
		}
		all.Wait()
		app.flush(t, way == "body")
	}
	if n := int(served.Load()); n < waves*callers/3*3/4 {
		t.Errorf("%s: %d of %d requests below /good/ are answered, want three in four", way, n, waves*callers/3)
	}
}
