package enforce

import (
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
)

// chunked answers without a length and without a body.
func chunked(status int, kind, encoding string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		w.Header()["Content-Type"] = nil // no guess either
		if kind != "" {
			w.Header().Set("Content-Type", kind)
		}
		if encoding != "" {
			w.Header().Set("Content-Encoding", encoding)
		}
		w.WriteHeader(status)
		w.(http.Flusher).Flush()
	}
}

// twoTypes answers with two media types.
func twoTypes(one, other, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		w.Header()["Content-Type"] = []string{one, other}
		_, _ = w.Write([]byte(body))
	}
}

// asPart returns a document as a part of a multipart body.
func asPart(doc string) string {
	return "--x\r\nContent-Type: application/json\r\n\r\n" + doc + "\r\n--x--\r\n"
}

// wide returns a text in UTF-16, in big-endian or little-endian order.
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

// A mask by path applies to every JSON answer. An answer that cannot be masked does not pass, and the
// application cannot answer with a part, or with "not modified".
func TestMasks(t *testing.T) {
	t.Parallel()
	const secret = `{"name":"Ann","ssn":"123-45-6789","card":{"number":"4111111111111111","brand":"visa"},"notes":"canary"}`
	send := func(status int, head map[string]string, body string) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			for k, v := range head {
				w.Header().Set(k, v)
			}
			w.WriteHeader(status)
			_, _ = w.Write([]byte(body))
		}
	}
	js := map[string]string{"Content-Type": "application/json"}
	with := func(k, v string) map[string]string {
		return map[string]string{"Content-Type": "application/json", k: v}
	}
	huge := `{"ssn":"` + strings.Repeat("canary", 3<<20) + `"}`
	cases := map[string]struct {
		h      http.HandlerFunc
		want   int
		masked bool // the client gets the masked document; otherwise no document
	}{
		"json":                {send(200, js, secret), 200, true},
		"json with a charset": {send(200, map[string]string{"Content-Type": "application/json; charset=UTF-8"}, secret), 200, true},
		"a +json type":        {send(200, map[string]string{"Content-Type": "application/problem+json"}, secret), 200, true},
		"an error in json":    {send(404, js, secret), 404, true},
		"gzip unasked":        {send(200, with("Content-Encoding", "gzip"), gzipped(secret)), 200, true},
		"in pieces": {func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			for _, c := range []byte(secret) {
				_, _ = w.Write([]byte{c})
				w.(http.Flusher).Flush()
			}
		}, 200, true},
		"gzip that is none": {send(200, with("Content-Encoding", "gzip"), secret), 502, false},
		"gzip and more":     {send(200, with("Content-Encoding", "gzip"), gzipped(secret)+secret), 502, false},
		"two encodings":     {send(200, with("Content-Encoding", "gzip, br"), gzipped(secret)), 502, false},
		"brotli":            {send(200, with("Content-Encoding", "br"), secret), 502, false},
		"gzip bomb":         {send(200, with("Content-Encoding", "gzip"), gzipped(huge)), 502, false},
		"too large":         {send(200, js, huge), 502, false},
		"json as text":      {send(200, map[string]string{"Content-Type": "text/plain"}, secret), 502, false},
		"json as html":      {send(200, map[string]string{"Content-Type": "text/html"}, secret), 502, false},
		"no type":           {send(200, map[string]string{"Content-Type": ""}, secret), 502, false},
		"another charset":   {send(200, map[string]string{"Content-Type": "application/json; charset=utf-16"}, secret), 502, false},
		"lines of json":     {send(200, map[string]string{"Content-Type": "application/x-ndjson"}, secret+"\n"+secret), 502, false},
		"two documents":     {send(200, js, secret+secret), 502, false},
		"cut short":         {send(200, js, secret[:40]), 502, false},
		"not json":          {send(200, js, "canary"), 502, false},
		"a part":            {send(206, with("Content-Range", "bytes 0-10/100"), secret), 502, false},
		"not modified":      {send(304, nil, ""), 304, false},
		"a byte order mark": {send(200, js, "\ufeff"+secret), 200, true},
		"UTF-16":            {send(200, js, wide(secret, false)), 502, false},
		"UTF-16, marked":    {send(200, js, "\xfe\xff"+wide(secret, true)), 502, false},
		"not UTF-8":         {send(200, js, secret[:8]+"\xff"+secret[8:]), 502, false},
		"two types":         {twoTypes("application/json", "text/plain", secret), 502, false},
		"records of json":   {send(200, map[string]string{"Content-Type": "application/json-seq"}, "\x1e"+secret+"\n"), 502, false},
		"in a form":         {send(200, map[string]string{"Content-Type": "multipart/form-data; boundary=x"}, asPart(secret)), 502, false},
		"in parts":          {send(200, map[string]string{"Content-Type": "multipart/mixed; boundary=x"}, asPart(secret)), 502, false},
		"related parts":     {send(200, map[string]string{"Content-Type": "multipart/related; boundary=x; type=\"application/json\""}, asPart(secret)), 502, false},
		"ranges":            {send(206, map[string]string{"Content-Type": "multipart/byteranges; boundary=x"}, asPart(secret)), 502, false},
		"deflated":          {send(200, with("Content-Encoding", "deflate"), secret), 502, false},
		"nothing accepted":  {chunked(202, "", ""), 202, false},
		"nothing in JSON":   {chunked(202, "application/json", ""), 202, false},
		"nothing packed":    {chunked(200, "application/json", "gzip"), 200, false},
		"nothing of a kind": {chunked(200, "image/png", ""), 200, false},
		"nothing, an error": {chunked(500, "", ""), 500, false},
		"a reset":           {send(205, nil, ""), 205, false},
		"an error page":     {send(500, map[string]string{"Content-Type": "text/html"}, "<p>canary 123-45-6789"), 500, false},
		"a redirect":        {send(302, map[string]string{"Location": "/x", "Content-Type": "text/html"}, "canary"), 302, false},
		"nothing":           {send(204, nil, ""), 204, false},
		"broken off": {func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			w.Header().Set("Content-Length", "1000")
			_, _ = w.Write([]byte(secret))
			panic(http.ErrAbortHandler)
		}, 502, false},
		"early hints": {func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Link", "canary")
			w.WriteHeader(http.StatusEarlyHints)
			w.Header().Del("Link")
			send(200, js, secret)(w, r)
		}, 200, true},
	}
	var handler atomic.Pointer[http.HandlerFunc]
	app := newApplication(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Etag", `"x"`)
		w.Header().Set("Content-MD5", "x")
		w.Header().Set("Digest", "x")
		(*handler.Load())(w, r)
	})
	_, b := startPublished(t, app.URL, enforcing(maskSSN), nil)
	const want = `{"name":"Ann","ssn":"****6789","card":{"number":"[redacted]","brand":"visa"}}`
	for name, tc := range cases {
		handler.Store(&tc.h)
		for _, method := range []string{"GET", "POST"} { // the fast path and the transport
			answer := fetch(t, method, b.url+"/x", func(r *http.Request) {
				r.Header.Set("Accept-Encoding", "gzip, br")
				r.Header.Set("Range", "bytes=0-10")
				r.Header.Set("If-None-Match", `"x"`)
				r.Header.Set("If-Modified-Since", "Mon, 02 Jan 2006 15:04:05 GMT")
			})
			got := app.take()[0].Header
			all := fmt.Sprint(answer.header) + answer.body
			if answer.status != tc.want || strings.Contains(all, "canary") || strings.Contains(all, "123-45") || strings.Contains(all, "411111") {
				t.Errorf("%s: %s %v, want %d and no secret", name, answer, answer.header, tc.want)
			}
			if tc.masked && answer.body != want {
				t.Errorf("%s: %s, want %q", name, answer, want)
			}
			if tc.masked && (answer.header.Get("Etag") != "" || answer.header.Get("Digest") != "" || answer.header.Get("Content-Md5") != "" || answer.header.Get("Content-Length") != fmt.Sprint(len(want))) {
				t.Errorf("%s: %s %v, want no digest of the unmasked body, and the length of the masked one", name, answer, answer.header)
			}
			if got.Get("Accept-Encoding") != "identity" || got.Get("Range") != "" || got.Get("If-None-Match") != "" || got.Get("If-Modified-Since") != "" {
				t.Errorf("%s %s: the application gets %v, want a request for a whole plain answer", method, name, got)
			}
		}
	}
	plain := send(200, js, secret)
	handler.Store(&plain)
	if head := fetch(t, "HEAD", b.url+"/x", nil); head.status != 200 || head.header.Get("Content-Length") != "" || head.header.Get("Etag") != "" {
		t.Errorf("%s %v, want 200 without length and ETag", head, head.header)
	}
}

// Shadow mode records the masks, and sends the answer unchanged.
func TestMaskInShadowChangesNothing(t *testing.T) {
	t.Parallel()
	const body = `{"ssn":"123-45-6789"}`
	app := newApplication(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Etag", `"x"`)
		fmt.Fprint(w, body)
	})
	p, b := startPublished(t, app.URL, policySet{revision: 1, mode: "shadow", controls: []control{{id: 1, source: maskSSN}}}, nil)
	if got := fetch(t, "GET", b.url+"/x", nil); got.body != body || got.header.Get("Etag") != `"x"` {
		t.Errorf("in shadow: %s %v, want it unchanged", got, got.header)
	}
	if e := p.logged(1)[0]; field(e, "custom", "outcome") != "SHADOW_WOULD_MASK" || len(field(e, "result", "mask").([]any)) != 3 {
		t.Errorf("the event is %v, want SHADOW_WOULD_MASK with 3 masks", e)
	}
}
