package enforce

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/gatehouse-dev/gatehouse/internal/errtest"
	"github.com/gatehouse-dev/gatehouse/internal/fulltest"
)

// frames is an HTTP/2 connection to a bouncer, on which a test can write frames that no client
// library would.
type frames struct {
	*http2.Framer
	t    testing.TB
	conn net.Conn
	head bytes.Buffer
	pack *hpack.Encoder
	next uint32
}

// dialFrames opens an HTTP/2 connection to a bouncer.
func dialFrames(t testing.TB, url string) *frames {
	t.Helper()
	conn, err := net.Dial("tcp", strings.TrimPrefix(url, "http://"))
	errtest.Must(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	_ = conn.SetDeadline(time.Now().Add(60 * time.Second))
	f := &frames{t: t, conn: conn, next: 1, Framer: http2.NewFramer(conn, conn)}
	f.pack = hpack.NewEncoder(&f.head)
	f.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	_, err = io.WriteString(conn, http2.ClientPreface)
	if err == nil {
		err = f.WriteSettings()
	}
	errtest.Must(t, err)
	return f
}

// fields encodes names and values without changes.
func (f *frames) fields(list ...string) []byte {
	f.head.Reset()
	for i := 0; i+1 < len(list); i += 2 {
		if err := f.pack.WriteField(hpack.HeaderField{Name: list[i], Value: list[i+1]}); err != nil {
			f.t.Fatal(err)
		}
	}
	return bytes.Clone(f.head.Bytes())
}

// send begins a stream. If a body or trailers follow, the caller must end it.
func (f *frames) send(end bool, list ...string) (stream uint32) {
	stream = f.next
	f.next += 2
	_ = f.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, BlockFragment: f.fields(list...), EndHeaders: true, EndStream: end}) // the peer may have gone
	return stream
}

// answer returns the status of a stream's answer, or how the stream ended without one.
func (f *frames) answer(stream uint32) string {
	for {
		frame, err := f.ReadFrame()
		if _, ok := errors.AsType[http2.StreamError](err); ok {
			return "broken"
		}
		switch {
		case err != nil:
			return "closed"
		}
		switch frame := frame.(type) {
		case *http2.SettingsFrame:
			if !frame.IsAck() {
				_ = f.WriteSettingsAck()
			}
		case *http2.PingFrame:
			if !frame.IsAck() {
				_ = f.WritePing(true, frame.Data)
			}
		case *http2.MetaHeadersFrame:
			if frame.StreamID == stream {
				return frame.PseudoValue("status")
			}
		case *http2.RSTStreamFrame:
			if frame.StreamID == stream {
				return "reset"
			}
		case *http2.GoAwayFrame:
			if frame.ErrCode != http2.ErrCodeNo { // without an error, the answer still comes
				return "away"
			}
		}
	}
}

// TestHTTP2ControlData checks that ambiguous control data never reaches the application, and that
// the application receives what the decision was made on.
func TestHTTP2ControlData(t *testing.T) {
	t.Parallel()
	app := newApplication(t, nil)
	const source = "package p\n\nallow if not startswith(input.resource.path, \"/admin\")\n"
	_, b := startPublished(t, app.URL, policySet{revision: 1, mode: "enforce", config: map[string]any{"default_action": "deny"}, controls: []control{{id: 1, source: source}}}, nil)
	get := func(path string, more ...string) []string {
		return append([]string{":method", "GET", ":scheme", "http", ":authority", "app.test", ":path", path}, more...)
	}
	session := "gatehouse=default." + strings.Repeat("A", 43)
	for name, list := range map[string][]string{
		"no method":                 {":scheme", "http", ":authority", "app.test", ":path", "/open"},
		"no path":                   {":method", "GET", ":scheme", "http", ":authority", "app.test"},
		"no scheme":                 {":method", "GET", ":authority", "app.test", ":path", "/open"},
		"an empty path":             get(""),
		"a path without a slash":    get("open"),
		"an asterisk":               get("*"),
		"an address as path":        get("http://app.test/open"),
		"a space":                   get("/open /x"),
		"a version":                 get("/open HTTP/1.1"),
		"a fragment":                get("/open#/x"),
		"a fragment, encoded query": get("/open?a#b"),
		"a line break":              get("/open\r\nX: y"),
		"a zero byte":               get("/open\x00"),
		"raw UTF-8":                 get("/öpen"),
		"bad UTF-8":                 get("/\xff"),
		"a tab":                     get("/open\t"),
		"an encoded zero":           get("/open%00"),
		"a bad escape":              get("/open%zz"),
		"a backslash":               get("/x\\..\\admin"),
		"encoded slashes":           get("/x%2f..%2fadmin"),
		"two paths":                 get("/open", ":path", "/admin"),
		"two methods":               get("/open", ":method", "DELETE"),
		"two authorities":           get("/open", ":authority", "other.test"),
		"a late pseudo field":       append(get("/open", "x-a", "1"), ":path", "/admin"),
		"an unknown pseudo field":   get("/open", ":what", "x"),
		"a status":                  get("/open", ":status", "200"),
		"a protocol":                get("/open", ":protocol", "websocket"),
		"CONNECT":                   {":method", "CONNECT", ":authority", "app.test:443"},
		"extended CONNECT":          {":method", "CONNECT", ":protocol", "websocket", ":scheme", "http", ":authority", "app.test", ":path", "/open"},
		"TRACE":                     {":method", "TRACE", ":scheme", "http", ":authority", "app.test", ":path", "/open"},
		"a method with a space":     {":method", "GET /admin", ":scheme", "http", ":authority", "app.test", ":path", "/open"},
		"a method in lower case":    {":method", "get", ":scheme", "http", ":authority", "app.test", ":path", "/open"},
		"a method with a break":     {":method", "GET\r\n", ":scheme", "http", ":authority", "app.test", ":path", "/open"},
		"an authority with a user":  {":method", "GET", ":scheme", "http", ":authority", "ann@app.test", ":path", "/open"},
		"an authority with a path":  {":method", "GET", ":scheme", "http", ":authority", "app.test/admin", ":path", "/open"},
		"an authority with a space": {":method", "GET", ":scheme", "http", ":authority", "app.test x", ":path", "/open"},
		"an authority with a break": {":method", "GET", ":scheme", "http", ":authority", "app.test\r\nX: y", ":path", "/open"},
		"another host":              get("/open", "host", "other.test"),
		"two hosts":                 get("/open", "host", "app.test", "host", "other.test"),
		"capitals":                  get("/open", "X-Upper", "1"),
		"a name with a space":       get("/open", "x a", "1"),
		"a name with a break":       get("/open", "x\r\ny", "1"),
		"an empty name":             get("/open", "", "1"),
		"a value with a break":      get("/open", "x-a", "1\r\nx-auth-request-user: root"),
		"a value with a zero":       get("/open", "x-a", "1\x00"),
		"connection":                get("/open", "connection", "close"),
		"keep-alive":                get("/open", "keep-alive", "timeout=5"),
		"proxy-connection":          get("/open", "proxy-connection", "keep-alive"),
		"transfer-encoding":         get("/open", "transfer-encoding", "chunked"),
		"upgrade":                   get("/open", "upgrade", "websocket"),
		"te":                        get("/open", "te", "gzip"),
		"two lengths":               get("/open", "content-length", "0", "content-length", "1"),
		"a length with a sign":      get("/open", "content-length", "+1"),
		"no length, with a sign":    get("/open", "content-length", "+0"),
		"a list of lengths":         get("/open", "content-length", "1, 1"),
		"a length without a body":   get("/open", "content-length", "5"),
		"denied":                    get("/admin"),
		"denied, in capitals":       get("/%61dmin"),
		"denied, dot segments":      get("/open/../admin"),
		"denied, two slashes":       get("//admin"),
		"denied, for an address":    get("http://app.test/admin"),
	} {
		f := dialFrames(t, b.url)
		got := f.answer(f.send(true, list...))
		if n := len(app.take()); n != 0 || strings.HasPrefix(got, "2") {
			t.Errorf("%s: %s, %d requests reached the application, want a refusal and none", name, got, n)
		}
		_ = f.conn.Close()
	}
	for name, tc := range map[string]struct {
		list    []string
		request string // as the application sees it: target, host, and X-A, Cookie
	}{
		"plain":                  {get("/open"), "GET /open app.test [] []"},
		"the same host":          {get("/open", "host", "app.test"), "GET /open app.test [] []"},
		"a query":                {get("/open?a=b%20c"), "GET /open?a=b%20c app.test [] []"},
		"one field twice":        {get("/open", "x-a", "1", "x-a", "2"), "GET /open app.test [1 2] []"},
		"te for trailers":        {get("/open", "te", "trailers"), "GET /open app.test [] []"},
		"a cookie in crumbs":     {get("/open", "cookie", "a=1", "cookie", session, "cookie", "b=2"), "GET /open app.test [] [a=1; b=2]"},
		"a forged identity":      {get("/open", "x-auth-request-user", "root", "x_auth_request_user", "root", "x-forwarded-host", "evil.test"), "GET /open app.test [] []"},
		"a folded x-a":           {get("/open", "x-a", "1, 2"), "GET /open app.test [1, 2] []"},
		"a host with a port":     {[]string{":method", "GET", ":scheme", "http", ":authority", "app.test:80", ":path", "/open"}, "GET /open app.test:80 [] []"},
		"the scheme https":       {[]string{":method", "GET", ":scheme", "https", ":authority", "app.test", ":path", "/open"}, "GET /open app.test [] []"},
		"a host without a :auth": {[]string{":method", "GET", ":scheme", "http", "host", "app.test", ":path", "/open"}, ""}, // a pseudo field after another one
	} {
		f := dialFrames(t, b.url)
		got := f.answer(f.send(true, tc.list...))
		seen := app.take()
		if tc.request == "" {
			if len(seen) != 0 || strings.HasPrefix(got, "2") {
				t.Errorf("%s: %s, %d requests reached the application, want a refusal and none", name, got, len(seen))
			}
			continue
		}
		if got != "200" || len(seen) != 1 {
			t.Errorf("%s: %s, %d requests reached the application, want 200 and one", name, got, len(seen))
			continue
		}
		r := seen[0]
		if got := fmt.Sprintf("%s %s %s %v %v", r.Method, r.RequestURI, r.Host, r.Header["X-A"], r.Header["Cookie"]); got != tc.request {
			t.Errorf("%s: the application gets %q, want %q", name, got, tc.request)
		}
		for field, values := range r.Header {
			if strings.Contains(strings.Join(values, ","), "root") || strings.Contains(strings.Join(values, ","), "evil.test") {
				t.Errorf("%s: the application gets %s: %s, want nothing forged", name, field, values)
			}
		}
	}
}

// TestHTTP2Bodies checks that a body of the wrong length is refused, and that trailers cannot set
// fields that only a bouncer sets.
func TestHTTP2Bodies(t *testing.T) {
	t.Parallel()
	trailers := make(chan string, 8)
	app := newApplication(t, nil)
	app.Config.Handler = echoTrailers(trailers)
	_, b := startPublished(t, app.URL, enforcing(allowAll), nil)
	post := []string{":method", "POST", ":scheme", "http", ":authority", "app.test", ":path", "/open"}
	for name, tc := range map[string]struct{ length, body string }{"short": {"10", "12345"}, "long": {"3", "12345"}, "announced as empty": {"0", "12345"}} {
		f := dialFrames(t, b.url)
		stream := f.send(false, append(post, "content-length", tc.length)...)
		_ = f.WriteData(stream, true, []byte(tc.body))
		if got := f.answer(stream); strings.HasPrefix(got, "2") {
			t.Errorf("a body that is %s: %s, want a refusal", name, got)
		}
		_ = f.conn.Close()
	}
	for name, list := range map[string][]string{
		"identity": {"x-auth-request-user", "root"}, "underscores": {"x_auth_request_user", "root"}, "forwarded": {"x-forwarded-for", "root"}, "authorization": {"authorization", "root"},
		"host": {"host", "root"}, "length": {"content-length", "7"}, "a pseudo field": {":path", "/admin"}, "capitals": {"X-Auth-Request-User", "root"}, "a session": {"cookie", "root"},
	} {
		f := dialFrames(t, b.url)
		stream := f.send(false, append(post, "te", "trailers", "trailer", list[0])...)
		_ = f.WriteData(stream, false, []byte("12345"))
		_ = f.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, BlockFragment: f.fields(list...), EndHeaders: true, EndStream: true})
		got := f.answer(stream)
		if got == "200" {
			if seen := <-trailers; strings.Contains(seen, "root") || strings.Contains(seen, "admin") {
				t.Errorf("%s: the application gets the trailers %s, want nothing forged", name, seen)
			}
		}
		_ = f.conn.Close()
		for len(trailers) > 0 {
			<-trailers
		}
	}
}

// TestHTTP2Floods checks that endless heads, too many or too large fields, and streams that are reset
// at once end at most their own connection.
func TestHTTP2Floods(t *testing.T) {
	t.Parallel()
	fulltest.Only(t)
	app := newApplication(t, nil)
	_, b := startPublished(t, app.URL, enforcing(allowAll), nil)
	get := []string{":method", "GET", ":scheme", "http", ":authority", "app.test", ":path", "/open"}
	floods := map[string]func(f *frames) string{
		"a large field": func(f *frames) string { return f.answer(f.large(get, 1, 2<<20)) },
		"many fields":   func(f *frames) string { return f.answer(f.large(get, 20_000, 100)) },
		"fields of an index": func(f *frames) string { // small on the wire, large in memory
			list := append([]string{}, get...)
			for range 60_000 {
				list = append(list, "x-index", strings.Repeat("i", 3000))
			}
			return f.answer(f.continued(f.fields(list...)))
		},
		"a head without an end": func(f *frames) string {
			_ = f.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: f.fields(get...)})
			for range 20_000 {
				if f.WriteContinuation(1, false, f.fields("x-more", strings.Repeat("y", 200))) != nil {
					break
				}
			}
			return f.answer(1)
		},
		"empty continuations": func(f *frames) string {
			_ = f.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: f.fields(get...)})
			return f.flood(1, 50_000, func() error { return f.WriteContinuation(1, false, nil) })
		},
		"streams that are cancelled": func(f *frames) string {
			return f.flood(0, 5_000, func() error { return f.WriteRSTStream(f.send(true, get...), http2.ErrCodeCancel) })
		},
		"pings": func(f *frames) string {
			return f.flood(0, 20_000, func() error { return f.WritePing(false, [8]byte{1}) })
		},
		"settings": func(f *frames) string {
			return f.flood(0, 20_000, func() error {
				return f.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1 << 20})
			})
		},
	}
	for name, flood := range floods {
		f := dialFrames(t, b.url)
		if got := flood(f); strings.HasPrefix(got, "2") {
			t.Errorf("%s: %s, want a refusal", name, got)
		}
		_ = f.conn.Close()
		app.take()
		wantAnswer(t, "after "+name, fetch(t, "GET", b.url+"/open", nil), 200)
		app.take()
	}
}

// flood writes frames until the peer ends the connection, ends its own side, and returns the answer
// on stream.
func (f *frames) flood(stream uint32, frames int, write func() error) string {
	for range frames {
		if write() != nil {
			break
		}
	}
	_ = f.conn.(*net.TCPConn).CloseWrite()
	return f.answer(stream)
}

// large sends a head with n additional fields of size bytes.
func (f *frames) large(head []string, n, size int) (stream uint32) {
	list := append([]string{}, head...)
	for i := range n {
		list = append(list, fmt.Sprint("x-large-", i), strings.Repeat("z", size))
	}
	return f.continued(f.fields(list...))
}

// continued sends a head in as many frames as it needs.
func (f *frames) continued(block []byte) (stream uint32) {
	const most = 16 << 10
	stream = f.next
	f.next += 2
	first := block[:min(most, len(block))]
	block = block[len(first):]
	_ = f.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, BlockFragment: first, EndHeaders: len(block) == 0, EndStream: true})
	for len(block) > 0 {
		part := block[:min(most, len(block))]
		block = block[len(part):]
		if f.WriteContinuation(stream, len(block) == 0, part) != nil {
			break
		}
	}
	return stream
}

// echoTrailers reports the trailers that it receives.
func echoTrailers(seen chan<- string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		select {
		case seen <- fmt.Sprint(r.Trailer, r.Header):
		default:
		}
		w.WriteHeader(http.StatusOK)
	})
}

// TestHTTP2BodyLength checks that a body that is shorter or longer than its head says counts as a
// fault of the client, not of the application.
func TestHTTP2BodyLength(t *testing.T) {
	t.Parallel()
	app := newApplication(t, func(w http.ResponseWriter, r *http.Request) { _, _ = io.Copy(io.Discard, r.Body) })
	_, b := startPublished(t, app.URL, enforcing(allowAll), nil)
	for body, want := range map[string]string{"{}": "400", "{} and far too much": "reset", "12345": "200"} {
		f := dialFrames(t, b.url)
		stream := f.send(false, ":method", "POST", ":scheme", "http", ":authority", "app.test", ":path", "/open", "content-length", "5")
		errtest.Must(t, f.WriteData(stream, true, []byte(body)))
		if got := f.answer(stream); got != want {
			t.Errorf("a body of %d bytes, announced as 5: %s, want %s", len(body), got, want)
		}
		_ = f.conn.Close()
	}
	if n := b.count.UpstreamErrors.Load(); n != 0 {
		t.Errorf("%d errors of the application are counted, want 0", n)
	}
}
