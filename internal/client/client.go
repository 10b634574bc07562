// Package client calls a gatehouse server for the command line: JSON over HTTP with
// an API key or a token. It sends a request again if the server asks for it, or if
// the connection fails and a second try is safe.
//
//	Do ──► request ──► 2xx: decoded
//	          ▲  │
//	          │  ├─ 429, 503: waits Retry-After, or longer each time; at most Tries
//	          └──┘  no connection, GET or with a key: the same
//	             └─ else: *Error
package client

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/pause"
)

// maxAnswer is the largest size of an answer, in bytes.
const maxAnswer = 64 << 20

// Client is a server and a credential. URL and Key must be set.
type Client struct {
	// URL is the server's address, with or without /api/v1.
	URL string
	// Key is an API key or a token; it goes into Authorization.
	Key string
	// Agent names the caller.
	Agent string
	// Tries is how often a request is sent at most; 0: 5 times.
	Tries int
	// MaxWait is the longest wait between two tries; 0: 30 s.
	MaxWait time.Duration
	// Wait waits for d or until ctx ends; nil: by the clock.
	Wait func(ctx context.Context, d time.Duration) error
	// HTTP sends the requests; nil: a client that follows no redirects and has a timeout of
	// 2 minutes.
	HTTP *http.Client
}

// Error is an answer with a status other than 2xx. Body is the body as it was sent.
type Error struct {
	Status    int
	Code      string
	Message   string
	RequestID string
	Body      []byte
}

// Error returns the server's message, with the status, the code and the request's id.
func (e *Error) Error() string {
	s := fmt.Sprintf("the server answered %d", e.Status)
	if e.Code != "" {
		s += " " + e.Code
	}
	if e.Message != "" {
		s += ": " + e.Message
	}
	if e.RequestID != "" {
		s += " (request " + e.RequestID + ")"
	}
	return s
}

// Base returns the address of the API for a server's address, or an error if it is not
// an http or https URL.
func Base(address string) (string, error) {
	u, err := url.Parse(strings.TrimRight(strings.TrimSpace(address), "/"))
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.RawQuery != "" || u.User != nil {
		return "", errors.New("the server's address must be like https://gatehouse.example.com")
	}
	if !strings.HasSuffix(u.Path, "/api/v1") {
		u.Path += "/api/v1"
	}
	return u.String(), nil
}

// Do sends a request and decodes the answer into out; nil: it drops the answer. in is
// encoded as JSON; nil: no body. key is the Idempotency-Key. With a key, the server
// executes a repeated request only once, so Do sends it again if the connection fails.
func (c *Client) Do(ctx context.Context, method, path, key string, in, out any) error {
	base, err := Base(c.URL)
	if err != nil {
		return err
	}
	var body []byte
	if in != nil {
		if body, err = json.Marshal(in); err != nil {
			return fmt.Errorf("encode the request: %w", err)
		}
	}
	tries := cmp.Or(c.Tries, 5)
	harmless := method == http.MethodGet || key != ""
	for n := 1; ; n++ {
		answer, after, err := c.once(ctx, method, base+path, key, body)
		again := err != nil && harmless
		if refused, ok := errors.AsType[*Error](err); ok {
			again = refused.Status == http.StatusTooManyRequests || refused.Status == http.StatusServiceUnavailable
		}
		if !again || n == tries || ctx.Err() != nil {
			if err != nil {
				return err
			}
			return decode(answer, out)
		}
		if err := c.wait(ctx, c.pause(n, after)); err != nil {
			return err
		}
	}
}

// once sends the request once. after is the time in Retry-After, or negative if there is none.
func (c *Client) once(ctx context.Context, method, address, key string, body []byte) (answer []byte, after time.Duration, err error) {
	req, err := http.NewRequestWithContext(ctx, method, address, bytes.NewReader(body))
	if err != nil {
		return nil, -1, err
	}
	req.Header.Set("Authorization", "Bearer "+c.Key)
	req.Header.Set("Accept", "application/json")
	if c.Agent != "" {
		req.Header.Set("User-Agent", c.Agent)
	}
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	if key != "" {
		req.Header.Set("Idempotency-Key", key)
	}
	res, err := c.http().Do(req)
	if err != nil {
		return nil, -1, err
	}
	defer res.Body.Close() //nolint:errcheck // it was read
	answer, err = io.ReadAll(io.LimitReader(res.Body, maxAnswer+1))
	switch {
	case err != nil:
		return nil, -1, fmt.Errorf("read the answer: %w", err)
	case len(answer) > maxAnswer:
		return nil, -1, fmt.Errorf("the answer is over %d bytes", maxAnswer)
	case res.StatusCode < 200 || res.StatusCode > 299:
		return nil, retryAfter(res.Header.Get("Retry-After")), failure(res, answer)
	}
	return answer, -1, nil
}

func (c *Client) http() *http.Client {
	if c.HTTP != nil {
		return c.HTTP
	}
	return &http.Client{
		Timeout: 2 * time.Minute,
		// A redirect could send the credential to another server.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// pause returns how long to wait before try n+1: the time in Retry-After, or else twice
// as long each time.
func (c *Client) pause(n int, after time.Duration) time.Duration {
	most := c.MaxWait
	if most == 0 {
		most = 30 * time.Second
	}
	if after < 0 {
		after = 250 * time.Millisecond << min(n-1, 10)
	}
	return min(after, most)
}

func (c *Client) wait(ctx context.Context, d time.Duration) error {
	if c.Wait != nil {
		return c.Wait(ctx, d)
	}
	if !pause.For(ctx, d) {
		return ctx.Err()
	}
	return nil
}

// retryAfter reads Retry-After, in seconds or as a date (RFC 9110 section 10.2.3). It
// returns a negative duration if there is none.
func retryAfter(header string) time.Duration {
	if n, err := strconv.Atoi(header); err == nil && n >= 0 {
		return time.Duration(n) * time.Second
	}
	if at, err := http.ParseTime(header); err == nil {
		return max(0, time.Until(at))
	}
	return -1
}

func failure(res *http.Response, body []byte) error {
	e := &Error{Status: res.StatusCode, RequestID: res.Header.Get("X-Request-ID"), Body: body}
	var said struct {
		Error   string `json:"error"`
		Message string `json:"message"`
	}
	if json.Unmarshal(body, &said) == nil { // otherwise it is not a gatehouse answer
		e.Code, e.Message = said.Error, said.Message
	}
	return e
}

func decode(answer []byte, out any) error {
	if out == nil {
		return nil
	}
	if err := json.Unmarshal(answer, out); err != nil {
		return fmt.Errorf("the answer is not valid: %w", err)
	}
	return nil
}
