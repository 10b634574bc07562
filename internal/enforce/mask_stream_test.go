package enforce

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/enforce/bodies"
	"github.com/gatehouse-dev/gatehouse/internal/enforce/maskbody"
	"github.com/gatehouse-dev/gatehouse/internal/errtest"
	"github.com/gatehouse-dev/gatehouse/internal/fulltest"
)

// maskPII hides all categories. Of card numbers, the last four digits stay.
const maskPII = `package pii

allow := true

mask[sprintf("pii:%s", [c])] := "redact" if some c in ["names", "emails", "ssn", "health_records", "addresses", "phones"]

mask["pii:card_numbers"] := "last4"
`

// personal has a sentence for each category, and its masked form.
var personal = map[string][2]string{
	"names":     {"ask Maria Quux about it", "ask [redacted] about it"},
	"emails":    {"write to bea.stone@mail.example.com now", "write to [redacted] now"},
	"ssn":       {"it is 123-45-6789 for all", "it is [redacted] for all"},
	"cards":     {"pay with 4111 1111 1111 1111 today", "pay with ****1111 today"},
	"health":    {"she has type 2 diabetes now", "she has [redacted] now"},
	"addresses": {"at 221B Baker Street, London NW1 6XE today", "at [redacted] today"},
	"phones":    {"call (415) 555-2671 now", "call [redacted] now"},
}

// chatChunk returns an event with a part of a model's answer.
func chatChunk(s string) string {
	text, _ := json.Marshal(s)
	return `data: {"id":"c1","object":"chat.completion.chunk","choices":[{"index":0,"delta":{"content":` + string(text) + "},\"finish_reason\":null}]}\n\n"
}

// chatText returns the text of the events of a model's answer.
func chatText(t testing.TB, body string) (text string) {
	t.Helper()
	for line := range strings.Lines(body) {
		data, ok := strings.CutPrefix(strings.TrimSpace(line), "data: ")
		if !ok || data == "[DONE]" {
			continue
		}
		var c struct {
			Choices []struct{ Delta struct{ Content string } }
		}
		if err := json.Unmarshal([]byte(data), &c); err != nil {
			t.Fatalf("%q: %v", data, err)
		}
		text += c.Choices[0].Delta.Content
	}
	return text
}

// A model may split its stream at any byte. Over real connections, nothing passes unmasked, in
// events, text or JSON.
func TestStreamsPartedAtEveryByte(t *testing.T) {
	t.Parallel()
	fulltest.Only(t)
	var wire, kind atomic.Value
	var cut atomic.Int64
	app := newApplication(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", kind.Load().(string))
		in, n := wire.Load().(string), int(cut.Load())
		if n < 0 { // every byte by itself
			for i := range len(in) {
				_, _ = io.WriteString(w, in[i:i+1])
				w.(http.Flusher).Flush()
			}
			return
		}
		_, _ = io.WriteString(w, in[:n])
		w.(http.Flusher).Flush()
		_, _ = io.WriteString(w, in[n:])
	})
	p := newPlane(t)
	p.discard = true
	p.publish(enforcing(maskPII))
	b := start(t, p, app.URL, nil).at(t, 1)
	const end = "data: [DONE]\n\n"
	check := func(name, want string, cuts []int) {
		for _, n := range cuts {
			cut.Store(int64(n))
			got := post(t, b.url+"/v1/chat/completions", "application/json", `{"stream":true}`, nil)
			text := got.body
			if kind.Load() == "text/event-stream" {
				text = chatText(t, got.body)
			}
			if got.status != 200 || text != want {
				t.Errorf("%s cut at %d: %s, want 200 %q", name, n, got, want)
			}
		}
	}
	every := func(n int) (out []int) {
		for i := range n {
			out = append(out, i)
		}
		return append(out, -1)
	}
	for name, text := range personal {
		kind.Store("text/event-stream")
		var letters, whole strings.Builder
		for _, c := range text[0] {
			letters.WriteString(chatChunk(string(c)))
		}
		whole.WriteString(chatChunk(text[0]) + end)
		wire.Store(letters.String() + end)
		check(name+", a letter an event", text[1], []int{-1, 40})
		wire.Store(whole.String())
		check(name+", one event", text[1], every(whole.Len()))
		for i := 1; i < len(text[0]); i++ {
			in := chatChunk(text[0][:i]) + chatChunk(text[0][i:]) + end
			wire.Store(in)
			check(name+", two events", text[1], []int{len(chatChunk(text[0][:i]))})
		}
		kind.Store("text/plain")
		wire.Store(text[0])
		check(name+", text", text[1], every(len(text[0])))
		kind.Store("application/json")
		wire.Store(`{"text": "` + text[0] + `"}`)
		check(name+", JSON", `{"text": "`+text[1]+`"}`, every(len(text[0])+12))
	}
}

// The first token is forwarded before the application sends the next, within 50 ms, and each further
// one as soon as the next shows that it does not begin personal data.
func TestFirstToken(t *testing.T) {
	t.Parallel()
	var next chan string
	app := newApplication(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		w.WriteHeader(200)
		w.(http.Flusher).Flush()
		for s := range next {
			_, _ = io.WriteString(w, chatChunk(s))
			w.(http.Flusher).Flush()
		}
	})
	_, b := startPublished(t, app.URL, enforcing(maskPII), nil)
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	fastest := time.Hour // of five, which a busy machine does not change
	for range 5 {
		next = make(chan string)
		req, _ := http.NewRequestWithContext(ctx, "GET", b.url+"/v1/chat", nil)
		resp, err := http.DefaultClient.Do(req)
		errtest.Must(t, err)
		defer resp.Body.Close()
		lines := bufio.NewReader(resp.Body)
		sent := time.Now()
		next <- "Hello"
		if line, err := lines.ReadString('\n'); err != nil || !strings.Contains(line, "Hello") {
			close(next)
			t.Fatalf("the first line is %q %v, want Hello in it while the application waits", line, err)
		}
		fastest = min(fastest, time.Since(sent))
		next <- " there, bea"
		next <- "@exam"
		next <- "ple.com and others"
		close(next)
		rest, _ := io.ReadAll(lines)
		if got, want := chatText(t, string(rest)), " there, [redacted] and others"; got != want {
			t.Errorf("the rest is %q, want %q", got, want)
		}
	}
	if fastest > 50*time.Millisecond {
		t.Errorf("the fastest of five first tokens took %s, want at most 50 ms", fastest)
	}
}

// An answer that is larger than the memory limit or compressed is masked. An answer of a type that
// cannot be read does not pass.
func TestAnswersWithPersonalData(t *testing.T) {
	t.Parallel()
	var h atomic.Pointer[http.HandlerFunc]
	app := newApplication(t, func(w http.ResponseWriter, r *http.Request) { (*h.Load())(w, r) })
	_, b := startPublished(t, app.URL, enforcing(maskPII), nil)
	row := `{"email": "bea@example.com", "text": "nothing here"},`
	large := "[" + strings.Repeat(row, 3*maskbody.MaxHeld/len(row)) + "0]"
	send := func(kind, body string, zip bool) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", kind)
			answer := body
			if zip {
				w.Header().Set("Content-Encoding", "gzip")
				answer = gzipped(body)
			}
			_, _ = io.WriteString(w, answer)
		}
	}
	for name, tc := range map[string]struct {
		h    http.HandlerFunc
		want int
		body string
	}{
		"large JSON":        {send("application/json", large, false), 200, strings.ReplaceAll(large, "bea@example.com", "[redacted]")},
		"large packed JSON": {send("application/json", large, true), 200, strings.ReplaceAll(large, "bea@example.com", "[redacted]")},
		"packed events":     {send("text/event-stream", "data: bea@example.com\n\n", true), 200, "data: [redacted]\n\n"},
		"lines of JSON":     {send("application/x-ndjson", "{\"a\":\"\\nbea@example.com\"}\n{}\n", false), 200, "{\"a\":\"\\n[redacted]\"}\n{}\n"},
		"CSV":               {send("text/csv", "1,bea@example.com\n", false), 200, "1,[redacted]\n"},
		"XML":               {send("application/xml", "<a>bea@example.com</a>", false), 200, "<a>[redacted]</a>"},
		"a picture":         {send("image/png", "\x89PNG bea@example.com", false), 502, ""},
		"another charset":   {send("text/plain; charset=utf-16", "bea@example.com", false), 502, ""},
		"no type":           {send("", "bea@example.com", false), 502, ""},
		"UTF-16":            {send("text/plain", wide("bea@example.com", false), false), 502, ""},
		"UTF-16, marked":    {send("text/html", "\xfe\xff"+wide("bea@example.com", true), false), 502, ""},
		"UTF-16 as JSON":    {send("application/json", wide(`{"a":"bea@example.com"}`, true), false), 502, ""},
		"entities":          {send("text/html", "<p>bea&#64;example&period;com</p>", false), 200, "<p>[redacted]</p>"},
		"JSON as text":      {send("text/plain", `{"last_name":"Quux","a":"be\u0061@example.com"}`, false), 200, `{"last_name":"[redacted]","a":"[redacted]"}`},
		"lines as text":     {send("text/plain", "{\"last_name\":\"Quux\"}\n{\"zip\":\"12345\"}\n", false), 200, "{\"last_name\":\"[redacted]\"}\n{\"zip\":\"[redacted]\"}\n"},
		"a problem":         {send("application/problem+json", `{"detail":"bea@example.com"}`, false), 200, `{"detail":"[redacted]"}`},
		"records of JSON":   {send("application/json-seq", "\x1e{\"a\":\"bea@example.com\"}\n", false), 200, "\x1e{\"a\":\"[redacted]\"}\n"},
		"a part of several": {send("multipart/mixed; boundary=x", asPart("bea@example.com"), false), 502, ""},
		"a form":            {send("application/x-www-form-urlencoded", "a=bea%40example.com", false), 502, ""},
		"two types":         {twoTypes("text/plain", "application/json", "bea@example.com"), 502, ""},
		"nothing":           {chunked(202, "", ""), 202, ""},
		"nothing as text":   {chunked(200, "text/plain", "gzip"), 200, ""},
		"no events":         {chunked(200, "text/event-stream", ""), 200, ""},
		"broken JSON":       {send("application/json", `{"a":"bea@example.com"`, false), 502, ""},
	} {
		h.Store(&tc.h)
		got := fetch(t, "GET", b.url+"/x", nil)
		if got.status != tc.want || tc.want == 200 && got.body != tc.body || strings.Contains(got.body, "bea@") {
			t.Errorf("%s: %s, want %d %.300q", name, got, tc.want, tc.body)
		}
	}
	// For a large broken answer the connection breaks, and nothing passes in clear.
	bad := send("application/json", large[:len(large)-2]+"bea@example.com", false)
	h.Store(&bad)
	resp, err := http.Get(b.url + "/x")
	errtest.Must(t, err)
	defer resp.Body.Close()
	if body, err := io.ReadAll(resp.Body); err == nil || strings.Contains(string(body), "bea@") {
		t.Errorf("a large broken answer: %d bytes and %v, want an error and nothing in clear", len(body), err)
	}
}

// Masks of the request change what the application receives, and nothing of the answer.
func TestRequestMasks(t *testing.T) {
	t.Parallel()
	app := newApplication(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"got":%q,"length":%d,"digest":%q,"own":"me@example.com"}`, body, r.ContentLength, r.Header.Get("Content-Digest"))
	})
	const source = "package requests\n\nallow := true\n\nmask := {\"request:pii:emails\": \"redact\", \"request:secret\": \"remove\"}\n"
	const reading = "package reading\n\nallow if input.llm.model != \"bad\"\n\nallow if not input.llm\n"
	_, b := startPublished(t, app.URL, policySet{revision: 1, mode: "enforce", controls: []control{{id: 1, source: source}, {id: 2, source: reading, resource: 5}}}, nil)
	for name, tc := range map[string]struct {
		kind, body, want string
		status           int
	}{
		"JSON":        {"application/json", `{"secret":1,"messages":["bea@example.com"]}`, `{\"messages\":[\"[redacted]\"]}`, 200},
		"nothing":     {"application/json", "", "", 200},
		"broken":      {"application/json", `{"secret":1`, "", 422},
		"text":        {"text/plain", "bea@example.com", "", 422}, // a text has no paths
		"a picture":   {"image/png", "\x89PNG", "", 422},
		"too large":   {"application/json", `{"x":"` + strings.Repeat("x", bodies.MaxBody) + `"}`, "", 413},
		"JSON hidden": {"text/plain", `{"secret":1,"x":"bea@example.com"}`, `{\"x\":\"[redacted]\"}`, 200},
	} {
		got := post(t, b.url+"/x", tc.kind, tc.body, func(r *http.Request) {
			r.Header.Set("Content-Digest", "x")
			if tc.status == 413 { // a client that sends on may lose the connection before it reads the answer
				r.Header.Set("Expect", "100-continue")
			}
		})
		if got.status != tc.status || tc.status == 200 && (!strings.Contains(got.body, `"got":"`+tc.want+`"`) || !strings.Contains(got.body, "me@example.com")) {
			t.Errorf("%s: %s, want %d %s", name, got, tc.status, tc.want)
		}
		if tc.status == 200 && tc.body != "" && !strings.Contains(got.body, `"digest":""`) {
			t.Errorf("%s: %s, want no digest of the unmasked body", name, got)
		}
	}
}
