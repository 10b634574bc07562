// Package controlplane connects a bouncer to its control plane: calls with its credential, the
// shipping of the decision log, and the last good bundle on disk, for a start without the
// control plane.
package controlplane

import (
	"bytes"
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
)

// Client calls the control plane with the bouncer's credential.
type Client struct {
	base    string // the control plane's API root
	token   string
	version string // of the bouncer
	http    *http.Client
}

// NewClient returns a client of the control plane at address: scheme://host[:port], with
// or without /api/v1.
func NewClient(address, token, version string, http *http.Client) (*Client, error) {
	base, err := apiRoot(address)
	if err != nil {
		return nil, err
	}
	return &Client{base: base, token: token, version: version, http: http}, nil
}

// Do sends a request made by Request.
func (c *Client) Do(req *http.Request) (*http.Response, error) { return c.http.Do(req) }

// apiRoot returns the root of the control plane's API.
func apiRoot(raw string) (string, error) {
	u, err := url.Parse(raw)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" || u.RawQuery != "" || u.User != nil {
		return "", fmt.Errorf("bouncer: %q is not an http(s) address of a control plane", raw)
	}
	path := strings.TrimRight(u.Path, "/")
	if !strings.HasSuffix(path, "/api/v1") {
		path += "/api/v1"
	}
	return u.Scheme + "://" + u.Host + path, nil
}

// StatusError is an answer of the control plane without a 2xx status.
type StatusError struct {
	Code  int
	after time.Duration
}

// Final reports whether the same request would be refused again.
func (e *StatusError) Final() bool {
	return e.Code/100 == 4 && e.Code != http.StatusTooManyRequests
}

// Error implements error.
func (e *StatusError) Error() string {
	said := "the control plane answered " + strconv.Itoa(e.Code)
	if e.Code == http.StatusUnauthorized {
		said += ": it does not know this token. Check GATEHOUSE_BOUNCER_TOKEN and GATEHOUSE_URL, or register the bouncer again"
	}
	return said
}

// RetryAfter returns how long the control plane asked to wait; 0: it did not say.
func RetryAfter(err error) time.Duration {
	if no, ok := errors.AsType[*StatusError](err); ok {
		return no.after
	}
	return 0
}

// ErrorOf turns an answer into an error.
func ErrorOf(resp *http.Response) error {
	e := &StatusError{Code: resp.StatusCode}
	if n, err := strconv.Atoi(resp.Header.Get("Retry-After")); err == nil && n > 0 {
		e.after = time.Duration(min(n, 60)) * time.Second
	}
	return e
}

// Post sends JSON to the bridge.
func (c *Client) Post(ctx context.Context, path string, body []byte, zipped bool) error {
	return c.post(ctx, path, body, zipped, func(r io.Reader) { _, _ = io.CopyN(io.Discard, r, 64<<10) })
}

// Ask sends JSON to the bridge and decodes at most 256 KiB of the answer. If the answer cannot be
// read, it does not change answer and returns no error, because the bridge has received the
// request.
func (c *Client) Ask(ctx context.Context, path string, body []byte, answer any) error {
	return c.post(ctx, path, body, false, func(r io.Reader) {
		if data, err := io.ReadAll(io.LimitReader(r, 256<<10)); err == nil && json.Valid(data) {
			_ = json.Unmarshal(data, answer) // members of another type are left out
		}
	})
}

// post sends JSON. read reads the body of a 2xx answer.
func (c *Client) post(ctx context.Context, path string, body []byte, zipped bool, read func(io.Reader)) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	req, err := c.Request(ctx, http.MethodPost, path, bytes.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	if zipped {
		req.Header.Set("Content-Encoding", "gzip")
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return fmt.Errorf("the control plane cannot be reached: %w", err)
	}
	defer resp.Body.Close()
	if resp.StatusCode/100 != 2 {
		_, _ = io.CopyN(io.Discard, resp.Body, 64<<10)
		return ErrorOf(resp)
	}
	read(resp.Body)
	return nil
}

// Request makes a request with the bouncer's credential.
func (c *Client) Request(ctx context.Context, method, path string, body io.Reader) (*http.Request, error) {
	req, err := http.NewRequestWithContext(ctx, method, c.base+path, body)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Authorization", "Bearer "+c.token)
	req.Header.Set("User-Agent", "gatehouse-bouncer/"+c.version)
	return req, nil
}
