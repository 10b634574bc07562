package apptest

import (
	"bytes"
	"cmp"
	"encoding/json"
	"io"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// Body is a JSON object.
type Body = map[string]any

// Client calls an API with one credential.
type Client struct {
	// Base is the prefix of each path, such as http://host/api/v1.
	Base string
	// Bearer and APIKey are the credential; set one.
	Bearer, APIKey string
	// Header is added to each request.
	Header http.Header
	// Over carries the requests; nil: plain connections.
	Over *http.Transport
	// Limit is how long an answer may take; 0: a minute.
	Limit time.Duration
}

// Within returns a copy of the client that waits at most limit for an answer.
func (c *Client) Within(limit time.Duration) *Client {
	cp := *c
	cp.Limit = limit
	return &cp
}

// With returns a copy of the client with one more header.
func (c *Client) With(name, value string) *Client {
	cp := *c
	cp.Header = c.Header.Clone()
	if cp.Header == nil {
		cp.Header = http.Header{}
	}
	cp.Header.Set(name, value)
	return &cp
}

// Response is an answer with its whole body.
type Response struct {
	Status int
	Header http.Header
	Body   []byte
	t      testing.TB
	what   string
}

// connections are those to everything, decisions those that carry nothing else:
// the server has a shorter way for them (package lane).
var (
	connections = &http.Transport{MaxIdleConnsPerHost: 64, DisableCompression: true}
	decisions   = &http.Transport{MaxIdleConnsPerHost: 64, DisableCompression: true}
)

// transport returns the connections that are used for a path.
func transport(path string) *http.Transport {
	if strings.Contains(path, "/decisions/evaluate") || strings.Contains(path, "/data/gatehouse/decision") {
		return decisions
	}
	return connections
}

// Do sends a request. body may be nil, a []byte, or a value that is encoded as JSON. It fails the
// test if there is no answer.
func (c *Client) Do(t testing.TB, method, path string, body any) *Response {
	t.Helper()
	r, err := c.Try(method, path, body)
	if err != nil {
		t.Fatalf("%s %s: %v", method, path, err)
	}
	r.t = t
	return r
}

// Try is like Do, but returns an error if there is no answer.
func (c *Client) Try(method, path string, body any) (*Response, error) {
	var in io.Reader
	switch b := body.(type) {
	case nil:
	case []byte:
		in = bytes.NewReader(b)
	default:
		text, err := json.Marshal(b)
		if err != nil {
			return nil, err
		}
		in = bytes.NewReader(text)
	}
	req, err := http.NewRequest(method, c.Base+path, in)
	if err != nil {
		return nil, err
	}
	if in != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	if c.Bearer != "" {
		req.Header.Set("Authorization", "Bearer "+c.Bearer)
	}
	if c.APIKey != "" {
		req.Header.Set("X-API-Key", c.APIKey)
	}
	maps.Copy(req.Header, c.Header)
	if host := c.Header.Get("Host"); host != "" {
		req.Host = host
	}
	over := c.Over
	if over == nil {
		over = transport(path)
	}
	res, err := (&http.Client{
		Transport: over, Timeout: cmp.Or(c.Limit, time.Minute),
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}).Do(req)
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		return nil, err
	}
	return &Response{Status: res.StatusCode, Header: res.Header, Body: text, what: method + " " + path}, nil
}

// Want fails the test unless the status is one of statuses.
func (r *Response) Want(statuses ...int) *Response {
	r.t.Helper()
	if !slices.Contains(statuses, r.Status) {
		r.t.Fatalf("%s answered %d, want %v: %s", r.what, r.Status, statuses, r.Body)
	}
	return r
}

// Expect reports an error unless the status is one of statuses. what says what the request was for.
// The test goes on.
func (r *Response) Expect(what string, statuses ...int) *Response {
	r.t.Helper()
	if !slices.Contains(statuses, r.Status) {
		r.t.Errorf("%s: %s answered %d, want %v: %.600s", what, r.what, r.Status, statuses, r.Body)
	}
	return r
}

// WantError is like Want, and also compares the member error of the body with code.
func (r *Response) WantError(status int, code string) *Response {
	r.t.Helper()
	if r.Want(status).Get("error") != code {
		r.t.Fatalf("%s answered %d, want the error %s: %s", r.what, r.Status, code, r.Body)
	}
	return r
}

// ExpectError is like Expect, and also compares the member error of the body with code; nil for none.
func (r *Response) ExpectError(what string, status int, code any) *Response {
	r.t.Helper()
	if r.Status != status || r.Get("error") != code {
		r.t.Errorf("%s: %s answered %d, want %d with the error %v: %.600s", what, r.what, r.Status, status, code, r.Body)
	}
	return r
}

// Into decodes the body into v, and fails the test if it cannot.
func (r *Response) Into(v any) *Response {
	r.t.Helper()
	if err := json.Unmarshal(r.Body, v); err != nil {
		r.t.Fatalf("%s: %v in %s", r.what, err, r.Body)
	}
	return r
}

// Get returns a member of the body, through objects by their names and lists by their indexes; nil
// if it does not exist.
func (r *Response) Get(path ...string) any {
	r.t.Helper()
	var v any
	r.Into(&v)
	for _, p := range path {
		switch at := v.(type) {
		case map[string]any:
			v = at[p]
		case []any:
			n, err := strconv.Atoi(p)
			if err != nil || n >= len(at) {
				return nil
			}
			v = at[n]
		default:
			return nil
		}
	}
	return v
}

// Text returns a text of the body, and fails the test if there is none.
func (r *Response) Text(path ...string) string {
	r.t.Helper()
	text, ok := r.Get(path...).(string)
	if !ok {
		r.t.Fatalf("%s: no text %s in %s", r.what, strings.Join(path, "/"), r.Body)
	}
	return text
}

// ID returns the integer member id of the body.
func (r *Response) ID() int64 {
	r.t.Helper()
	id, ok := r.Get("id").(float64)
	if !ok {
		r.t.Fatalf("%s: no id in %s", r.what, r.Body)
	}
	return int64(id)
}

// Decode is like Into, but returns an error.
func (r *Response) Decode(v any) error { return json.Unmarshal(r.Body, v) }
