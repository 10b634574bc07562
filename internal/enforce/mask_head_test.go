package enforce

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/gatehouse-dev/gatehouse/internal/rego/target"
)

// Masks of the head remove or replace fields in answers, in their trailers, and in answers without
// a body. They do not change the body.
func TestHeadMasks(t *testing.T) {
	t.Parallel()
	app := newApplication(t, func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h["Set-Cookie"] = []string{"canary=1", "canary=2"}
		h.Set("X-Account", "canary-4711")
		h.Set("X-Owner", "canary-1234")
		h.Set("X-Kept", "kept")
		h.Set("Etag", `"x"`)
		h.Set("Trailer", "X-Sum")
		if r.URL.Path == "/early" {
			w.WriteHeader(http.StatusEarlyHints)
		}
		status := map[string]int{"/204": 204, "/304": 304, "/302": 302}[r.URL.Path]
		if status == 0 {
			status = 200
		}
		w.WriteHeader(status)
		if status == 200 {
			_, _ = io.WriteString(w, "a body of any kind")
			w.(http.Flusher).Flush()
		}
		h.Set("X-Sum", "canary-sum")
	})
	const source = "package heads\n\nallow := true\n\nmask := {\"header:set-cookie\": \"remove\", \"header:X-Account\": \"last4\", \"header:X-Owner\": \"redact\", \"header:X-Sum\": \"hash\", \"request:header:X-Secret\": \"redact\"}\n"
	_, b := startPublished(t, app.URL, enforcing(source), nil)
	for _, method := range []string{"GET", "POST", "HEAD"} {
		for _, path := range []string{"/", "/early", "/204", "/304", "/302"} {
			got := fetch(t, method, b.url+path, func(r *http.Request) { r.Header.Set("X-Secret", "mine"); r.Header.Set("Accept-Encoding", "br") })
			h := got.header
			if all := fmt.Sprint(h, got.body); strings.Contains(all, "canary") || h.Get("X-Account") != "****4711" || h.Get("X-Owner") != "[redacted]" || h.Get("X-Kept") != "kept" || h.Get("Etag") == "" {
				t.Errorf("%s %v, want masked fields and the others kept", got, h)
			}
			if method != "HEAD" && (path == "/" || path == "/early") && got.body != "a body of any kind" {
				t.Errorf("%s, want the body unchanged", got)
			}
			if asked := app.take()[0].Header; asked.Get("X-Secret") != "[redacted]" || asked.Get("Accept-Encoding") != "br" {
				t.Errorf("%s %s: the application gets %v, want X-Secret masked and the rest unchanged", method, path, asked)
			}
		}
	}
	if sum := fetch(t, "GET", b.url+"/", nil).trailer.Get("X-Sum"); sum == "" || strings.Contains(sum, "canary") {
		t.Errorf("the trailer X-Sum is %q, want a hash", sum)
	}
}

// A mask matches a field in any case and hides all its values. Of two masks on one field, the
// stricter applies. Masks cannot change fields that say how to read the answer. If a mask cannot be
// applied, the answer does not pass.
func TestHeadMaskFamilies(t *testing.T) {
	t.Parallel()
	app := newApplication(t, func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h["Set-Cookie"] = []string{"canary=1; Path=/", "canary=2", ""}
		h["X-Many"] = []string{"canary, canary", "canary"}
		h["x-lower"] = []string{"canary"}
		h["X_Under"] = []string{"canary"}
		h["X-Hop"] = []string{"canary"}
		h["Connection"] = []string{"X-Hop"}
		h.Set("X-Decision-Id", "canary")
		h.Set("X-Kept", "kept")
		h.Set("Content-Type", "application/json")
		h.Set("Trailer", "Set-Cookie, X-Kept-Trailer")
		_, _ = io.WriteString(w, `{"a":"kept"}`)
		w.(http.Flusher).Flush()
		h.Set("Set-Cookie", "canary=3")
		h.Set("X-Kept-Trailer", "kept")
		h.Set(http.TrailerPrefix+"X-Many", "canary")
	})
	p := newPlane(t)
	for i, c := range []struct{ mask, cookie, many string }{
		{`"header:SET-COOKIE": "remove", "header:x-MANY": "remove"`, "", ""},
		{`"header:set-cookie": "redact", "header:X-Many": "redact"`, "[redacted],[redacted],[redacted]", "[redacted],[redacted]"},
		{`"header:Set-Cookie": "last4", "header:set-cookie": "remove", "header:X-Many": "remove", "header:x-many": "hash"`, "", ""},
		{`"header:Set-Cookie": "remove", "header:X-Many": "remove", "header:X-Absent": "redact", "header:x-decision-id": "redact"`, "", ""},
		{`"header:Set-Cookie": "remove", "header:X-Many": "remove", "a": "redact"`, "", ""},
	} {
		source := "package heads\n\nallow := true\n\nmask := {\"header:X-Lower\": \"remove\", \"header:x_under\": \"remove\", \"header:X-Hop\": \"redact\", " + c.mask + "}\n"
		p.publish(policySet{revision: i + 1, mode: "enforce", controls: []control{{id: 1, source: source}}})
		b := start(t, p, app.URL, nil).at(t, i+1)
		for _, method := range []string{"GET", "POST", "HEAD"} {
			got := fetch(t, method, b.url+"/", nil)
			all := fmt.Sprint(got.header, got.trailer, got.body)
			cookie, many := strings.Join(got.header["Set-Cookie"], ","), strings.Join(got.header["X-Many"], ",")
			if got.status != 200 || strings.Contains(all, "canary") || cookie != c.cookie || many != c.many || got.header.Get("X-Kept") != "kept" || len(got.header["X-Hop"]) > 0 {
				t.Errorf("with %s: %s %s, want 200, Set-Cookie %q and X-Many %q", c.mask, got, all, c.cookie, c.many)
			}
		}
	}
}

// An answer does not pass if a mask names a field that cannot be masked, or no field.
func TestImpossibleHeadMasks(t *testing.T) {
	t.Parallel()
	app := newApplication(t, func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, "canary") })
	p := newPlane(t)
	for i, path := range []string{
		"header:Content-Length", "header:transfer-encoding", "header:Content-Type", "header:", "header:a b", "header:Connection",
		"header:CONTENT-TYPE", "header:content-encoding", "header:Content-Range", "header:Trailer", "header:Te", "header:Upgrade", "header:Keep-Alive", "header:Proxy-Authenticate",
		"header:X-\u00e9", "header:X:Y", "header: X-Space", "header:X-Line\n",
	} {
		source := fmt.Sprintf("package heads\n\nallow := true\n\nmask := {%q: \"remove\"}\n", path)
		p.publish(policySet{revision: i + 1, mode: "enforce", controls: []control{{id: 1, source: source}}})
		b := start(t, p, app.URL, nil).at(t, i+1)
		if got := fetch(t, "GET", b.url+"/", nil); got.status != 502 || strings.Contains(got.body, "canary") {
			t.Errorf("a mask of %q: %s, want 502 without the body", path, got)
		}
	}
}

// An application cannot set the bouncer's own fields at the client.
func TestApplicationCannotSetBouncerFields(t *testing.T) {
	t.Parallel()
	app := newApplication(t, func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		for _, name := range []string{"X-Decision", "X-Decision-Id", "X-Decision-Reason", "X-Gatehouse-Status", "X-Gatehouse-Anything", "X_Decision", "x-decision_id", "X_GATEHOUSE_STATUS"} {
			h.Set(name, "forged")
		}
		h.Set("X-Own", "own")
		h.Set("Content-Type", "application/json")
		h.Set("Trailer", "X-Decision, X-Sum")
		if r.URL.Path == "/early" {
			w.WriteHeader(http.StatusEarlyHints)
		}
		_, _ = io.WriteString(w, `{"ssn":"1","n":1}`)
		w.(http.Flusher).Flush()
		h.Set("X-Decision", "forged")
		h.Set("X-Sum", "sum")
		h.Set(http.TrailerPrefix+"X-Gatehouse-Late", "forged")
	})
	p := newPlane(t)
	p.publish(policySet{
		revision: 1, mode: "enforce", resources: []target.Resource{{ID: 5, Name: "m", Path: "/masked"}},
		controls: []control{{id: 1, source: "package open\n\nallow := true\n"}, {id: 2, resource: 5, source: maskSSN}},
	})
	b := start(t, p, app.URL, nil).at(t, 1)
	for _, method := range []string{"GET", "POST"} {
		for _, path := range []string{"/", "/early", "/masked"} {
			got := fetch(t, method, b.url+path, nil)
			if all := fmt.Sprint(got.header, got.trailer); got.status != 200 || strings.Contains(all, "forged") || got.header.Get("X-Own") != "own" || got.body == "" {
				t.Errorf("%s %s, want 200 with nothing forged", got, all)
			}
			if path == "/" && got.trailer.Get("X-Sum") != "sum" {
				t.Errorf("%s: the trailers are %v, want X-Sum", got, got.trailer)
			}
		}
	}
}
